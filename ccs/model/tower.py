"""The forward pass of a CLIP image tower with heads switched off; plans share the work they have in common.

It is written out over the parts of a tower (`ccs.model.towers`), without hooks and without changing a weight,
so any number of threads may run different plans on one tower. A head is switched off by setting its output to
zero before the output projection, and later layers react to that. Only the parts know the tower's family.

Shapes: n images, T tokens, W width, L layers, H heads of dimension d in a layer, D embedding dimension.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from ccs.errors import InputError
from ccs.heads import Head, HeadSet
from ccs.model.towers.decomposition import Decomposition, Readout
from ccs.model.towers.families import take_apart
from ccs.model.towers.standins import STAND_INS, StandIns, Trunk, marks

__all__ = ["ImageTower", "Trunk"]

NOTHING_OFF = HeadSet()
ChosenLayers = Collection[int] | Literal["all"]


class ImageTower(Decomposition):
    """The image tower of one model. `visual` is open_clip's module; its weights are read, never written.

    autocast: the type (bfloat16, float16) in which `embed` and `trunk` run; contributions are always float32.
    chosen: the layers whose heads are scored, "all" or some of their numbers; by default the last four blocks
    and the pool. Raises InputError, with the reason, for a tower that cannot be taken apart by head, and for
    a layer that does not exist.
    """

    def __init__(
        self, visual: Any, autocast: torch.dtype | None = None, chosen: ChosenLayers | None = None
    ) -> None:
        parts = take_apart(visual)
        super().__init__(parts)
        self.visual = visual
        self.autocast = autocast
        self._stem = parts.stem
        self.n_heads = max(layer.n_heads for layer in self.layers)
        self.head_dim = max(layer.head_dim for layer in self.layers)
        self.width = parts.width
        self.n_tokens, self.prefix = parts.tokens, parts.prefix
        self.image_size = parts.image_size
        if chosen is None or chosen == "all":
            chosen = range(0 if chosen else max(0, self._n_blocks - 4), self.n_layers)
        if not chosen or not set(chosen) <= set(range(self.n_layers)):
            asked = ", ".join(map(str, chosen)) or "none"
            raise InputError(f"The layers are {asked}, but must be some of 0 to {self.n_layers - 1}, or all.")
        self._chosen = frozenset(chosen)
        self.first_prunable_layer = min(self._chosen)
        self.stand_ins: StandIns | None = None

    @property
    def heads(self) -> HeadSet:
        """The heads of the chosen layers, by default those of the last four blocks and the pool."""
        return HeadSet(head for head in self.all_heads if head.layer in self._chosen)

    @property
    def device(self) -> torch.device:
        return torch.device(next(self.visual.parameters()).device)

    def require(self, heads: HeadSet) -> None:
        """Raise InputError if a head is not in this tower (in any layer)."""
        for head in heads:
            if head.layer >= self.n_layers or head.head >= self.layers[head.layer].n_heads:
                raise InputError(f"{head} is outside this model, which has {self._span()}.")

    def _span(self) -> str:
        """The heads of the tower, in words."""
        last, pool = self._n_blocks - 1, self._readout.pool
        inside = f"layers L0 to L{last} with heads H0 to H{self.layers[0].n_heads - 1}" if last >= 0 else ""
        gathers = "" if pool is None else f"layer L{last + 1}, its pool, with heads H0 to H{pool.n_heads - 1}"
        return " and ".join(filter(None, [inside, gathers]))

    @torch.no_grad()
    def embed(self, images: Tensor | Trunk, plans: Sequence[HeadSet] = (NOTHING_OFF,)) -> Tensor:
        """Unit embeddings [plans, n, D] float32, each plan with its heads off.

        images: pixels [n, 3, s, s], or a trunk, in which case no plan may touch a layer below the trunk's.
        Plans form a tree and share one pass up to the layer in which they differ; memory is that of one path.
        """
        for plan in plans:
            self.require(plan)
        lowest = min((head for plan in plans for head in plan), default=Head(self.n_layers - 1, 0))
        layer = images.layer if isinstance(images, Trunk) else lowest.layer
        if lowest.layer < layer:
            raise InputError(f"{lowest} lies below layer {layer}, where this trunk ends.")
        out = torch.empty(len(plans), len(images), self.dim, device=self.device)
        with self._precision():
            if plans and len(images):
                x, others = self._tokens(images, layer), self._others(images, plans)
                self._descend(x, layer, list(enumerate(plans)), out, others)
            return F.normalize(out, dim=-1)

    @torch.no_grad()
    def trunk(self, images: Tensor | Trunk, layer: int | None = None) -> Trunk:
        """The activations as they enter `layer` (default: the first of the chosen layers)."""
        layer = self.first_prunable_layer if layer is None else layer
        with self._precision():
            return Trunk(self._tokens(images, layer), layer, marks(images))

    @torch.no_grad()
    def attention(self, images: Tensor | Trunk, layer: int, off: HeadSet = NOTHING_OFF) -> Tensor:
        """Attention [n, H, T] of one layer's heads, with heads of lower layers off.

        It is that of the query which is read out, the CLS token's or the pool's; otherwise the mean over all
        queries.
        """
        with self._precision():
            x = self._tokens(images, layer, off)
            return self.layers[layer].attention(x, self._readout.first).float()

    @torch.no_grad()
    def read(self, images: Tensor | Trunk, heads: HeadSet | None = None) -> Readout:
        """The `Readout` of images, at least one, always in float32.

        heads: those whose contributions will be asked for, all by default.
        """
        layers = range(self.n_layers) if heads is None else {head.layer for head in heads}
        values: dict[int, Tensor] = {}
        gather, pooled = self._readout.gather, self._readout.pool_route
        with torch.autocast(self.device.type, enabled=False):
            x, first = self._start(images)
            before = x
            for layer in range(first, self.n_layers):
                outputs = self._values(x, layer)
                if layer in layers:
                    coordinates = self.layers[layer].account(outputs)
                    values[layer] = coordinates if layer == self._n_blocks else gather(coordinates).clone()
                before, x = x, self.layers[layer].finish(x, outputs)
            tokens = x if pooled is None else before
            out = self._readout.project(x).float()
            return Readout(
                values=values,
                tokens=gather(tokens),
                route=self._readout.route(tokens) if self._n_blocks else None,
                pool_route=None if pooled is None else pooled(x),
                norm=out.norm(dim=-1),
                unit=F.normalize(out, dim=-1),
            )

    def with_values(self, images: Trunk, change: Callable[[int, Tensor], Tensor]) -> Tensor:
        """Unit embeddings [n, D] float32 with the heads' outputs replaced; gradients flow.

        change: called for each layer, from the trunk's on, with its number and its values [n, T, H d], the
        heads' outputs side by side before the output projection (in the last layer only of the tokens that
        are read); it returns the values to use instead.
        """
        x = images.tokens.to(self.device)
        with self._precision():
            for layer in range(images.layer, self.n_layers):
                x = self.layers[layer].finish(x, change(layer, self._values(x, layer)))
            return F.normalize(self._readout.project(x).float(), dim=-1)

    @torch.no_grad()
    def prepare(self, batches: Iterable[Tensor]) -> None:
        """Record heads' outputs for images [n, 3, s, s], so that they can replace those of other images.

        For the chosen layers the mean over all images is kept, and the outputs of the first STAND_INS images.
        """
        sums: dict[int, Tensor] = {}
        kept: dict[int, list[Tensor]] = defaultdict(list)
        seen = 0
        for pixels in batches:
            x = self._tokens(pixels, self.first_prunable_layer)
            for layer in range(self.first_prunable_layer, self.n_layers):
                values = self._values(x, layer)
                x = self.layers[layer].finish(x, values)
                if layer in self._chosen:
                    sums[layer] = sums.get(layer, 0) + values.double().mean(1).sum(0)
                    kept[layer].append(values[: max(0, STAND_INS - seen)].clone())
            seen += len(pixels)
        if not seen:
            raise InputError("At least one image is needed to record the heads' outputs.")
        mean = {layer: (total / seen).float() for layer, total in sums.items()}
        self.stand_ins = StandIns(mean, {layer: torch.cat(parts) for layer, parts in kept.items()})

    def _descend(
        self,
        x: Tensor,
        layer: int,
        plans: list[tuple[int, HeadSet]],
        out: Tensor,
        others: Tensor | None,
    ) -> None:
        """Write the embeddings of `plans`, which agree below `layer`, to their rows of `out`."""
        if layer == self.n_layers:
            out[[index for index, _ in plans]] = self._readout.project(x).float()
            return
        # Up to the output projection a layer is the same for all plans that agree below it.
        values = self._values(x, layer)
        branches: dict[HeadSet, list[tuple[int, HeadSet]]] = defaultdict(list)
        for index, plan in plans:
            branches[plan.of_layer(layer)].append((index, plan))
        for off, members in branches.items():
            after = self.layers[layer].finish(x, self._without(values, off, layer, others))
            self._descend(after, layer + 1, members, out, others)

    def _start(self, images: Tensor | Trunk) -> tuple[Tensor, int]:
        """Tokens [n, T, W], and the layer that they enter."""
        if isinstance(images, Trunk):
            return images.tokens.to(self.device), images.layer
        # By default a convolution on a GPU would run in TF32 and lose three digits.
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            return self._stem(images.to(self.device, torch.float32)).float(), 0

    def _tokens(self, images: Tensor | Trunk, layer: int, off: HeadSet = NOTHING_OFF) -> Tensor:
        """Tokens [n, T, W] as they enter `layer`."""
        x, first = self._start(images)
        others = self._others(images, [off])
        for below in range(first, layer):
            values = self._without(self._values(x, below), off.of_layer(below), below, others)
            x = self.layers[below].finish(x, values)
        return x

    def _values(self, x: Tensor, layer: int) -> Tensor:
        """The heads' outputs [n, T, H d]; only those of the first token where no other is read any more."""
        return self.layers[layer].values(x, self._readout.first and layer == self._n_blocks - 1)

    def _without(self, values: Tensor, off: HeadSet, layer: int, others: Tensor | None) -> Tensor:
        if not off:
            return values
        keep = torch.ones(self.layers[layer].n_heads, dtype=values.dtype, device=values.device)
        keep[list(off.in_layer(layer))] = 0
        keep = keep.repeat_interleave(self.layers[layer].head_dim)
        if off.ablation == "zero":
            return values * keep
        if self.stand_ins is None:
            raise InputError(f"No outputs that could replace those of {off} are recorded; see Model.prepare.")
        return values * keep + self.stand_ins.of(layer, off.ablation, others, values) * (1 - keep)

    def _others(self, images: Tensor | Trunk, plans: Sequence[HeadSet]) -> Tensor | None:
        """The recorded image that stands in for each image [n], if a plan asks for that."""
        asked = any(plan.ablation == "resample" for plan in plans)
        return self.stand_ins.pick(images) if asked and self.stand_ins else None

    def _precision(self) -> contextlib.AbstractContextManager[object]:
        return torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None)
