"""The embedding as a sum of what the heads contribute and the rest (direct effects).

Shapes: n images, T tokens, W width, L layers, H heads of dimension d in a layer, D embedding dimension.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from ccs.heads import IMAGE, Head, HeadSet
from ccs.model.encoders.parts import Layer, by_head
from ccs.model.encoders.readouts import Parts, Route, Way

_TF32 = threading.RLock()


@dataclass(frozen=True)
class Readout:
    """Activations behind the embedding of each image with no head off, in float32.

    values: layer -> [n, T', H d + e], coordinates of what its heads write (see `Layer.account`) at the tokens
    that are read. tokens: [n, T', W], these tokens after the last block. route, pool_route: how they, and
    what the pool's heads gather, become the embedding. norm: [n], its length before it is made a unit vector.
    unit: [n, D], the unit embedding. entering: layer -> [n, T, W], the tokens that enter it, where asked for.
    """

    values: Mapping[int, Tensor]
    tokens: Tensor
    route: Route | None
    pool_route: Route | None
    norm: Tensor
    unit: Tensor
    entering: Mapping[int, Tensor] = field(default_factory=dict)


@dataclass
class Record:
    """Collects the coordinates of `layers`, the tokens that enter them unless `entering` is None, and the
    tokens after the last block while no head is off.
    """

    layers: Collection[int]
    entering: dict[int, Tensor] | None = None
    values: dict[int, Tensor] = field(default_factory=dict)
    last: list[Tensor] = field(default_factory=list)


class Decomposition:
    """Layers of heads and a read-out: which directions each head writes to, and how far, for a `Readout`.

    The layers are the blocks and, where attention pools the tokens, one more: the pool's. `letter` is that of
    the encoder in the names of its heads.
    """

    letter = IMAGE

    def __init__(self, parts: Parts) -> None:
        self._readout, self._n_blocks = parts.readout, len(parts.blocks)
        self.layers: Sequence[Layer] = parts.layers
        self.n_layers = len(self.layers)
        self.dim = parts.dim
        self._bases: dict[int, Tensor] = {}

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
        """The directions a head can write to in the embedding space: [r, D].

        A head's contribution to the unit embedding is exactly `coordinates @ basis`. Each of the P channels
        of the read-out has d directions for the head's values and one for its share of the output
        projection's bias (more in a block that norms what it writes); then come the head's shares of what all
        parts have in common. Where the last norm sees one vector (P = 1) these are that norm's mean and bias,
        shared as in the reference study: over the 2 L + 1 terms of the residual stream and, within an
        attention layer's term, over its H heads; r is then d + 3. Where r would exceed D, the basis is that
        of the whole space.
        """
        basis = self._basis(head.layer)[head.head]
        return basis if len(basis) < self.dim else torch.eye(self.dim, device=basis.device)

    def rank(self, head: Head) -> int:
        """The number of directions the head's values can reach: d for each channel, at most D."""
        return min(self._way(head.layer).channels * self.layers[head.layer].head_dim, self.dim)

    @torch.no_grad()
    def coordinates(self, readout: Readout, head: Head) -> Tensor:
        """Coordinates [n, r] of the head's contribution in its `basis`."""
        layer = self.layers[head.layer]
        d, end = layer.head_dim, layer.head_dim * layer.n_heads
        route, values = self._route(readout, head.layer), readout.values[head.layer]
        own = torch.cat([values[..., head.head * d : (head.head + 1) * d], values[..., end:]], -1)
        found = torch.cat([(route.weights @ own).flatten(1), route.shared], -1) / readout.norm[:, None]
        basis = self._basis(head.layer)[head.head]
        return found if len(basis) < self.dim else found @ basis

    @torch.no_grad()
    def contributions(self, readout: Readout, heads: HeadSet | None = None) -> tuple[Tensor, Tensor]:
        """Direct effects [n, heads, D] of heads (default: all), and the remainder [n, D].

        Together they are the unit embedding. The contribution of a pool's head includes what the blocks'
        heads passed through it; where both are asked for, the remainder subtracts that once.
        """
        chosen = self.all_heads if heads is None else heads
        direct = readout.unit.new_empty(len(readout.unit), len(chosen), self.dim)
        route, norm = readout.route, readout.norm[:, None]
        others = None if route is None else (route.weights @ readout.tokens).transpose(0, 1)
        for layer in chosen.layers:
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
        # Not the difference from the embedding, so that the sum of all parts can be checked against it.
        rest = (self._readout.way.through(others) + route.constant) / norm
        in_pool = [row for row, head in enumerate(chosen) if head.layer == self._n_blocks]
        return direct, rest - direct[:, in_pool].sum(1)

    @torch.no_grad()
    def by_token(self, readout: Readout, heads: HeadSet, along: Tensor) -> Iterator[Tensor]:
        """What each token that enters a layer sends to the embedding: [n, E, T] for its heads in turn.

        along: [E, D], the vectors of the embedding space along which it is measured. Summed over tokens this
        is `contributions(...) @ along.T`. Attention and norms are held fixed; what no token sent (the output
        projection's bias, a head's share of the last norm's mean and bias, an inner norm's offset) is spread
        evenly over the T tokens. The readout must have what is `entering` the layer.
        """
        (layer,) = heads.layers
        part, x, route = self.layers[layer], readout.entering[layer], self._route(readout, layer)
        channels, size = self._way(layer).channels, part.n_heads * part.head_dim
        alone = layer >= self._n_blocks or self._readout.first
        weights = route.weights
        if not alone:  # from those that are read to all tokens
            weights = weights @ self._readout.gather(torch.eye(x.shape[1], device=x.device)[None])
        fixed, gain = readout.values[layer].clone(), None
        fixed[..., :size] = 0
        if (normed := part.normed(x, alone, partial(self.changed, layer=layer))) is not None:
            gain, std, offset = normed
            weights = weights / std.transpose(1, 2)
            fixed[..., :size] = self._readout.gather(offset)
        nothing_sent, _ = self.contributions(replace(readout, values={layer: fixed}), heads)
        constants = (nothing_sent @ along.T / x.shape[1]).unbind(1)
        own, d = self._basis(layer), part.head_dim
        each = d + fixed.shape[-1] - size  # of a channel: the head's d directions, then e others
        numbers = heads.in_layer(layer)
        sources = zip(numbers, part.sources(x, weights, numbers), constants, strict=True)
        for head, (reach, values), constant in sources:
            inside = own[head][: channels * each].reshape(channels, each, self.dim)[:, :d]  # [P, d, D]
            if gain is not None:
                inside = inside * gain[head * d : (head + 1) * d, None]
            said = values @ (inside @ along.T).permute(1, 0, 2).flatten(1)  # [n, T, P E]
            said = said.reshape(*x.shape[:2], channels, -1) * reach.transpose(1, 2)[..., None]  # [n, T, P, E]
            sent = said.sum(2).transpose(1, 2)  # [n, E, T]
            yield sent / readout.norm[:, None, None] + constant[..., None]

    def changed(self, values: Tensor, layer: int) -> Tensor:
        """The outputs [n, T, H d] of a layer's heads with what is done to some of them: here nothing."""
        return values

    def _way(self, layer: int) -> Way:
        pool_way = self._readout.pool_way
        return self._readout.way if layer < self._n_blocks or pool_way is None else pool_way

    def _route(self, readout: Readout, layer: int) -> Route:
        route = readout.route if layer < self._n_blocks else readout.pool_route
        assert route is not None
        return route

    def _basis(self, layer: int) -> Tensor:
        """[H, r, D], also where r exceeds D."""
        if layer in self._bases:  # at worst two threads compute the same tensor twice
            return self._bases[layer]
        way = self._way(layer)
        own, extra = self.layers[layer].directions()
        with autocast(own.device.type, None):
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

    def _written(self, readout: Readout, layer: int, heads: Sequence[int]) -> Tensor:
        """Sums [P, n, heads, W], one per channel, of what some heads of a layer write to the tokens.

        Tokens are summed first, so that the projection is computed once per channel, not once per token.
        """
        own, extra = self.layers[layer].directions()
        summed = (self._route(readout, layer).weights @ readout.values[layer]).transpose(0, 1)
        apart, further = summed.tensor_split([own[..., 0].numel()], -1)
        apart = by_head(apart, len(own))[:, :, list(heads)]
        return torch.einsum("pnhd,hdw->pnhw", apart, own[list(heads)]) + (further @ extra)[:, :, None]


def autocast(device: str, kind: torch.dtype | None) -> contextlib.AbstractContextManager[object]:
    """Autocast to `kind` on devices of this type, or float32 where it is None, even inside an autocast."""
    if not torch.amp.is_autocast_available(device):  # meta, which computes nothing
        return contextlib.nullcontext()
    return torch.autocast(device, enabled=False) if kind is None else torch.autocast(device, kind)


@contextlib.contextmanager
def without_tf32() -> Iterator[None]:
    """Convolutions in full float32: by default a GPU runs them in TF32, which loses three digits.

    The setting is the process's, so threads take turns. Work on a GPU is only started here, not waited for.
    """
    with _TF32, torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield
