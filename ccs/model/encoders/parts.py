"""The layers of heads of every image encoder, whatever its family.

They hold a model's modules and read their weights when they run, so a changed weight takes effect. Shapes: n
images, T tokens, W width, H heads of dimension d in a layer, D embedding dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Module = Any
Map = Callable[[Tensor], Tensor]
Affine = tuple[Tensor, Tensor | None]
"""Weight [out, in] and bias [out] of a linear map."""


class Unknown(Exception):
    """A part of an encoder is not supported; the message, the end of a sentence, says which."""


@dataclass(frozen=True)
class Attention:
    """Self-attention of a layer. projections: of queries, keys and values, three or fused into one.

    inner: a norm on the heads' outputs. rotate: rotary positions, applied to queries and keys [n, H, T, d].
    bias: for T tokens, [1, H or 1, T, T], added to the scores.
    """

    n_heads: int
    head_dim: int
    projections: Callable[[], Sequence[Affine]]
    inner: Module | None = None
    rotate: Map | None = None
    bias: Callable[[int], Tensor] | None = None

    def values(self, x: Tensor, first: bool) -> Tensor:
        """The heads' outputs from normed tokens: [n, T, H d], or of the first token only [n, 1, H d]."""
        sums = self.sums(x, first)
        return sums if self.inner is None else layer_norm(sums, self.inner)

    def sums(self, x: Tensor, first: bool) -> Tensor:
        """`values` before the norm on them: attention's weighted sums of values."""
        if first:
            return weighted_values(self.attention(x, first), x, self._apart()[2])
        q, k, v = self._qkv(x)
        mask = None if self.bias is None else self.bias(x.shape[1])
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return out.transpose(1, 2).flatten(2)

    def sources(self, x: Tensor, weights: Tensor, heads: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        """For some heads in turn: how far tokens reach each of P sums, [n, P, T], and their values [n, T, d].

        weights: [n, P, T], of the tokens in the sums, or [n, P, 1] of the first token alone. One head's
        attention over all pairs of tokens is held at a time.
        """
        if weights.shape[-1] == 1:
            attention, v = self.attention(x, True), self._heads(F.linear(x, *self._apart()[2]))
            yield from ((weights * attention[:, head, None], v[:, head]) for head in heads)
            return
        q, k, v = self._qkv(x)
        bias = None if self.bias is None else self.bias(x.shape[1]).expand(-1, self.n_heads, -1, -1)
        for head in heads:
            scores = q[:, head] @ k[:, head].transpose(-1, -2) * self.head_dim**-0.5
            scores = scores if bias is None else scores + bias[:, head]
            yield weights @ torch.softmax(scores, dim=-1), v[:, head]

    def attention(self, x: Tensor, first: bool) -> Tensor:
        """Attention [n, H, T] of the first token's query, or the mean over all queries."""
        if not first:
            q, k, _ = self._qkv(x)
            scores = q @ k.transpose(-1, -2) * self.head_dim**-0.5
            scores = scores if self.bias is None else scores + self.bias(x.shape[1])
            return torch.softmax(scores, dim=-1).mean(-2)
        (w_q, b_q), (w_k, b_k), _ = self._apart()
        q = by_head(F.linear(x[:, 0], w_q, b_q), self.n_heads) * self.head_dim**-0.5
        if self.rotate is None:
            scores = scores_of(q, x, w_k)
        else:  # rotation is applied between query and key projection; the first token is not rotated
            k = self.rotate(self._heads(F.linear(x, w_k, b_k)))
            scores = (q[:, :, None] @ k.transpose(-1, -2))[:, :, 0]
        return torch.softmax(scores if self.bias is None else scores + self.bias(x.shape[1])[:, :, 0], dim=-1)

    def _qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        parts = [F.linear(x, *one) for one in self.projections()]
        q, k, v = map(self._heads, parts[0].chunk(3, -1) if len(parts) == 1 else parts)
        return (q, k, v) if self.rotate is None else (self.rotate(q), self.rotate(k), v)

    def _heads(self, x: Tensor) -> Tensor:
        return by_head(x, self.n_heads).transpose(1, 2)

    def _apart(self) -> Sequence[Affine]:
        parts = self.projections()
        if len(parts) > 1:
            return parts
        weight, bias = parts[0]
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        return list(zip(weight.chunk(3), biases, strict=True))


def scores_of(q: Tensor, x: Tensor, w_k: Tensor) -> Tensor:
    """Scores [n, H, T] of one query [n or 1, H, d] over tokens.

    The key projection moves to the query's side, `q . (K x) = (K' q) . x`, so no key is ever formed; a key
    bias adds the same to every score and drops out.
    """
    key_side = torch.einsum("nhd,hdw->nhw", q, rows_by_head(w_k, q.shape[1]))
    return key_side @ x.transpose(1, 2)


def weighted_values(attention: Tensor, x: Tensor, value: Affine) -> Tensor:
    """Values [n, 1, H d] for attention [n, H, T] over tokens: `sum a (V x) = V (sum a x)`.

    Attention sums to one, so the value bias is added once.
    """
    weight, bias = value
    heads = attention.shape[1]
    values = torch.einsum("nhw,hdw->nhd", attention.to(x.dtype) @ x, rows_by_head(weight, heads))
    flat = values.flatten(1)[:, None]
    return flat if bias is None else flat + bias


@dataclass(frozen=True)
class Block:
    """A layer of a residual stream: `x + scale write(heads(norm x))`, then `x + mlp(x)`.

    module: the attention module. projection: the linear module applied to the heads' outputs, side by side.
    after: a norm on its output, for blocks that norm there and not before. mlp: everything that follows, from
    the stream to what is added to it.
    """

    module: Module
    heads: Attention
    norm: Map
    projection: Module
    mlp: Map
    scale: Callable[[], Tensor | None]
    after: Module | None = None

    @property
    def n_heads(self) -> int:
        return self.heads.n_heads

    @property
    def head_dim(self) -> int:
        return self.heads.head_dim

    def values(self, x: Tensor, first: bool = False) -> Tensor:
        """The heads' outputs [n, T, H d] before the output projection, or the first token's [n, 1, H d]."""
        return self.heads.values(self.norm(x), first)

    def attention(self, x: Tensor, first: bool) -> Tensor:
        """Attention [n, H, T] of the first token's query, or the mean over all queries."""
        return self.heads.attention(self.norm(x), first)

    def sources(self, x: Tensor, weights: Tensor, heads: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        """See `Attention.sources`."""
        return self.heads.sources(self.norm(x), weights, heads)

    def normed(self, x: Tensor, first: bool, changed: Map) -> tuple[Tensor, Tensor, Tensor] | None:
        """How the heads' sums z become the first H d coordinates of `account`: `gain z / std + offset`.

        changed: what is done to some heads' outputs [n, T, H d], which a norm on what they write sees. gain:
        [H d]. std: [n, T, 1], held fixed. offset: [n, T, H d], what no token sent. None for `z` itself, where
        nothing norms what the heads gather or write.
        """
        inner = self.heads.inner
        if inner is None and self.after is None:
            return None
        z = values = self.heads.sums(self.norm(x), first)
        gain, std = torch.ones_like(z[0, 0]), torch.ones_like(z[..., :1])
        if inner is not None:
            gain, std, values = inner.weight, spread(z, inner)[1], layer_norm(z, inner)
        if self.after is not None:
            written = F.linear(changed(values), self.projection.weight, self.projection.bias)
            deviation = spread(written, self.after)[1]
            std, values = std * deviation, values / deviation
        return gain, std, values - gain * z / std

    def finish(self, x: Tensor, values: Tensor) -> Tensor:
        """The rest of the layer, from its input and its heads' values."""
        x = x[:, : values.shape[1]] + self.write(values)
        return x + self.mlp(x)

    def write(self, values: Tensor) -> Tensor:
        out = F.linear(values, self.projection.weight, self.projection.bias)
        out = out if self.after is None else layer_norm(out, self.after)
        scale = self.scale()
        return out if scale is None else out * scale

    def account(self, values: Tensor) -> Tensor:
        """Coordinates [n, T, H d + e], `values` and e more, in which what the heads write is linear."""
        ones = torch.ones_like(values[..., :1])
        if self.after is None:
            return torch.cat([values, ones], -1)
        mean, std = spread(F.linear(values, self.projection.weight, self.projection.bias), self.after)
        return torch.cat([values / std, 1 / std, mean / std, ones], -1)

    def directions(self) -> tuple[Tensor, Tensor]:
        """The vectors these coordinates stand for: [H, d, W], and a head's share of the e others, [e, W]."""
        weight, bias = self.projection.weight, self.projection.bias
        extra = (weight.new_zeros(1, len(weight)) if bias is None else bias[None]) / self.n_heads
        own = weight.T
        if self.after is not None:
            gamma, beta = self.after.weight, self.after.bias / self.n_heads
            own = own * gamma
            extra = torch.stack([extra[0] * gamma, -gamma / self.n_heads, beta])
        if (scale := self.scale()) is not None:
            own, extra = own * scale, extra * scale
        return rows_by_head(own, self.n_heads), extra


@dataclass(frozen=True)
class Pool:
    """A last layer of heads, which gather the tokens. Its methods are those of `Block`.

    module: the attention module. query: each head's one query, unscaled [n or 1, H, d].
    """

    module: Module
    n_heads: int
    head_dim: int
    norm: Map
    query: Map
    key: Callable[[], Affine]
    value: Callable[[], Affine]
    projection: Module

    def values(self, x: Tensor, first: bool = False) -> Tensor:
        return weighted_values(self.attention(x), self.norm(x), self.value())

    def sources(self, x: Tensor, weights: Tensor, heads: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        attention, v = self.attention(x), by_head(F.linear(self.norm(x), *self.value()), self.n_heads)
        for head in heads:
            yield weights * attention[:, head, None], v[:, :, head]

    def normed(self, x: Tensor, first: bool, changed: Map) -> None:
        return None

    def attention(self, x: Tensor, first: bool = True) -> Tensor:
        x = self.norm(x)
        return torch.softmax(scores_of(self.query(x) * self.head_dim**-0.5, x, self.key()[0]), dim=-1)

    def finish(self, x: Tensor, values: Tensor) -> Tensor:
        return F.linear(values, self.projection.weight, self.projection.bias)

    def account(self, values: Tensor) -> Tensor:
        return torch.cat([values, torch.ones_like(values[..., :1])], -1)

    def directions(self) -> tuple[Tensor, Tensor]:
        weight, bias = self.projection.weight, self.projection.bias
        return rows_by_head(weight.T, self.n_heads), bias[None] / self.n_heads


Layer = Block | Pool


def by_head(x: Tensor, n_heads: int) -> Tensor:
    """The last axis as heads: [..., H d] -> [..., H, d]."""
    return x.reshape(*x.shape[:-1], n_heads, -1)


def rows_by_head(x: Tensor, n_heads: int) -> Tensor:
    """The first axis as heads: [H d, W] -> [H, d, W]."""
    return x.reshape(n_heads, -1, x.shape[-1])


def layer_norm(x: Tensor, norm: Module) -> Tensor:
    return F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps).to(x.dtype)


def spread(x: Tensor, norm: Module) -> tuple[Tensor, Tensor]:
    """The mean and standard deviation [..., 1] by which the norm normalizes x."""
    variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return mean, (variance + norm.eps).sqrt()


def centered(x: Tensor) -> Tensor:
    return x - x.mean(-1, keepdim=True)
