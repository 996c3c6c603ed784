"""An encoder's parts, and its read-out: the way in which the tokens of the last block become the embedding.

Each is linear in the tokens once the norms' means and deviations and the weights of attention are held fixed:

- `OneNorm`: one token, or the mean of the patches, is normed. What each part writes is divided by that norm's
  deviation; the norm's mean and bias are shared out as in the reference study (Decomposition.basis).
- `NormedMean`: tokens are normed one by one, then averaged. What is written to a token is divided by that
  token's deviation. Each part loses its own mean, so nothing is left to share out.
- `AttentionPool`: normed tokens are gathered by the pool's own heads, with weights that are held fixed, and
  pass each head's values and the output projection. The MLP after it, if any, belongs to no head.

`project` gives the embedding [n, D], before normalization, from tokens or from what the pool gathered, and
`gather`, which is linear, the part of each token's coordinates [n, T, .] that `route` needs, [n, T', .].
`way` and `route` lead from the last block's tokens [n, T, W], `pool_way` and `pool_route` from what the pool
has gathered, [n, 1, W]. `first` says whether the last block is needed at its first token only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ccs.model.encoders.parts import (
    Block,
    Layer,
    Map,
    Module,
    Pool,
    centered,
    layer_norm,
    rows_by_head,
    spread,
)


@dataclass(frozen=True)
class Way:
    """A linear way from tokens to the embedding: `channels` sums of them, each through a map of its own.

    last: the map that all channels end in, [..., W'] -> [..., D]. each: the maps before it, [P, k, W] -> [P,
    k, W']. shared: directions [s, D] in which every head has an equal part (see Decomposition.basis).
    """

    channels: int
    last: Map
    each: Map = lambda vectors: vectors
    shared: Callable[[], Tensor] | None = None

    def through(self, vectors: Tensor) -> Tensor:
        """The channels' vectors [P, ..., W] mapped and summed: [..., D]."""
        summed = self.each(vectors.flatten(1, -2)).sum(0)
        return self.last(summed).reshape(*vectors.shape[1:-1], -1)


@dataclass(frozen=True)
class Route:
    """A `Way` for one batch, with everything that is not linear held fixed.

    weights: [n, P, T'], of the tokens in each sum. shared: [n, s], coordinates along the shared directions.
    constant: [n, D], the part that no token wrote.
    """

    weights: Tensor
    shared: Tensor
    constant: Tensor


@dataclass(frozen=True)
class Linear:
    """The last linear map; the identity where `matrix` gives None. matrix: [W, D]."""

    matrix: Callable[[], Tensor | None]
    bias: Callable[[], Tensor | None] = lambda: None

    def through(self, x: Tensor) -> Tensor:
        """The map without its bias."""
        matrix = self.matrix()
        return x if matrix is None else x @ matrix

    def __call__(self, x: Tensor) -> Tensor:
        out, bias = self.through(x), self.bias()
        return out if bias is None else out + bias

    def dim(self, width: int) -> int:
        """The embedding dimension D."""
        matrix = self.matrix()
        return width if matrix is None else int(matrix.shape[1])

    def constant(self, like: Tensor) -> Tensor:
        """The bias, or zeros, for each of n rows [n, W]: [n, D]."""
        return self(torch.zeros_like(like))


@dataclass(frozen=True)
class OneNorm:
    """The first token, or the mean of all after the prefix, then a norm, then a linear map."""

    norm: Module
    linear: Linear
    layers: int
    prefix: int | None = None
    pool = None
    pool_route = None
    pool_way = None

    @property
    def first(self) -> bool:
        return self.prefix is None

    def gather(self, tokens: Tensor) -> Tensor:
        return tokens[:, :1] if self.prefix is None else tokens[:, self.prefix :].mean(1, keepdim=True)

    def project(self, x: Tensor) -> Tensor:
        return self.linear(layer_norm(self.gather(x)[:, 0], self.norm))

    @property
    def way(self) -> Way:
        return Way(1, self._last, shared=lambda: self._directions() / (2 * self.layers + 1))

    def route(self, x: Tensor) -> Route:
        mean, std = spread(self.gather(x)[:, 0], self.norm)
        shared = torch.cat([mean / std, torch.ones_like(mean)], -1)
        rest = (self.layers + 1) / (2 * self.layers + 1) * shared @ self._directions()
        return Route(1 / std[:, None], shared, rest + self.linear.constant(x[:, 0]))

    def _last(self, vectors: Tensor) -> Tensor:
        return self.linear.through(vectors * self.norm.weight)

    def _directions(self) -> Tensor:
        return self.linear.through(torch.stack([-self.norm.weight, self.norm.bias]))


@dataclass(frozen=True)
class NormedMean:
    """The mean of all normed tokens after the prefix, then a linear map."""

    norm: Module
    linear: Linear
    prefix: int
    pool = None
    pool_route = None
    pool_way = None
    first = False

    def gather(self, tokens: Tensor) -> Tensor:
        return tokens[:, self.prefix :]

    def project(self, x: Tensor) -> Tensor:
        return self.linear(layer_norm(self.gather(x), self.norm).mean(1))

    @property
    def way(self) -> Way:
        return Way(1, lambda vectors: self.linear.through(centered(vectors) * self.norm.weight))

    def route(self, x: Tensor) -> Route:
        std = spread(self.gather(x), self.norm)[1]
        weights = (1 / std / std.shape[1]).transpose(1, 2)
        constant = self.linear(self.norm.bias.expand(len(x), -1))
        return Route(weights, constant[:, :0], constant)


@dataclass(frozen=True)
class AttentionPool:
    """A pool's heads, then an MLP (SigLIP, PE) or a norm (CoCa) or nothing (ResNet), then a linear map.

    before: the norm of the tokens. mlp: from what the pool gathered to what is added to it. after: the norm.
    """

    pool: Pool
    linear: Linear
    before: Module | None = None
    mlp: Map | None = None
    after: Module | None = None
    first = False

    def gather(self, tokens: Tensor) -> Tensor:
        return tokens

    def project(self, x: Tensor) -> Tensor:
        state = x[:, 0]
        if self.mlp is not None:
            state = state + self.mlp(state)
        return self.linear(state if self.after is None else layer_norm(state, self.after))

    @property
    def way(self) -> Way:
        return Way(self.pool.n_heads, self._after, self._each)

    @property
    def pool_way(self) -> Way:
        return Way(1, self._after)

    def pool_route(self, x: Tensor) -> Route:
        constant = self._constant(x)
        return Route(self._scale(x)[:, None], constant[:, :0], constant)

    def route(self, x: Tensor) -> Route:
        assert self.before is not None
        attention, state = self.pool.attention(x), self.pool.finish(x, self.pool.values(x))
        scale = self._scale(state)
        weights = attention / spread(x, self.before)[1].transpose(1, 2) * scale[:, None]
        projection = self.pool.projection
        passed = F.linear(F.linear(self.before.bias, *self.pool.value()), projection.weight, projection.bias)
        constant = self._constant(state) + scale * self._after(passed)
        return Route(weights, constant[:, :0], constant)

    def _scale(self, state: Tensor) -> Tensor:
        """The inverse deviation of the norm after the pool: [n, 1]."""
        return (
            torch.ones_like(state[:, 0, :1]) if self.after is None else 1 / spread(state, self.after)[1][:, 0]
        )

    def _after(self, state: Tensor) -> Tensor:
        """The linear part of what follows the pool, without biases and without `_scale`."""
        return self.linear.through(state if self.after is None else centered(state) * self.after.weight)

    def _each(self, vectors: Tensor) -> Tensor:
        assert self.before is not None
        pool, normed = self.pool, centered(vectors) * self.before.weight
        weight = rows_by_head(pool.value()[0], pool.n_heads)
        own = rows_by_head(pool.projection.weight.T, pool.n_heads)
        passed: Tensor = normed @ weight.transpose(1, 2) @ own
        return passed

    def _constant(self, state: Tensor) -> Tensor:
        """The part that does not depend on what the pool's heads wrote: the MLP, and biases."""
        constant = self.linear.constant(state[:, 0])
        if self.mlp is not None:
            constant = constant + self.linear.through(self.mlp(state[:, 0]))
        return constant if self.after is None else constant + self.linear.through(self.after.bias)


ReadOut = OneNorm | NormedMean | AttentionPool


@dataclass(frozen=True)
class Parts:
    """An encoder.

    stem: pixels [n, 3, s, s] -> tokens [n, T, W]. prefix: the number of tokens before those of the patches.
    """

    stem: Map
    blocks: Sequence[Block]
    readout: ReadOut
    width: int
    dim: int
    tokens: int
    prefix: int
    image_size: tuple[int, int]

    @property
    def layers(self) -> list[Layer]:
        """The blocks and, where attention pools the tokens, the pool."""
        return [*self.blocks, *([] if self.readout.pool is None else [self.readout.pool])]
