"""The two faults of the study's released bias code, reproduced so that its figures can be explained.

They are never a default: a result made with one is marked "as-published". Its figures measure the code, not
the model.

"order" (FairFace, race; the gender columns are free of it): the pool's counts stand in the order in which
groups first appear in the file, the top K's counts in alphabetical order, and the i-th is divided by the
i-th. Random rankings then sum to about 56 over 104 occupations instead of about 10.

"aliased" (SocialCounterfactuals): one list stands for all groups, so each group holds every image and an
image is ranked once per group, with equal scores. The skew of that ranking is 0 but for remainders of K; what
is left is ties of different images in float16. A tie at the cut-off gives 3/12 instead of 2/12 (or 3/4
instead of 2/4): printed values are multiples of ln 1.5, or ln 2 where four images tie.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.measures import ranking
from ccs.measures.skew import check_k

Fault = Literal["order", "aliased"]
_ALIASED: dict[tuple[str, str], Fault] = {
    ("socialcounterfactuals", "race"): "aliased",
    ("socialcounterfactuals-gender", "gender"): "aliased",
}
"""The pools that the code ranks: by race the sets varying race and gender, by gender all varying gender."""


def fault_of(dataset: str, attribute: str) -> Fault | None:
    """The fault of the study's figures for this data set and attribute, if they have one."""
    if dataset.startswith("fairface") and attribute == "race":
        return "order"
    return _ALIASED.get((dataset, attribute))


def aliased_top(images: ArrayLike, occupations: ArrayLike, n_groups: int, k: int) -> NDArray[np.int64]:
    """Counts [occupations, groups] in the top k where every image [n, d] is ranked once per group.

    Scores are rounded to float16. The sort is stable over a list of all images for the first group, then all
    for the second, and so on: among equal scores all first copies come before any second copy.
    """
    rows = ranking.unit(images, "image embeddings").astype(np.float16)
    texts = ranking.unit(occupations, "occupation embeddings").astype(np.float16)
    scores = ranking.products(texts.astype(np.float64), rows.astype(np.float64)).astype(np.float16)
    check_k(k, scores.shape[1] * n_groups)
    needed = -(-k // n_groups)
    counts = np.empty((len(scores), n_groups), dtype=np.int64)
    for row, score in enumerate(scores):
        # Only images at or above the last score needed can be in the top k; ties may add more of them.
        candidates = np.flatnonzero(score >= np.partition(score, -needed)[-needed])
        copies = np.tile(score[candidates].astype(np.float32), n_groups)
        ranked = np.argsort(-copies, kind="stable")[:k]
        counts[row] = np.bincount(ranked // len(candidates), minlength=n_groups)
    return counts
