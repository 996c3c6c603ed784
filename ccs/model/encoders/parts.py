"""The layers of heads of every encoder, whatever its family.

They hold a model's modules and read the weights when they run, so a changed weight takes effect. Shapes: n
images, T tokens, W width, H heads of dimension d in a layer, D embedding dimension.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ccs.model.interception import head_dim, projection_name

Module = Any
Map = Callable[[Tensor], Tensor]
Affine = tuple[Tensor, Tensor | None]
"""Weight [out, in] and bias [out] of a linear map."""


class UnsupportedPart(Exception):
    """A part of an encoder isn't supported. The message, the end of a sentence, says which."""


def is_plain(module: Module | None) -> bool:
    """Return whether this is a module that does nothing."""
    return module is None or isinstance(module, nn.Identity)


def require_plain(owner: Module, reasons: Mapping[str, str]) -> None:
    """Raise UnsupportedPart if a module has a part that changes something.

    Args:
        owner: The module.
        reasons: Name of the part -> the reason, in words.
    """
    for name, words in reasons.items():
        if not is_plain(getattr(owner, name, None)):
            raise UnsupportedPart(words)


def heads_of(module: Module) -> dict[str, Any]:
    """Return the entries of a `Layer` for an attention module whose parts have usual names."""
    if any(hasattr(part, "base_layer") for part in module.modules()):
        raise UnsupportedPart("its attention has adapters, which must first be merged")
    sizes = {"n_heads": int(module.num_heads), "head_dim": head_dim(module)}
    return {"module": module, "projection": getattr(module, projection_name(module)), **sizes}


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer of heads. By itself it is a pool, the last layer, whose heads gather the tokens by one query.

    Attributes:
        module: The attention module.
        n_heads: The number of heads, H.
        head_dim: Their dimension, d.
        projections: Returns the projections to queries, keys, and values: three, or one that is all of them.
        projection: The linear module applied to the heads' outputs, side by side.
        norm: The norm before attention, none by default.
        scale: Returns the factor on the attention's output [W] (LayerScale), or None.
        inner: A norm on the heads' outputs.
        after: A norm on the projection's output, for blocks that norm there and not before.
        rotate: Rotary positions, applied to queries and keys [n, H, T, d].
        bias: For T tokens, a tensor [1, H or 1, T, T] that is added to the scores.
        query: For a pool, each head's query [n or 1, H, d] by the normed tokens, unscaled; no other is used.
    """

    module: Module
    n_heads: int
    head_dim: int
    projections: Callable[[], Sequence[Affine]]
    projection: Module
    norm: Map = lambda x: x
    scale: Callable[[], Tensor | None] = lambda: None
    inner: Module | None = None
    after: Module | None = None
    rotate: Map | None = None
    bias: Callable[[int], Tensor] | None = None
    query: Map | None = None

    def unprojected_outputs(self, x: Tensor, first: bool = False) -> Tensor:
        """Compute the heads' outputs before the output projection.

        Args:
            x: The tokens [n, T, W] that enter the layer.
            first: Compute those of the first token only.

        Returns:
            [n, T, H d], or [n, 1, H d] if `first` and of a pool.
        """
        sums = self._sums(x, first)
        return sums if self.inner is None else layer_norm(sums, self.inner)

    def _sums(self, x: Tensor, first: bool) -> Tensor:
        """Compute `unprojected_outputs` before the norm on them: attention's weighted sums of values."""
        normed = self.norm(x)
        if first or self.query is not None:
            return self.weighted_values(self._attention(normed), normed)
        q, k, v = self.queries_keys_values(normed)
        mask = None if self.bias is None else self.bias(x.shape[1])
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return out.transpose(1, 2).flatten(2)

    def weighted_values(self, attention: Tensor, normed: Tensor) -> Tensor:
        """Compute the heads' outputs [n, 1, H d] for one query: `sum a (V x) = V (sum a x)`.

        Attention sums to one, so the value bias is added once.

        Args:
            attention: Attention over tokens [n, H, T].
            normed: Normed tokens [n, T, W].
        """
        weight, bias = self.separate_projections()[2]
        gathered, rows = attention.to(normed.dtype) @ normed, torch.unflatten(weight, 0, (self.n_heads, -1))
        values = torch.einsum("nhw,hdw->nhd", gathered, rows).flatten(1)
        return (values if bias is None else values + bias)[:, None]

    def sources(self, x: Tensor, weights: Tensor, heads: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield, for some heads, how far tokens reach each of P sums [n, P, T], and their values [n, T, d].

        One head's attention over all pairs of tokens is held at a time.

        Args:
            x: The tokens [n, T, W] that enter the layer.
            weights: Weights of the tokens in the sums [n, P, T], or of the first token alone [n, P, 1].
            heads: The heads' numbers.
        """
        normed = self.norm(x)
        if weights.shape[-1] == 1:
            attention = self._attention(normed)
            v = self._heads(F.linear(normed, *self.separate_projections()[2]))
            yield from ((weights * attention[:, head, None], v[:, head]) for head in heads)
            return
        q, k, v = self.queries_keys_values(normed)
        bias = None if self.bias is None else self.bias(x.shape[1]).expand(-1, self.n_heads, -1, -1)
        for head in heads:
            scores = q[:, head] @ k[:, head].transpose(-1, -2) * self.head_dim**-0.5
            scores = scores if bias is None else scores + bias[:, head]
            yield weights @ torch.softmax(scores, dim=-1), v[:, head]

    def attention_weights(self, x: Tensor, first: bool = True) -> Tensor:
        """Compute attention [n, H, T] of the pool's or first token's query, or its mean over all queries.

        Args:
            x: The tokens [n, T, W] that enter the layer.
            first: Use the first token's query only.
        """
        if first or self.query is not None:
            return self._attention(self.norm(x))
        mean = x.new_full((1, 1, x.shape[1]), 1 / x.shape[1])
        return torch.cat([reach for reach, _ in self.sources(x, mean, range(self.n_heads))], dim=1)

    def _attention(self, x: Tensor) -> Tensor:
        """Compute attention [n, H, T] of the pool's or first token's query from normed tokens.

        The key projection moves to the query's side, `q . (K x) = (K' q) . x`, so no key is formed. A key
        bias adds the same to every score and drops out.
        """
        query, (w_k, b_k), _ = self.separate_projections()
        q = self.query(x) if self.query else self._heads(F.linear(x[:, :1], *query))[:, :, 0]
        q = q * self.head_dim**-0.5
        if self.rotate is None:
            key_side = torch.einsum("nhd,hdw->nhw", q, torch.unflatten(w_k, 0, (self.n_heads, -1)))
            scores = key_side @ x.transpose(1, 2)
        else:  # rotation is applied between query and key projection; the first token is not rotated
            k = self.rotate(self._heads(F.linear(x, w_k, b_k)))
            scores = (q[:, :, None] @ k.transpose(-1, -2))[:, :, 0]
        return torch.softmax(scores if self.bias is None else scores + self.bias(x.shape[1])[:, :, 0], dim=-1)

    def queries_keys_values(self, normed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the heads' queries, keys, and values [n, H, T, d] from normed tokens [n, T, W]."""
        parts = [F.linear(normed, *projection) for projection in self.projections()]
        q, k, v = map(self._heads, parts[0].chunk(3, -1) if len(parts) == 1 else parts)
        return (q, k, v) if self.rotate is None else (self.rotate(q), self.rotate(k), v)

    def _heads(self, x: Tensor) -> Tensor:
        return torch.unflatten(x, -1, (self.n_heads, -1)).transpose(1, 2)

    def separate_projections(self) -> Sequence[Affine]:
        """Return the projections to queries, keys, and values."""
        parts = self.projections()
        if len(parts) > 1:
            return parts
        weight, bias = parts[0]
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        return list(zip(weight.chunk(3), biases, strict=True))

    def normed(self, x: Tensor, first: bool, changed: Map) -> tuple[Tensor, Tensor, Tensor] | None:
        """Compute how the heads' sums z become coordinates of `account`: `gain z / std + offset`.

        Args:
            x: The tokens [n, T, W] that enter the layer.
            first: Compute it for the first token only.
            changed: Applies ablation to the heads' outputs [n, T, H d].

        Returns:
            gain [H d]; std [n, T, 1], held fixed; and offset [n, T, H d], the part that no token sent. None
            if the coordinates are z itself, since no norm follows.
        """
        if self.inner is None and self.after is None:
            return None
        z = values = self._sums(x, first)
        gain, std = torch.ones_like(z[0, 0]), torch.ones_like(z[..., :1])
        if self.inner is not None:
            gain, std, values = self.inner.weight, spread(z, self.inner)[1], layer_norm(z, self.inner)
        if self.after is not None:
            deviation = spread(self.apply_projection(changed(values)), self.after)[1]
            std, values = std * deviation, values / deviation
        return gain, std, values - gain * z / std

    def apply_projection(self, values: Tensor) -> Tensor:
        """Apply the output projection to the heads' outputs [n, T, H d]: [n, T, W]."""
        return F.linear(values, self.projection.weight, self.projection.bias)

    def finish(self, x: Tensor, values: Tensor) -> Tensor:
        """Compute the rest of the layer; of a pool, its output [n, 1, W].

        Args:
            x: The tokens [n, T, W] that enter the layer.
            values: The heads' outputs [n, T or 1, H d].

        Returns:
            The tokens after the layer, as many as in `values`.
        """
        return self.apply_projection(values)

    def account(self, values: Tensor) -> Tensor:
        """Return coordinates [n, T, H d + e], `values` and e more, in which the heads' output is linear."""
        ones = torch.ones_like(values[..., :1])
        if self.after is None:
            return torch.cat([values, ones], -1)
        mean, std = spread(self.apply_projection(values), self.after)
        return torch.cat([values / std, 1 / std, mean / std, ones], -1)

    def directions(self) -> tuple[Tensor, Tensor]:
        """Return the vectors of these coordinates: [H, d, W], and a head's share of the e others, [e, W]."""
        weight, bias = self.projection.weight, self.projection.bias
        extra = (weight.new_zeros(1, len(weight)) if bias is None else bias[None]) / self.n_heads
        vectors = weight.T
        if self.after is not None:
            gamma, beta = self.after.weight, self.after.bias / self.n_heads
            vectors = vectors * gamma
            extra = torch.stack([extra[0] * gamma, -gamma / self.n_heads, beta])
        if (scale := self.scale()) is not None:
            vectors, extra = vectors * scale, extra * scale
        return torch.unflatten(vectors, 0, (self.n_heads, -1)), extra


@dataclass(frozen=True, kw_only=True)
class Block(Layer):
    """A layer of a residual stream: `x + scale write(heads(norm x))`, then `x + mlp(x)`.

    Attributes:
        mlp: Everything that follows, from the stream to what is added to it.
    """

    mlp: Map

    def finish(self, x: Tensor, values: Tensor) -> Tensor:
        """Compute the rest of the layer, as in `Layer`.

        Args:
            x: As in `Layer.finish`.
            values: As in `Layer.finish`.
        """
        out = self.apply_projection(values)
        out = out if self.after is None else layer_norm(out, self.after)
        scale = self.scale()
        x = x[:, : values.shape[1]] + (out if scale is None else out * scale)
        return x + self.mlp(x)


def layer_norm(x: Tensor, norm: Module) -> Tensor:
    """Apply a LayerNorm by its weights.

    Args:
        x: [..., W].
        norm: The module.
    """
    return F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps).to(x.dtype)


def spread(x: Tensor, norm: Module) -> tuple[Tensor, Tensor]:
    """Compute the mean and standard deviation [..., 1] by which a norm normalizes tokens.

    Args:
        x: [..., W].
        norm: The module.
    """
    variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return mean, (variance + norm.eps).sqrt()


def centered(x: Tensor) -> Tensor:
    """Subtract the mean over the last axis."""
    return x - x.mean(-1, keepdim=True)
