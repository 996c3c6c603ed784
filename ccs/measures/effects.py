"""Direct and total effects: two different things that are both called a head's effect.

Total effect: the head's output is zero in the forward pass (soft-pruning), and later layers see it and react.
Direct effect: the head's own contribution is subtracted from the finished image embedding, which is then made
unit again; later layers do not react (Gandelsman et al. 2024). Every figure says which of the two it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.errors import InputError
from ccs.heads import Head
from ccs.measures import ranking, stats
from ccs.measures.stats import Effect


def subtracted(embeddings: ArrayLike, contributions: Iterable[ArrayLike]) -> NDArray[np.float32]:
    """Unit embeddings [n, d] less contributions [n, d], made unit again: what a direct effect is measured on.

    Contributions may come one at a time, from a disk.
    """
    whole = ranking.finite_rows(embeddings, "embeddings")
    for part in contributions:
        whole = whole - np.asarray(part)
    return ranking.unit(whole, "embeddings without these heads").astype(np.float32)


def agreement(
    direct: Mapping[Head, Effect], total: Mapping[Head, Effect], *, seed: int = 0
) -> dict[str, Effect]:
    """Correlation of direct with total effects over single heads: "spearman" and "pearson".

    The interval resamples heads, so it is for heads such as these. InputError unless both have the same four
    or more heads.
    """
    if set(direct) != set(total):
        raise InputError(
            f"Direct effects are of {len(direct)} heads and total ones of {len(total)}, not the same."
        )
    heads = sorted(direct)
    x, y = ([effects[head].value for head in heads] for effects in (direct, total))
    return {name: stats.correlation(x, y, method=name, seed=seed) for name in ("spearman", "pearson")}
