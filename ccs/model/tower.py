"""A CLIP image tower taken apart: plans that share their work, and what each head writes.

The forward pass is written out here over the parts of a tower (`ccs.model.towers`), without hooks and without
changing a weight, so any number of threads may run different plans on one tower. A head is switched off by
setting its output to zero before the output projection; later layers see it. The family of the tower is known
to its parts alone.

Shapes: n images, T tokens, W width, L layers, H heads of dimension d in a layer, D embedding dimension.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from ccs.errors import InputError
from ccs.heads import Head, HeadSet
from ccs.model.towers.families import take_apart
from ccs.model.towers.parts import Layer, Route, Way, by_head
from ccs.model.towers.standins import STAND_INS, StandIns, Trunk, marks

__all__ = ["ImageTower", "Trunk"]

NOTHING_OFF = HeadSet()
ChosenLayers = Collection[int] | Literal["all"]


@dataclass(frozen=True)
class Readout:
    """What reaches the embedding of each image when no head is off, in float32.

    values: layer -> [n, T', H d + e], the coordinates of what each of its heads writes (see `Layer.account`)
    at the tokens that are read. tokens: [n, T', W], these tokens after the last block. route, pool_route: how
    they, and what the pool's heads gather, become the embedding. norm: [n], its length before it is made a
    unit vector. unit: [n, D], the unit embedding.
    """

    values: Mapping[int, Tensor]
    tokens: Tensor
    route: Route | None
    pool_route: Route | None
    norm: Tensor
    unit: Tensor


@dataclass
class _Record:
    """Takes, while nothing is off, the coordinates of `layers` and the tokens that leave the blocks."""

    layers: Collection[int]
    values: dict[int, Tensor] = field(default_factory=dict)
    last: list[Tensor] = field(default_factory=list)


class ImageTower:
    """The image tower of one model. `visual` is open_clip's module; its weights are read, never written.

    Layers of heads are those of its blocks and, where attention pools the tokens, one more: the pool's.
    `autocast` runs `embed` and `trunk` in that type (bfloat16, float16); contributions are always float32.
    chosen: the layers whose heads are scored, "all" or the numbers of some; by default the last four blocks,
    and the pool. Raises InputError for a tower that cannot be taken apart by head, with the reason, and for a
    layer that it has not.
    """

    def __init__(
        self, visual: Any, autocast: torch.dtype | None = None, chosen: ChosenLayers | None = None
    ) -> None:
        parts = take_apart(visual)
        self.visual = visual
        self._autocast = autocast
        self._stem, self._readout = parts.stem, parts.readout
        self._n_blocks = len(parts.blocks)
        pool = [] if parts.readout.pool is None else [parts.readout.pool]
        self.layers: Sequence[Layer] = [*parts.blocks, *pool]
        self.n_layers = len(self.layers)
        self.n_heads = max(layer.n_heads for layer in self.layers)
        self.head_dim = max(layer.head_dim for layer in self.layers)
        self.width, self.dim = parts.width, parts.dim
        self.n_tokens, self.prefix = parts.tokens, parts.prefix
        self.image_size = parts.image_size
        if chosen is None or chosen == "all":
            chosen = range(0 if chosen else max(0, self._n_blocks - 4), self.n_layers)
        if not chosen or not set(chosen) <= set(range(self.n_layers)):
            asked = ", ".join(map(str, chosen)) or "none"
            raise InputError(f"The layers are {asked}, but must be some of 0 to {self.n_layers - 1}, or all.")
        self._chosen = frozenset(chosen)
        self.first_prunable_layer = min(self._chosen)
        self._bases: dict[int, Tensor] = {}
        self.stand_ins: StandIns | None = None

    @property
    def heads(self) -> HeadSet:
        """The heads of the chosen layers; by default the study's, of the last four blocks, and the pool's."""
        return HeadSet(head for head in self.all_heads if head.layer in self._chosen)

    @property
    def all_heads(self) -> HeadSet:
        """The heads of every layer."""
        return HeadSet(
            Head(number, head) for number, layer in enumerate(self.layers) for head in range(layer.n_heads)
        )

    @property
    def device(self) -> torch.device:
        return torch.device(next(self.visual.parameters()).device)

    def require(self, heads: HeadSet) -> None:
        """Raise InputError if a head is not one of this tower's (any layer)."""
        for head in heads:
            if head.layer >= self.n_layers or head.head >= self.layers[head.layer].n_heads:
                raise InputError(f"{head} is outside this model, which has {self._span()}.")

    def _span(self) -> str:
        """Which heads there are, in words."""
        last, pool = self._n_blocks - 1, self._readout.pool
        inside = f"layers L0 to L{last} with heads H0 to H{self.layers[0].n_heads - 1}" if last >= 0 else ""
        gathers = "" if pool is None else f"layer L{last + 1}, its pool, with heads H0 to H{pool.n_heads - 1}"
        return " and ".join(filter(None, [inside, gathers]))

    # -- the forward pass ------------------------------------------------------------------------------------

    @torch.no_grad()
    def embed(self, images: Tensor | Trunk, plans: Sequence[HeadSet] = (NOTHING_OFF,)) -> Tensor:
        """Unit embeddings [plans, n, D] float32, each plan with its heads off.

        images: pixels [n, 3, s, s], or a trunk, in which case no plan may touch a layer below its own. Plans
        form a tree: as long as they agree they are one pass. Memory is that of one path through it.
        """
        with self._precision():
            return self._embed(images, plans)[0]

    @torch.no_grad()
    def trunk(self, images: Tensor | Trunk, layer: int | None = None, off: HeadSet = NOTHING_OFF) -> Trunk:
        """The activations as they enter `layer` (default: the first of the chosen), with heads off."""
        layer = self.first_prunable_layer if layer is None else layer
        with self._precision():
            return Trunk(self._tokens(images, layer, off), layer, marks(images))

    @torch.no_grad()
    def attention(self, images: Tensor | Trunk, layer: int, off: HeadSet = NOTHING_OFF) -> Tensor:
        """Attention [n, H, T] of one layer's heads, with heads below the layer off.

        That of the query that is read: the CLS token's or the pool's. Elsewhere the mean over all queries.
        """
        with self._precision():
            x = self._tokens(images, layer, off)
            return self.layers[layer].attention(x, self._readout.first).float()

    def with_values(self, images: Trunk, change: Callable[[int, Tensor], Tensor]) -> Tensor:
        """Unit embeddings [n, D] float32 with other values in place of what heads pass on; gradients flow.

        change: called for each layer from the trunk's on with the layer and its values [n, T, H d], the
        heads' outputs side by side before the output projection (in the last layer of the tokens that are
        read); what it returns is used instead.
        """
        x = images.tokens.to(self.device)
        with self._precision():
            for layer in range(images.layer, self.n_layers):
                x = self._finish_block(x, change(layer, self._values(x, layer)), layer)
            return F.normalize(self._readout.project(x).float(), dim=-1)

    @torch.no_grad()
    def prepare(self, batches: Iterable[Tensor]) -> None:
        """See images [n, 3, s, s] with nothing off: their heads' outputs can then take others' place.

        Of the chosen layers the mean over all is kept, and the whole of the first STAND_INS images.
        """
        sums: dict[int, Tensor] = {}
        kept: dict[int, list[Tensor]] = defaultdict(list)
        seen = 0
        for pixels in batches:
            x = self._tokens(pixels, self.first_prunable_layer)
            for layer in range(self.first_prunable_layer, self.n_layers):
                values = self._values(x, layer)
                x = self._finish_block(x, values, layer)
                if layer in self._chosen:
                    sums[layer] = sums.get(layer, 0) + values.double().mean(1).sum(0)
                    kept[layer].append(values[: max(0, STAND_INS - seen)].clone())
            seen += len(pixels)
        if not seen:
            raise InputError("At least one image is needed to take a head's place.")
        mean = {layer: (total / seen).float() for layer, total in sums.items()}
        self.stand_ins = StandIns(mean, {layer: torch.cat(parts) for layer, parts in kept.items()})

    def _embed(
        self, images: Tensor | Trunk, plans: Sequence[HeadSet], record: _Record | None = None
    ) -> tuple[Tensor, Tensor]:
        """The unit embeddings, and the length [plans, n] that each had before."""
        for plan in plans:
            self.require(plan)
        lowest = min((head for plan in plans for head in plan), default=Head(self.n_layers - 1, 0))
        layer = images.layer if isinstance(images, Trunk) else lowest.layer
        if lowest.layer < layer:
            raise InputError(f"{lowest} lies below layer {layer}, where this trunk ends.")
        out = torch.empty(len(plans), len(images), self.dim, device=self.device)
        if plans and len(images):
            x = self._tokens(images, layer, record=record)
            self._descend(x, layer, list(enumerate(plans)), out, record, self._others(images, plans))
        return F.normalize(out, dim=-1), out.norm(dim=-1)

    def _descend(
        self,
        x: Tensor,
        layer: int,
        plans: list[tuple[int, HeadSet]],
        out: Tensor,
        record: _Record | None,
        others: Tensor | None,
    ) -> None:
        """Write the embeddings of `plans`, which agree below `layer`, to their rows of `out`."""
        while layer < self.n_layers:
            # Up to its output projection a layer is the same for all plans that agree below it.
            values = self._values(x, layer, record)
            branches: dict[HeadSet, list[tuple[int, HeadSet]]] = defaultdict(list)
            for index, plan in plans:
                branches[plan.of_layer(layer)].append((index, plan))
            if len(branches) > 1:
                for off, members in branches.items():
                    after = self._finish_block(x, self._without(values, off, layer, others), layer)
                    self._descend(after, layer + 1, members, out, None if off else record, others)
                return
            off, plans = next(iter(branches.items()))
            x = self._finish_block(x, self._without(values, off, layer, others), layer)
            record = None if off else record
            layer += 1
        if record is not None and self._readout.pool is None:
            record.last.append(x)
        out[[index for index, _ in plans]] = self._readout.project(x).float()

    def _tokens(
        self,
        images: Tensor | Trunk,
        layer: int,
        off: HeadSet = NOTHING_OFF,
        record: _Record | None = None,
    ) -> Tensor:
        """Tokens [n, T, W] as they enter `layer`."""
        if isinstance(images, Trunk):
            x, first = images.tokens.to(self.device), images.layer
        else:
            # A convolution on a GPU would run in TF32, by default, and cost three digits.
            with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
                x, first = self._stem(images.to(self.device, torch.float32)).float(), 0
        others = self._others(images, [off])
        for below in range(first, layer):
            values = self._values(x, below, record)
            x = self._finish_block(x, self._without(values, off.of_layer(below), below, others), below)
        return x

    def _values(self, x: Tensor, layer: int, record: _Record | None = None) -> Tensor:
        """What the heads put out [n, T, H d]; of the first token only where no other is read any more."""
        alone = self._readout.first and layer == self._n_blocks - 1
        values = self.layers[layer].values(x, alone)
        if record is not None:
            pool = layer == self._n_blocks
            if pool:
                record.last.append(x)
            if layer in record.layers:
                coordinates = self.layers[layer].account(values)
                record.values[layer] = coordinates if pool else self._readout.gather(coordinates).clone()
        return values

    def _without(self, values: Tensor, off: HeadSet, layer: int, others: Tensor | None) -> Tensor:
        if not off:
            return values
        keep = torch.ones(self.layers[layer].n_heads, dtype=values.dtype, device=values.device)
        keep[list(off.in_layer(layer))] = 0
        keep = keep.repeat_interleave(self.layers[layer].head_dim)
        if off.ablation == "zero":
            return values * keep
        if self.stand_ins is None:
            raise InputError(
                f"Nothing is known to take the place of {off}; Model.prepare sees images for that."
            )
        return values * keep + self.stand_ins.of(layer, off.ablation, others, values) * (1 - keep)

    def _others(self, images: Tensor | Trunk, plans: Sequence[HeadSet]) -> Tensor | None:
        """For each image, which of the images seen stands in for it, if a plan asks for that: [n]."""
        asked = any(plan.ablation == "resample" for plan in plans)
        return self.stand_ins.pick(images) if asked and self.stand_ins else None

    def _finish_block(self, x: Tensor, values: Tensor, layer: int) -> Tensor:
        return self.layers[layer].finish(x, values)

    def _precision(self) -> contextlib.AbstractContextManager[object]:
        if self._autocast is None:
            return torch.autocast(self.device.type, enabled=False)
        return torch.autocast(self.device.type, self._autocast)

    # -- contributions ---------------------------------------------------------------------------------------

    @torch.no_grad()
    def embed_and_read(
        self, images: Tensor | Trunk, plans: Sequence[HeadSet] = (), heads: HeadSet | None = None
    ) -> tuple[Tensor, Readout]:
        """`embed`, and what reaches the embedding: one pass for both, or two under autocast.

        heads: those whose contributions will be asked for, all by default. The read-out is always float32.
        Needs at least one image.
        """
        layers = range(self.n_layers) if heads is None else {head.layer for head in heads}
        record = _Record(layers)
        with torch.autocast(self.device.type, enabled=False):
            if self._autocast is None:
                embedded, norms = self._embed(images, [*plans, NOTHING_OFF], record)
            else:
                unit, norms = self._embed(images, [NOTHING_OFF], record)
                embedded = torch.cat([self.embed(images, plans), unit])
            (x,) = record.last
            pool, pooled = self._readout.pool, self._readout.pool_route
            readout = Readout(
                values=record.values,
                tokens=self._readout.gather(x),
                route=self._readout.route(x) if self._n_blocks else None,
                pool_route=pooled(pool.finish(x, pool.values(x))) if pool and pooled else None,
                norm=norms[-1],
                unit=embedded[-1],
            )
        return embedded[:-1], readout

    @torch.no_grad()
    def basis(self, head: Head) -> Tensor:
        """The directions a head can write to in the embedding space: [r, D].

        A head's contribution to the unit embedding is `coordinates @ basis`, exactly: for each of the P
        channels of the read-out d directions for its values and one for its share of the output projection's
        bias (more in a block that norms what it writes), then its shares of what all parts have in common.
        Where the last norm sees one vector (P = 1) these are that norm's mean and bias, shared as in the
        reference study: over the 2 L + 1 terms of the residual stream and, within an attention layer's term,
        over its H heads; r is then d + 3. Where r would exceed D, the basis is that of the space itself.
        """
        basis = self._basis(head.layer)[head.head]
        return basis if len(basis) < self.dim else torch.eye(self.dim, device=basis.device)

    def rank(self, head: Head) -> int:
        """How many directions the head's values can reach: the head dimension for each channel, at most D."""
        way = self._way(head.layer)
        return min(way.channels * self.layers[head.layer].head_dim, self.dim)

    def _way(self, layer: int) -> Way:
        pool_way = self._readout.pool_way
        return self._readout.way if layer < self._n_blocks or pool_way is None else pool_way

    def _basis(self, layer: int) -> Tensor:
        """[H, r, D], as it is before it is exchanged for that of the space."""
        if layer in self._bases:  # two threads at once would compute the same tensor twice, no more
            return self._bases[layer]
        way = self._way(layer)
        with torch.autocast(self.device.type, enabled=False):
            own, extra = self.layers[layer].directions()
            n_heads, d, width = own.shape
            vectors = torch.cat([own.reshape(-1, width), extra]).expand(way.channels, -1, -1)
            written = way.last(way.each(vectors))  # [P, H d + e, D]
            split = written[:, : n_heads * d].reshape(-1, n_heads, d, self.dim).transpose(0, 1)
            others = written[:, n_heads * d :].expand(n_heads, -1, -1, -1)
            basis = torch.cat([split, others], 2).flatten(1, 2)
            if way.shared is not None:
                basis = torch.cat([basis, (way.shared() / n_heads).expand(n_heads, -1, -1)], 1)
        self._bases[layer] = basis
        return basis

    @torch.no_grad()
    def coordinates(self, readout: Readout, head: Head) -> Tensor:
        """Coordinates [n, r] of what the head contributes, in its `basis`."""
        layer = self.layers[head.layer]
        d, end = layer.head_dim, layer.head_dim * layer.n_heads
        route, values = self._route(readout, head.layer), readout.values[head.layer]
        own = torch.cat([values[..., head.head * d : (head.head + 1) * d], values[..., end:]], -1)
        found = torch.cat([(route.weights @ own).flatten(1), route.shared], -1) / readout.norm[:, None]
        basis = self._basis(head.layer)[head.head]
        return found if len(basis) < self.dim else found @ basis

    def _route(self, readout: Readout, layer: int) -> Route:
        route = readout.route if layer < self._n_blocks else readout.pool_route
        assert route is not None
        return route

    @torch.no_grad()
    def contributions(self, readout: Readout, heads: HeadSet | None = None) -> tuple[Tensor, Tensor]:
        """Direct effects [n, heads, D] of heads (default: all), and of all else [n, D].

        Together they are the unit embedding. What a pool's heads contribute contains what the blocks' heads
        passed through them, so where both are asked for, the rest takes that off once.
        """
        chosen = self.all_heads if heads is None else heads
        direct = readout.unit.new_empty(len(readout.unit), len(chosen), self.dim)
        route, norm = readout.route, readout.norm[:, None]
        others = None if route is None else (route.weights @ readout.tokens).transpose(0, 1)
        for layer in sorted({head.layer for head in chosen}):
            rows = [row for row, head in enumerate(chosen) if head.layer == layer]
            written = self._written(readout, layer, chosen.in_layer(layer))
            direct[:, rows] = self._way(layer).through(written)
            if (shared := self._way(layer).shared) is not None:
                common = self._route(readout, layer).shared @ shared() / self.layers[layer].n_heads
                direct[:, rows] += common[:, None]
            if layer < self._n_blocks and others is not None:
                others = others - written.sum(2)
        direct /= norm[..., None]
        if heads is not None:
            return direct, readout.unit - direct.sum(1)
        if route is None or others is None:
            assert readout.pool_route is not None
            return direct, readout.pool_route.constant / norm
        # Not the difference from the embedding: so that the sum of all parts can be checked against it.
        rest = (self._readout.way.through(others) + route.constant) / norm
        in_pool = [row for row, head in enumerate(chosen) if head.layer == self._n_blocks]
        return direct, rest - direct[:, in_pool].sum(1)

    def _written(self, readout: Readout, layer: int, heads: Sequence[int]) -> Tensor:
        """What some heads of a layer write to each channel's sum of tokens: [P, n, heads, W].

        Tokens are summed first, so that what follows is paid for once a channel and not once a token.
        """
        own, extra = self.layers[layer].directions()
        summed = (self._route(readout, layer).weights @ readout.values[layer]).transpose(0, 1)
        apart, further = summed.tensor_split([own[..., 0].numel()], -1)
        apart = by_head(apart, len(own))[:, :, list(heads)]
        return torch.einsum("pnhd,hdw->pnhw", apart, own[list(heads)]) + (further @ extra)[:, :, None]
