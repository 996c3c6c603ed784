"""Two different things that are both called a head's effect, and how they compare.

Total effect: the head's output is zero in the forward pass (soft-pruning), and later layers see it and react.
Direct effect: the head's own contribution is subtracted from the finished image embedding, which is then made
unit again; later layers react to nothing (Gandelsman et al. 2024). Name which one a figure is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.errors import InputError
from ccs.heads import Head, HeadSet
from ccs.measures import ranking, stats
from ccs.measures.stats import Effect


class ContributionModel(Protocol):
    """What direct effects need of a model: (contributions [n, layers, heads, d], remainder [n, d])."""

    def contributions(self, images: Any) -> tuple[np.ndarray, np.ndarray]: ...


@dataclass(frozen=True)
class RankedHead:
    """A single head's effect on a measure; `q_value` is its p-value with the false discovery rate
    controlled.
    """

    head: Head
    effect: Effect
    q_value: float


def without(embeddings: ArrayLike, contributions: ArrayLike, off: HeadSet) -> NDArray[np.float32]:
    """Unit embeddings [n, d] less the contributions of the heads that are off: the direct effect.

    embeddings: [n, d]; contributions: [n, layers, heads, d] of all layers, as `Model.contributions` gives
    them. InputError for a head outside of the contributions.
    """
    whole = np.asarray(embeddings)
    parts = np.asarray(contributions)
    if parts.ndim != 4 or (len(parts), parts.shape[3]) != whole.shape:
        raise InputError(f"Contributions of shape {parts.shape} do not belong to embeddings {whole.shape}.")
    for head in off:
        if head.layer >= parts.shape[1] or head.head >= parts.shape[2]:
            raise InputError(
                f"There is no head {head} among {parts.shape[1]} layers of {parts.shape[2]} heads."
            )
    return subtracted(whole, (parts[:, head.layer, head.head] for head in off))


def subtracted(embeddings: ArrayLike, contributions: Iterable[ArrayLike]) -> NDArray[np.float32]:
    """Unit embeddings [n, d] less contributions [n, d], which may come one at a time from a disk."""
    whole = ranking.finite_rows(embeddings, "embeddings")
    for part in contributions:
        whole = whole - np.asarray(part)
    return ranking.unit(whole, "embeddings without these heads").astype(np.float32)


def direct_embeddings(
    model: ContributionModel, images: Any, plans: Sequence[HeadSet], *, batch_size: int = 128
) -> NDArray[np.float32]:
    """Embeddings [plans, images, d] with each plan's contributions subtracted: `Model.embed_images`'
    counterpart.

    `images`: pictures, or pixels [n, 3, s, s]. Contributions are made for `batch_size` images at a time, as
    those of all layers take layers x heads times the memory of the embeddings.
    """
    if not len(images) or not len(plans):
        raise InputError(f"Direct effects need images and plans, not {len(images)} and {len(plans)}.")
    found = []
    for start in range(0, len(images), batch_size):
        stop = min(start + batch_size, len(images))
        batch = images[start:stop] if hasattr(images, "shape") else [images[i] for i in range(start, stop)]
        parts, remainder = model.contributions(batch)
        whole = parts.sum(axis=(1, 2), dtype=np.float64) + remainder
        found.append(np.stack([without(whole, parts, off) for off in plans]))
    return np.concatenate(found, axis=1)


def rank_heads(effects: Mapping[Head, Effect]) -> list[RankedHead]:
    """Single heads from the most lowering to the most raising, with Benjamini and Hochberg's q-values.

    The heads tested are the family: give all that can be switched off, not a choice among them.
    """
    heads = sorted(effects)
    q_values = stats.benjamini_hochberg([effects[head].p_value for head in heads])
    ranked = [RankedHead(head, effects[head], float(q)) for head, q in zip(heads, q_values, strict=True)]
    return sorted(ranked, key=lambda one: (one.effect.value, one.head))


def agreement(
    direct: Mapping[Head, Effect], total: Mapping[Head, Effect], *, seed: int = 0
) -> dict[str, Effect]:
    """Correlation over single heads of direct with total effect: "spearman" and "pearson", each with
    interval.

    The interval draws heads with replacement; it is for heads such as these. InputError unless both have
    the same four or more heads.
    """
    if set(direct) != set(total):
        raise InputError(
            f"Direct effects are of {len(direct)} heads and total ones of {len(total)}, not the same."
        )
    heads = sorted(direct)
    x, y = ([effects[head].value for head in heads] for effects in (direct, total))
    return {
        "spearman": stats.correlation(x, y, method="spearman", seed=seed),
        "pearson": stats.correlation(x, y, method="pearson", seed=seed),
    }
