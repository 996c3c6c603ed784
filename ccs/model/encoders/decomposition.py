"""The embedding as a sum of the heads' direct effects and a remainder.

Shapes: n images, T tokens, W width, L layers, H heads of dimension d in a layer, D embedding dimension.
"""

import contextlib
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from ccs.heads import Head, HeadSet, changes
from ccs.model.encoders.parts import Layer
from ccs.model.encoders.readouts import Parts, Route
from ccs.model.interception import changed_values, site_of

_TF32 = threading.RLock()


@dataclass(frozen=True)
class Readout:
    """Activations behind the embedding of each image, in float32.

    Attributes:
        values: Layer -> coordinates of its heads' outputs at the tokens that are read, [n, T', H d + e] (see
            `Layer.account`).
        tokens: These tokens after the last block, [n, T', W].
        routes: The way from each layer's output to the embedding: from these tokens or, for a pool, from the
            output of its heads.
        norm: The length of the embedding before normalization, [n].
        unit: The unit embedding, [n, D].
        entering: Layer -> the tokens that enter it, [n, T, W], if requested.
    """

    values: Mapping[int, Tensor]
    tokens: Tensor
    routes: Sequence[Route]
    norm: Tensor
    unit: Tensor
    entering: Mapping[int, Tensor] = field(default_factory=dict)


@dataclass
class Record:
    """Collects activations during a pass.

    Attributes:
        layers: The layers whose coordinates are collected.
        entering: Layer -> the tokens that enter it; None to leave them out.
        values: Layer -> the coordinates of its heads' outputs.
        last: The tokens after the last block.
        pooled: The output of the pool's heads, [n, 1, W], if there is a pool.
    """

    layers: Collection[int]
    entering: dict[int, Tensor] | None = None
    values: dict[int, Tensor] = field(default_factory=dict)
    last: Tensor = field(default_factory=Tensor)
    pooled: Tensor = field(default_factory=Tensor)


