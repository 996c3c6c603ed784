"""The two faults of the paper's released bias code, reproduced so that its numbers can be explained."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.metrics import ranking
from ccs.metrics.skew import Floats

Fault = Literal["order", "aliased"]
"""A fault; never a default: a result made with one is marked "as-published", and measures the code, not the
model.

"order" (FairFace, race; the gender columns are free of it): the pool's counts stand in the order in which
groups first appear in the file, the top K's counts in alphabetical order, and the i-th is divided by the
i-th. Random rankings then sum to about 56 over 104 occupations instead of about 10.

"aliased" (SocialCounterfactuals): one list stands for all groups, so each group holds every image and an
image is ranked once per group, with equal scores. The skew of that ranking is 0 but for remainders of K; what
is left is ties of different images in float16. A tie at the cut-off gives 3/12 instead of 2/12 (or 3/4
instead of 2/4): printed values are multiples of ln 1.5, or ln 2 where four images tie.
"""
_HALVING = 0.0015
"""More than float16 moves a cosine: each of two unit vectors by 2^-11 of its length, then their product."""
_ALIASED: dict[tuple[str, str], Fault] = {
    ("socialcounterfactuals", "race"): "aliased",
    ("socialcounterfactuals-gender", "gender"): "aliased",
}
"""The pools that the code ranks: by race the sets varying race and gender, by gender all varying gender."""


def fault_of(dataset: str, attribute: str) -> Fault | None:
    """Return the fault behind the paper's numbers for a dataset.

    Args:
        dataset: its name.
        attribute: such as "race".

    Returns:
        The fault, or None if they have none.
    """
    if dataset.startswith("fairface") and attribute == "race":
        return "order"
    return _ALIASED.get((dataset, attribute))


def aliased_top(
    images: ArrayLike, occupations: ArrayLike, scores: NDArray[np.floating], n_groups: int, k: int
) -> NDArray[np.int64]:
    """Count groups in the top k as the released code does, which ranks an image once per group.

    Scores are rounded to float16. The sort is stable over a list of all images for the first group, then all
    for the second, and so on: among equal scores all first copies come before any second copy.

    Args:
        images: embeddings [n, d].
        occupations: embeddings [occupations, d].
        scores: their cosines [occupations, n], which exclude images that rounding can't bring to the top.
        n_groups: number of groups.
        k: the cut-off.

    Returns:
        Counts [occupations, groups].
    """
    ranking.check_k(k, scores.shape[1] * n_groups)
    needed = -(-k // n_groups)
    cutoff = np.partition(scores, -needed, axis=1)[:, [-needed]] - 2 * _HALVING
    rows = np.asarray(images)[(scores >= cutoff).any(axis=0)]
    texts = _halved(occupations, "occupation embeddings")
    halved = ranking.products(texts, _halved(rows, "image embeddings")).astype(np.float16)
    counts = np.empty((len(halved), n_groups), dtype=np.int64)
    for row, score in enumerate(halved):
        # Only images at or above the last score needed can be in the top k; ties may add more of them.
        candidates = np.flatnonzero(score >= np.partition(score, -needed)[-needed])
        copies = np.tile(score[candidates].astype(np.float32), n_groups)
        ranked = np.argsort(-copies, kind="stable")[:k]
        counts[row] = np.bincount(ranked // len(candidates), minlength=n_groups)
    return counts


def _halved(embeddings: ArrayLike, name: str) -> Floats:
    """Unit rows [n, d], rounded to float16."""
    return ranking.unit(embeddings, name).astype(np.float16).astype(np.float64)
