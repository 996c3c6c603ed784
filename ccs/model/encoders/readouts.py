"""The parts of an encoder, and the read-outs that turn the tokens of the last block into the embedding.

Each read-out is linear in the tokens if the norms' means and deviations and the attention weights are held
fixed:

- `OneNorm` norms one token, or the mean of the patches. Each part's output is divided by the norm's
  deviation. The norm's mean and bias are shared as in the reference code (`Decomposition.basis`).
- `NormedMean` norms each token, then averages. Output at a token is divided by that token's deviation. Each
  part loses its mean, so nothing is left to share.
- `AttentionPool` norms tokens and gathers them by the pool's heads, with fixed weights. Then come each head's
  values and the output projection. The MLP after it, if any, belongs to no head.

All have the same members. `project` computes the embedding [n, D] before normalization. `pool_tokens`,
which is linear, selects the part of the coordinates [n, T, .] that `route` needs, [n, T', .]. `linear_path`
and `route` lead from the tokens of the last block [n, T, W], and `pool_path` and `pool_route` from the pool's
output [n, 1, W]. `first_only` is true if the last block is needed at its first token only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ccs.errors import InputError
from ccs.model.encoders import parts


@dataclass(frozen=True)
class LinearPath:
    """A linear path from tokens to the embedding: weighted sums of the tokens, each with its own map.

    Attributes:
        channels: The number of sums, P.
        final_map: The map after all channels, [..., W'] -> [..., D].
        channel_maps: The maps before it, [P, k, W] -> [P, k, W'].
        shared: Directions [s, D] in which all heads have an equal part (see `Decomposition.basis`).
    """

    channels: int
    final_map: parts.Map
    channel_maps: parts.Map = lambda vectors: vectors
    shared: Callable[[], Tensor] | None = None

    def through(self, vectors: Tensor) -> Tensor:
        """Map and sum the channels' vectors [P, ..., W]: [..., D]."""
        summed = self.channel_maps(vectors.flatten(1, -2)).sum(0)
        return self.final_map(summed).reshape(*vectors.shape[1:-1], -1)


@dataclass(frozen=True)
class Route:
    """The numbers of a `LinearPath` for one batch, with everything nonlinear held fixed.

    Attributes:
        weights: The weight of each token in each sum, [n, P, T'].
        shared: Coordinates along the shared directions, [n, s].
        constant: The part of the embedding that no token wrote, [n, D].
    """

    weights: Tensor
    shared: Tensor
    constant: Tensor


@dataclass(frozen=True)
class Linear:
    """The last linear map, `matrix` [W, D] and `bias` [D], or the identity if `matrix` returns None."""

    matrix: Callable[[], Tensor | None]
    bias: Callable[[], Tensor | None] = lambda: None

    def through(self, x: Tensor) -> Tensor:
        """Apply the map without its bias."""
        matrix = self.matrix()
        return x if matrix is None else x @ matrix

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the map with its bias."""
        out, bias = self.through(x), self.bias()
        return out if bias is None else out + bias

    def constant(self, like: Tensor) -> Tensor:
        """Return the bias, or zeros, for each of n rows [n, W]: [n, D]."""
        return self(torch.zeros_like(like))


@dataclass(frozen=True)
class OneNorm:
    """The first token, or the mean of all tokens after the prefix, then a norm, then a linear map."""

    norm: parts.Module
    linear: Linear
    layers: int
    prefix: int | None = None
    pool = pool_route = pool_path = None

    @property
    def first_only(self) -> bool:
        """Whether only the first token is read."""
        return self.prefix is None

    def pool_tokens(self, tokens: Tensor) -> Tensor:
        """Select or average the tokens that are read."""
        return tokens[:, :1] if self.prefix is None else tokens[:, self.prefix :].mean(1, keepdim=True)

    def project(self, x: Tensor) -> Tensor:
        """Map the tokens to the embedding [n, D]."""
        return self.linear(parts.layer_norm(self.pool_tokens(x)[:, 0], self.norm))

    @property
    def linear_path(self) -> LinearPath:
        """The linear path from the tokens to the embedding."""
        return LinearPath(1, self._final_map, shared=lambda: self._directions() / (2 * self.layers + 1))

    def route(self, x: Tensor, *_: Any) -> Route:
        """Hold everything nonlinear fixed for a batch."""
        mean, std = parts.spread(self.pool_tokens(x)[:, 0], self.norm)
        shared = torch.cat([mean / std, torch.ones_like(mean)], -1)
        others_share = (self.layers + 1) / (2 * self.layers + 1)
        constant = others_share * shared @ self._directions() + self.linear.constant(x[:, 0])
        return Route(1 / std[:, None], shared, constant)

    def _final_map(self, vectors: Tensor) -> Tensor:
        return self.linear.through(vectors * self.norm.weight)

    def _directions(self) -> Tensor:
        return self.linear.through(torch.stack([-self.norm.weight, self.norm.bias]))


@dataclass(frozen=True)
class NormedMean:
    """The mean of all normed tokens after the prefix, then a linear map."""

    norm: parts.Module
    linear: Linear
    prefix: int
    pool = pool_route = pool_path = None
    first_only = False

    def pool_tokens(self, tokens: Tensor) -> Tensor:
        """Select or average the tokens that are read."""
        return tokens[:, self.prefix :]

    def project(self, x: Tensor) -> Tensor:
        """Map the tokens to the embedding [n, D]."""
        return self.linear(parts.layer_norm(self.pool_tokens(x), self.norm).mean(1))

    @property
    def linear_path(self) -> LinearPath:
        """The linear path from the tokens to the embedding."""
        return LinearPath(1, lambda vectors: self.linear.through(parts.centered(vectors) * self.norm.weight))

    def route(self, x: Tensor, *_: Any) -> Route:
        """Hold everything nonlinear fixed for a batch."""
        std = parts.spread(self.pool_tokens(x), self.norm)[1]
        weights = (1 / std / std.shape[1]).transpose(1, 2)
        constant = self.linear(self.norm.bias.expand(len(x), -1))
        return Route(weights, constant[:, :0], constant)


@dataclass(frozen=True)
class AttentionPool:
    """A pool's heads, then an MLP (SigLIP, PE) or a norm (CoCa) or nothing (ResNet), then a linear map.

    Attributes:
        pool: The pool's heads.
        linear: The last linear map.
        before: The norm of the tokens.
        mlp: The MLP, from the pool's output to what is added to it.
        after: The norm after the pool.
    """

    pool: parts.Layer
    linear: Linear
    before: parts.Module = None
    mlp: parts.Map | None = None
    after: parts.Module | None = None
    first_only = False

    def pool_tokens(self, tokens: Tensor) -> Tensor:
        """Select or average the tokens that are read."""
        return tokens

    def project(self, x: Tensor) -> Tensor:
        """Map the tokens to the embedding [n, D]."""
        state = x[:, 0]
        if self.mlp is not None:
            state = state + self.mlp(state)
        return self.linear(state if self.after is None else parts.layer_norm(state, self.after))

    @property
    def linear_path(self) -> LinearPath:
        """The linear path from the tokens to the embedding."""
        return LinearPath(self.pool.n_heads, self._after, self._channel_maps)

    @property
    def pool_path(self) -> LinearPath:
        """The linear path from the pool's heads to the embedding."""
        return LinearPath(1, self._after)

    def pool_route(self, pooled: Tensor) -> Route:
        """Hold everything nonlinear after the pool fixed for a batch."""
        constant = self._constant(pooled)
        return Route(self._scale(pooled)[:, None], constant[:, :0], constant)

    def route(self, x: Tensor, pooled: Tensor, changed: parts.Map) -> Route:
        """Hold everything nonlinear fixed for a batch.

        Args:
            x: The tokens [n, T, W] that enter the pool.
            pooled: The pool's output [n, 1, W].
            changed: Applies ablation to the pool's heads' outputs [n, 1, H d].
        """
        scale = self._scale(pooled)
        weights = (
            self.pool.attention_weights(x) / parts.spread(x, self.before)[1].transpose(1, 2) * scale[:, None]
        )
        # `ablate_outputs` is affine in the values: a factor for each head, plus a mean where one is replaced.
        bias_values = F.linear(self.before.bias, *self.pool.separate_projections()[2])[None, None]
        ones, zeros = torch.ones_like(bias_values), torch.zeros_like(bias_values)
        factors = torch.unflatten(changed(ones) - changed(zeros), -1, (self.pool.n_heads, -1))[0, 0]
        if not torch.allclose(factors, factors[:, :1].expand_as(factors)):
            raise InputError("Contributions through edited heads of a pool are unknown: export the edit.")
        bias_output = self.pool.finish(x, changed(bias_values))[:, 0]
        constant = self._constant(pooled) + scale * self._after(bias_output)
        return Route(weights * factors[:, :1], constant[:, :0], constant)

    def _scale(self, state: Tensor) -> Tensor:
        """Return the inverse deviation of the norm after the pool: [n, 1]."""
        ones = torch.ones_like(state[:, 0, :1])
        return ones if self.after is None else ones / parts.spread(state, self.after)[1][:, 0]

    def _after(self, state: Tensor) -> Tensor:
        """Return the linear part of what follows the pool, without biases and without `_scale`."""
        return self.linear.through(state if self.after is None else parts.centered(state) * self.after.weight)

    def _channel_maps(self, vectors: Tensor) -> Tensor:
        pool, normed = self.pool, parts.centered(vectors) * self.before.weight
        weight = torch.unflatten(pool.separate_projections()[2][0], 0, (pool.n_heads, -1))
        projection = pool.projection.weight.T.unflatten(0, (pool.n_heads, -1))
        outputs: Tensor = normed @ weight.transpose(1, 2) @ projection
        return outputs

    def _constant(self, state: Tensor) -> Tensor:
        """Return the part that doesn't come from the pool's heads: the MLP, and biases."""
        constant = self.linear.constant(state[:, 0])
        if self.mlp is not None:
            constant = constant + self.linear.through(self.mlp(state[:, 0]))
        return constant if self.after is None else constant + self.linear.through(self.after.bias)


ReadOut = OneNorm | NormedMean | AttentionPool


@dataclass(frozen=True)
class Parts:
    """The parts of an encoder.

    Attributes:
        stem: Pixels [n, 3, s, s] -> tokens [n, T, W].
        blocks: The layers, in order.
        readout: The read-out.
        tokens: The number of tokens, T.
        prefix: The number of tokens before those of the patches.
        image_size: Height and width in pixels.
    """

    stem: parts.Map
    blocks: Sequence[parts.Block]
    readout: ReadOut
    tokens: int
    prefix: int
    image_size: tuple[int, int]

    @property
    def layers(self) -> list[parts.Layer]:
        """The blocks and, if attention pools the tokens, the pool."""
        return [*self.blocks, *([] if self.readout.pool is None else [self.readout.pool])]

    @property
    def width(self) -> int:
        """The width of the tokens, W."""
        return int(self.layers[0].separate_projections()[2][0].shape[1])

    @property
    def dim(self) -> int:
        """The dimension of the embedding, D."""
        matrix = self.readout.linear.matrix()
        return int((self.layers[-1].projection.weight.T if matrix is None else matrix).shape[1])
