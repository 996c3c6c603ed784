"""Gradient interaction modifications (GIM: Edin et al. 2025, arXiv 2505.17630), and integrated gradients.

Both are variants of `ccs.analysis.carriers.gradient`. Integrated gradients (EAP-IG: Hanna et al. 2024, arXiv
2403.17806) average the gradients at inputs between a person's and the counterpart's.

A gradient is the effect of a small change of one part with the others fixed. It misses parts that substitute
for each other: sharp attention has almost no slope, a norm cancels what a part adds, and each of two factors
gets the credit for their whole product. GIM changes three rules of the backward pass; the forward pass is
unchanged. The softmax has its slope at a temperature of 2. Norms are constants. If two tensors are
multiplied, each gets half of the gradient, so queries and keys get a quarter, and values half. (The authors'
code, github.com/corticph/gim, also halves both factors of a gated MLP. No encoder of the benchmark has one,
so we don't.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ccs.analysis.carriers import Directions, gradient
from ccs.analysis.evidence import Evidence, Scores
from ccs.model.encoders.parts import Block, Layer

STEPS = 5
"""Number of inputs between the counterpart's and the person's, as in EAP-IG."""


def _logit_gap(evidence: Evidence) -> NDArray[np.float32]:
    """Return vectors [n, d] whose products with embeddings sum to the mean gap of two groups.

    They are each prompt's highest and lowest group by mean cosine, and stay so for other embeddings.
    """
    scores = evidence.task.group_scores(evidence.seen[0])
    rows, ends = np.arange(len(scores)), np.zeros_like(scores)
    ends[rows, scores.argmax(1)] += 1 / len(scores)
    ends[rows, scores.argmin(1)] -= 1 / len(scores)
    return evidence.task.along(ends)


DIRECTIONS: Mapping[str, Directions] = {
    "signed score gap": lambda evidence: evidence.toward,
    "logit gap": _logit_gap,
}
"""Statistics with a gradient. To first order, the score gap equals the signed score gap. MaxSkew has none."""


def plain(evidence: Evidence, statistic: str = "signed score gap", **options: Any) -> Scores:
    """Score heads by the gradient of a statistic.

    Args:
        evidence: The half that the method sees.
        statistic: A name in DIRECTIONS.
        **options: Options of `ccs.analysis.carriers.gradient`.
    """
    return gradient(evidence, DIRECTIONS[statistic], **options)


integrated = partial(plain, steps=[step / STEPS for step in range(1, STEPS + 1)])


def modified(evidence: Evidence, statistic: str = "signed score gap") -> Scores:
    """Score heads by GIM.

    Args:
        evidence: The half that the method sees.
        statistic: A name in DIRECTIONS.
    """
    return plain(evidence, statistic, rules=Modified, values=values)


# GIM --------------------------------------------------------------------------------------------------------

TEMPERATURE = 2.0
"""Temperature of the softmax whose slope is used, as in the source."""


def scaled(x: Tensor, factor: float) -> Tensor:
    """Return a tensor whose gradient is multiplied by a factor.

    Args:
        x: The tensor.
        factor: Factor of its gradient.
    """
    return x.detach() + factor * (x - x.detach())


def softened(scores: Tensor, dim: int = -1) -> Tensor:
    """Compute a softmax with the gradient `s (g - sum(s g))`, where s is the softmax at TEMPERATURE.

    Args:
        scores: Scores of any shape.
        dim: Dimension that sums to 1.
    """
    soft = TEMPERATURE * torch.softmax(scores / TEMPERATURE, dim)
    return _sloped(torch.softmax(scores.detach(), dim), soft)


def attended(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    """Compute attention with TEMPERATURE's slope of the softmax and shared gradients; [T, T] is never stored.

    Args:
        q: Queries [n, H, T, d].
        k: Keys [n, H, T, d].
        v: Values [n, H, T, d].
        attn_mask: Mask that is added to the scores.
    """
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
    """Compute `F.layer_norm` with a standard deviation that has no gradient.

    Args:
        x: Inputs of any shape.
        shape: Shape of the last dimensions, which are normalized together.
        weight: Gain. By default 1.
        bias: Bias that is added at the end. By default 0.
        eps: Number that is added to the variance.
    """
    dims = tuple(range(-len(tuple(shape)), 0))
    variance, mean = torch.var_mean(x, dim=dims, correction=0, keepdim=True)
    out = (x - mean) / (variance + eps).sqrt().detach()
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def _sloped(value: Tensor, slope: Tensor) -> Tensor:
    """Return the value, with the gradients of both."""
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
    """Compute the heads' outputs by way of queries, keys, and values, also if one token is read.

    Args:
        layer: Attention of a block, or a pool.
        x: Inputs of the layer [n, T, W].

    Returns:
        The outputs [n, T, H d].
    """
    if not isinstance(layer, Block):  # a pool
        attention = layer.attention_weights(scaled(x, 1 / 4))
        return layer.weighted_values(attention, scaled(layer.norm(x), 1 / 2))
    return layer.unprojected_outputs(x)
