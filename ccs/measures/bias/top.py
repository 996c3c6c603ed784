"""Who is in the top K of each occupation's ranking."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.measures import ranking
from ccs.measures.skew import Floats, Target, check_k, max_skew_of, target_shares


def counts(ranked: NDArray[np.integer], n_groups: int) -> NDArray[np.int64]:
    """Images of each group [rankings, groups] among ranked codes [rankings, k]."""
    return np.stack([(ranked == g).sum(axis=1) for g in range(n_groups)], axis=1)


def ranked(
    image_embeddings: ArrayLike, occupation_embeddings: ArrayLike, groups: ArrayLike, k: int, target: Target
) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
    """(top k images [occupations, k], group codes [images], target shares [groups])."""
    scores = ranking.cosines(occupation_embeddings, image_embeddings)
    codes = np.unique(np.asarray(groups, dtype=np.str_), return_inverse=True)[1]
    order = ranking.top(scores, check_k(k, len(codes)))
    return order, codes, target_shares(np.bincount(codes), target)


def mean_max_skew(
    image_embeddings: ArrayLike,
    occupation_embeddings: ArrayLike,
    groups: ArrayLike,
    k: int,
    *,
    target: Target = "pool",
) -> float:
    """The mean MaxSkew over the occupations and nothing else: for a search, which asks for it often."""
    order, codes, shares = ranked(image_embeddings, occupation_embeddings, groups, k, target)
    return float(max_skew_of(counts(codes[order], shares.size), shares).mean())