class Decomposition:
    """Layers of heads and a read-out: the directions that each head writes to, and how far, for a `Readout`.

    The layers are the blocks and, if attention pools the tokens, the pool.

    Attributes:
        letter: The encoder's letter in the names of its heads.
        layers: The layers.
        n_layers: Their number.
        dim: The dimension of the embedding.
    """

    def __init__(self, parts: Parts, letter: str) -> None:
        self.letter, self._readout, self._n_blocks = letter, parts.readout, len(parts.blocks)
        self.layers: Sequence[Layer] = parts.layers
        pool_path = parts.readout.pool_path
        self._paths = [parts.readout.linear_path] * self._n_blocks + ([pool_path] if pool_path else [])
        self._ablated = HeadSet()
        self.n_layers = len(self.layers)
        self.dim = parts.dim

    @property
    def all_heads(self) -> HeadSet:
        """The heads of every layer."""
        return HeadSet(
            Head(number, head, self.letter)
            for number, layer in enumerate(self.layers)
            for head in range(layer.n_heads)
        )

    @torch.no_grad()
    def basis(self, head: Head) -> Tensor:
        """Return the directions that a head can write to in the embedding space, [r, D].

        A head's contribution to the unit embedding is exactly `coordinates @ basis`. Each of the P channels
        of the read-out has d directions for the head's values and one for its share of the output
        projection's bias (more in a block that norms its output). Then come the head's shares of the
        directions that all parts have in common. If the last norm sees one vector (P = 1), these are its mean
        and bias, shared as in the reference code: over the 2 L + 1 terms of the residual stream and, within
        an attention layer's term, over its H heads. Then r is d + 3. If r would exceed D, the basis is that
        of the whole space.
        """
        basis, path = self.directions(head.layer, [head.head]).flatten(0, 2), self._paths[head.layer]
        if path.shared is not None:
            with autocast(basis.device.type, None):
                basis = torch.cat([basis, path.shared() / self.layers[head.layer].n_heads])
        return basis if len(basis) < self.dim else torch.eye(self.dim, device=basis.device)

    @torch.no_grad()
    def directions(self, layer: int, heads: Sequence[int]) -> Tensor:
        """Return what each coordinate of some heads adds to the embedding, [heads, P, d + e, D] in float32.

        Args:
            layer: The layer.
            heads: The numbers of its heads.
        """
        path = self._paths[layer]
        vectors, extra = self.layers[layer].directions()
        with autocast(vectors.device.type, None):
            vectors = vectors[list(heads)]
            vectors = torch.cat([vectors, extra.expand(len(heads), -1, -1)], 1)  # [heads, d + e, W]
            flat = vectors.flatten(0, 1).expand(path.channels, -1, -1)
            written = path.final_map(path.channel_maps(flat))  # [P, heads (d + e), D]
        return written.reshape(path.channels, *vectors.shape[:2], self.dim).transpose(0, 1)

    def rank(self, head: Head) -> int:
        """Return the number of directions that the head's values can reach: d per channel, at most D."""
        return min(self._paths[head.layer].channels * self.layers[head.layer].head_dim, self.dim)

    @torch.no_grad()
    def coordinates(self, readout: Readout, head: Head) -> Tensor:
        """Compute the coordinates [n, r] of a head's contribution in its `basis`.

        Args:
            readout: The activations of n images.
            head: The head.
        """
        layer = self.layers[head.layer]
        d, end = layer.head_dim, layer.head_dim * layer.n_heads
        route, values = readout.routes[head.layer], readout.values[head.layer]
        head_values = torch.cat([values[..., head.head * d : (head.head + 1) * d], values[..., end:]], -1)
        coordinates = torch.cat([(route.weights @ head_values).flatten(1), route.shared], -1)
        if coordinates.shape[1] < self.dim:
            return coordinates / readout.norm[:, None]
        return self.contributions(readout, HeadSet([head]))[0][:, 0]

    @torch.no_grad()
    def contributions(self, readout: Readout, heads: HeadSet | None = None) -> tuple[Tensor, Tensor]:
        """Compute direct effects of heads and the remainder, which sum to the unit embedding.

        The contribution of a pool's head includes the outputs of the blocks' heads that it passes on. If both
        are requested, the remainder subtracts these once.

        Args:
            readout: The activations of n images.
            heads: The heads, by default all.

        Returns:
            [n, heads, D] and [n, D].
        """
        chosen = self.all_heads if heads is None else heads
        direct = readout.unit.new_empty(len(readout.unit), len(chosen), self.dim)
        routes, norm, others = readout.routes, readout.norm[:, None], None
        if self._n_blocks:
            others = (routes[0].weights @ readout.tokens).transpose(0, 1)
        for layer in chosen.layers:
            rows = [row for row, head in enumerate(chosen) if head.layer == layer]
            written = self._written(readout, layer, chosen.in_layer(layer))
            direct[:, rows] = self._paths[layer].through(written)
            if (shared := self._paths[layer].shared) is not None:
                common = routes[layer].shared @ shared() / self.layers[layer].n_heads
                direct[:, rows] += common[:, None]
            if layer < self._n_blocks and others is not None:
                others = others - written.sum(2)
        direct /= norm[..., None]
        if heads is not None:
            return direct, readout.unit - direct.sum(1)
        if others is None:
            return direct, routes[-1].constant / norm
        # Not the difference from the embedding, so that the sum of all parts can be checked against it.
        remainder = (self._paths[0].through(others) + routes[0].constant) / norm
        in_pool = [row for row, head in enumerate(chosen) if head.layer == self._n_blocks]
        return direct, remainder - direct[:, in_pool].sum(1)

    @torch.no_grad()
    def by_token(self, readout: Readout, heads: HeadSet, along: Tensor) -> Iterator[Tensor]:
        """Compute what each token that enters a layer sends to the embedding through its heads.

        Summed over tokens this is `contributions(...) @ along.T`. Attention and norms are held fixed. Parts
        that no token sent (the output projection's bias, a head's share of the last norm's mean and bias, an
        inner norm's offset, what an edit adds) are spread evenly over the T tokens.

        Args:
            readout: The activations of n images, with the tokens `entering` the layer.
            heads: Heads of one layer.
            along: Vectors of the embedding space along which it is measured, [E, D].

        Yields:
            [n, E, T] for each head.
        """
        (layer,) = heads.layers
        part, x, route = self.layers[layer], readout.entering[layer], readout.routes[layer]
        channels, size = self._paths[layer].channels, part.n_heads * part.head_dim
        alone = layer >= self._n_blocks or self._readout.first_only
        weights = route.weights
        if not alone:  # from the tokens that are read to all tokens
            weights = weights @ self._readout.pool_tokens(torch.eye(x.shape[1], device=x.device)[None])
        fixed, gain = readout.values[layer].clone(), None
        fixed[..., :size] = 0
        if (normed := part.normed(x, alone, partial(self.ablate_outputs, layer=layer))) is not None:
            gain, std, offset = normed
            weights = weights / std.transpose(1, 2)
            fixed[..., :size] = self._readout.pool_tokens(offset)
        numbers, d = heads.in_layer(layer), part.head_dim
        passed = {number: self.passed_on(Head(layer, number, self.letter)).to(x) for number in numbers}
        for number, rows in passed.items():
            columns = slice(number * d, number * d + d)
            fixed[..., columns] = fixed[..., columns] @ rows[:-1] + fixed[..., size : size + 1] * rows[-1]
        nothing_sent, _ = self.contributions(replace(readout, values={layer: fixed}), heads)
        constants = (nothing_sent @ along.T / x.shape[1]).unbind(1)
        directions = self.directions(layer, numbers)[:, :, :d]
        sources = zip(numbers, directions, part.sources(x, weights, numbers), constants, strict=True)
        for head, vectors, (reach, values), constant in sources:
            vectors = passed[head][:-1] @ vectors
            if gain is not None:
                vectors = vectors * gain[head * d : (head + 1) * d, None]
            parts = values @ (vectors @ along.T).permute(1, 0, 2).flatten(1)  # [n, T, P E]
            parts = parts.reshape(*x.shape[:2], channels, -1) * reach.transpose(1, 2)[..., None]
            sent = parts.sum(2).transpose(1, 2)  # [n, E, T]
            yield sent / readout.norm[:, None, None] + constant[..., None]

    def ablate_outputs(self, values: Tensor, layer: int) -> Tensor:
        """Apply `ablated` and the open blocks of `ccs.ablate` to the outputs of heads.

        Args:
            values: The outputs of a layer's heads, [n, T, H d].
            layer: The layer.
        """
        values = changed_values(values, self._ablated.of_layer(layer), self.layers[layer].n_heads)
        site = site_of(self.layers[layer].module)
        return values if site is None else site.change_outputs(values)

    def passed_on(self, head: Head) -> Tensor:
        """Return rows [d + 1, d]: ablation makes `o @ rows[:d] + rows[d]` of an output; 0 for a mean."""
        rows = torch.eye(self.layers[head.layer].head_dim + 1)[:, :-1]
        site = site_of(self.layers[head.layer].module)
        for heads in (self._ablated, *(ablation.heads for ablation in getattr(site, "ablations", ()))):
            if (change := dict(changes(heads)).get(head)) and change.attribute:
                edit = torch.as_tensor(heads.mean_output(head)).cpu()
                rows = rows @ edit[:-1]
                rows[-1] += edit[-1]
            elif change:
                rows = rows * change.factor
        return rows

    def _routes(self, x: Tensor, pooled: Tensor) -> list[Route]:
        """Return each layer's route, from the last tokens [n, T, W] and the output of the pool [n, 1, W]."""
        changed, readout = partial(self.ablate_outputs, layer=self._n_blocks), self._readout
        routes = [readout.route(x, pooled, changed)] * self._n_blocks if self._n_blocks else []
        return routes + ([readout.pool_route(pooled)] if readout.pool_route else [])

    def _written(self, readout: Readout, layer: int, heads: Sequence[int]) -> Tensor:
        """Return sums [P, n, heads, W], one per channel, of some heads' outputs to the tokens.

        Tokens are summed first, so that the projection is computed once per channel, not once per token.
        """
        directions, extra = self.layers[layer].directions()
        summed = (readout.routes[layer].weights @ readout.values[layer]).transpose(0, 1)
        apart, further = summed.tensor_split([directions[..., 0].numel()], -1)
        apart = torch.unflatten(apart, -1, (len(directions), -1))[:, :, list(heads)]
        return torch.einsum("pnhd,hdw->pnhw", apart, directions[list(heads)]) + (further @ extra)[:, :, None]


def autocast(device: str, kind: torch.dtype | None) -> contextlib.AbstractContextManager[object]:
    """Return a context of autocast, or of float32 even inside an autocast.

    Args:
        device: The type of the device.
        kind: The type to compute in; None for float32.
    """
    if not torch.amp.is_autocast_available(device):  # meta, which computes nothing
        return contextlib.nullcontext()
    return torch.autocast(device, enabled=False) if kind is None else torch.autocast(device, kind)


@contextlib.contextmanager
def without_tf32() -> Iterator[None]:
    """Run convolutions in full float32: by default a GPU runs them in TF32, which loses three digits.

    The setting is the process's, so threads take turns. Work on a GPU is only started here, not waited for.
    """
    with _TF32, torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield
