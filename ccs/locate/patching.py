"""Activation patching to first order: what a lean or gap loses when a head sees somebody of another group.

Each person is paired with one of another group. In place of a forward pass for each head (`ablation`'s
`resample`), two approximations score all heads together. The gradient (attribution patching: Nanda 2023;
Syed et al. 2023, arXiv 2310.10348) takes one forward and one backward pass: the difference of both outputs
times the gradient of the statistic. Integrated gradients (EAP-IG: Hanna et al. 2024, arXiv 2403.17806) take
the mean of the gradients at inputs between both.

Gradient interaction modifications (GIM: Edin et al. 2025, arXiv 2505.17630) change the rules of the gradient.
A gradient says what a small change does, others held as they are. Where parts stand in for one another it
says that none of them matters: attention that is sharp has next to no slope, a norm takes back what one part
adds, and of two factors each gets the whole product. GIM changes three rules of the backward pass, and the
forward pass stays as it is. Softmax has the slope that it has at a temperature of 2. Norms are constants.
Where two tensors are multiplied, each gets half of the gradient, so that queries and keys get a quarter and
values a half. (The authors' code, github.com/corticph/gim, also halves both factors of a gated MLP; no tower
of the benchmark has one, and here they are left.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ccs.heads import Head
from ccs.locate.base import Evidence, Scores, pairs, values_of
from ccs.model.encoder import Trunk
from ccs.model.encoders.parts import Layer, Pool, weighted_values

STEPS = 5
"""Inputs on the way from the other person to the own one, as in EAP-IG."""


DIRECTIONS: Mapping[str, Callable[[Evidence], NDArray[np.float32]]] = {
    "signed lean": lambda evidence: evidence.toward,
    "logit gap": lambda evidence: evidence.apart,
}
"""What has a gradient: vectors [n, d] whose products with embeddings, summed, are the statistic. To first
order the lean is the signed lean; MaxSkew has none."""


def gradient(
    evidence: Evidence, statistic: str = "signed lean", steps: Sequence[float] = (1.0,), by_gim: bool = False
) -> Scores:
    """The statistic under `resample` to first order: one forward and one backward pass for all heads.

    steps: the own shares of the inputs over which the gradient is averaged. by_gim: by the rules of GIM.
    """
    model, lost = evidence.model, dict.fromkeys(evidence.model.heads, 0.0)
    along_which = DIRECTIONS[statistic](evidence)
    for own, other, rows in pairs(evidence):
        ours, theirs = values_of(model, own), values_of(model, other)
        for step in steps:
            tokens = own.tokens if step == 1 else torch.lerp(other.tokens, own.tokens, step)
            slopes = _slopes(evidence, Trunk(tokens, own.layer), along_which[rows], by_gim)
            for layer, slope in slopes.items():
                along = ((ours[layer] - theirs[layer]) * slope).sum(dim=(0, 1)) / len(steps)
                by_number = along.reshape(model.tower.layers[layer].n_heads, -1).sum(dim=1).tolist()
                for number, value in enumerate(by_number):
                    if (head := Head(layer, number)) in lost:
                        lost[head] += value
    return lost


integrated = partial(gradient, steps=[step / STEPS for step in range(1, STEPS + 1)])
modified = partial(gradient, by_gim=True)


def _slopes(
    evidence: Evidence, people: Trunk, toward: NDArray[np.float32], by_gim: bool
) -> dict[int, Tensor]:
    """Layer -> the gradient by the heads' outputs [n, T, H d] of what goes along `toward`."""
    kept: dict[int, Tensor] = {}

    def keep(layer: int, passed: Tensor) -> Tensor:
        kept[layer] = passed if passed.requires_grad else passed.requires_grad_()
        return kept[layer]

    rules = Modified() if by_gim else contextlib.nullcontext()
    with torch.enable_grad(), rules:
        embedded = evidence.model.tower.with_values(people, keep, values if by_gim else None)
        along = (embedded * torch.from_numpy(toward).to(embedded.device)).sum()
        return dict(zip(kept, torch.autograd.grad(along, list(kept.values())), strict=True))


# GIM --------------------------------------------------------------------------------------------------------

TEMPERATURE = 2.0
"""Of the softmax whose slope is used, as in the paper."""


def scaled(x: Tensor, factor: float) -> Tensor:
    """x, whose gradient is multiplied by a factor."""
    return x.detach() + factor * (x - x.detach())


def softened(scores: Tensor, dim: int = -1) -> Tensor:
    """Softmax with the gradient `s (g - sum(s g))`: s the softmax at TEMPERATURE, g the gradient above."""
    soft = TEMPERATURE * torch.softmax(scores / TEMPERATURE, dim)
    return _sloped(torch.softmax(scores.detach(), dim), soft)


def attended(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    """Attention [n, H, T, d], with TEMPERATURE's slope of the softmax and shared gradients; never [T, T]."""
    plain = F.scaled_dot_product_attention(q.detach(), k.detach(), scaled(v, 1 / 2), attn_mask=attn_mask)
    soft = F.scaled_dot_product_attention(
        scaled(q, 1 / 4) / TEMPERATURE,
        scaled(k, 1 / 4),
        v.detach(),
        attn_mask=None if attn_mask is None else attn_mask / TEMPERATURE,
    )
    return _sloped(plain, TEMPERATURE * soft)


def normed(
    x: Tensor,
    shape: Iterable[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """`F.layer_norm`, whose standard deviation is a constant."""
    dims = tuple(range(-len(tuple(shape)), 0))
    variance, mean = torch.var_mean(x, dim=dims, correction=0, keepdim=True)
    out = (x - mean) / (variance + eps).sqrt().detach()
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def _sloped(value: Tensor, slope: Tensor) -> Tensor:
    """The value, with the gradients of both."""
    return value + (slope - slope.detach())


_INSTEAD: Mapping[Callable[..., Any], Callable[..., Tensor]] = {
    F.layer_norm: normed,
    F.scaled_dot_product_attention: attended,
    torch.softmax: softened,
}


class Modified(TorchFunctionMode):
    """While it is entered, PyTorch's attention, softmax and norms have these gradients (in this thread)."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        instead: Callable[..., Any] = _INSTEAD.get(func, func)
        return instead(*args, **(kwargs or {}))


def values(layer: Layer, x: Tensor) -> Tensor:
    """The heads' outputs [n, T, H d] by way of queries, keys and values, also where one token is read."""
    if isinstance(layer, Pool):
        attention = layer.attention(scaled(x, 1 / 4))
        return weighted_values(attention, scaled(layer.norm(x), 1 / 2), layer.value())
    return layer.values(x)
