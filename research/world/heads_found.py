"""Does a high CCS under a concept's name tell which heads were taught that concept?

Precision: of the heads with a high CCS, the share that were taught the concept of their label. Recall: of the
taught heads, the share with a high CCS under their concept's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ccs.heads import Head
from ccs.model.moments import Moments
from ccs.texts.labels import score_by_tags
from ccs.texts.pools import Pool, make_pool
from ccs.texts.score import level
from ccs.texts.textspan import textspan

KS = (5, 7, 9, 11, 13)
RESAMPLED, KEPT = 200, 0.8
"""Pools, each with this share of the texts, drawn without putting back."""


@dataclass(frozen=True)
class Found:
    """With K texts: heads of high CCS, those of them that were taught their label, and all that were taught.

    precision, recall: their 2.5th and 97.5th percentile over resampled pools; nan where no head was high in
    any of them.
    """

    k: int
    high: int
    right: int
    taught: int
    precision: tuple[float, float]
    recall: tuple[float, float]


def high_heads(
    moments: Moments, pool: Pool, embeddings: np.ndarray, ks: Sequence[int] = KS
) -> dict[int, dict[Head, str]]:
    """K -> the heads with a high CCS by `tags`, with their labels.

    TEXTSPAN is greedy, so the first K of its texts are those of a smaller K.
    """
    spans = textspan(moments, pool.texts, embeddings, max(ks))
    found: dict[int, dict[Head, str]] = {}
    for k in ks:
        scores = score_by_tags({head: own[:k] for head, own in spans.items()}, pool)
        found[k] = {
            head: score.label
            for head, score in scores.items()
            if score.label is not None and level(score.ccs, k) == "high"
        }
    return found


def found(
    moments: Moments, pool: Pool, embeddings: np.ndarray, taught: Mapping[Head, str], seed: int = 0
) -> list[Found]:
    """How well a high CCS finds the heads in `taught`, for every K of KS."""
    whole = high_heads(moments, pool, embeddings)
    rng, draws = np.random.default_rng(seed), []
    for _ in range(RESAMPLED):
        rows = np.sort(rng.permutation(len(pool))[: round(KEPT * len(pool))])
        part = make_pool(pool.name, [(pool.texts[i], pool.concepts[i]) for i in rows])
        draws.append(high_heads(moments, part, embeddings[rows]))
    out = []
    for k, high in whole.items():
        precisions = [_right(one[k], taught) / len(one[k]) for one in draws if one[k]]
        recalls = [_right(one[k], taught) / len(taught) for one in draws]
        out.append(
            Found(k, len(high), _right(high, taught), len(taught), _around(precisions), _around(recalls))
        )
    return out


def _right(high: Mapping[Head, str], taught: Mapping[Head, str]) -> int:
    return sum(taught.get(head) == label for head, label in high.items())


def _around(values: Sequence[float]) -> tuple[float, float]:
    low, high = np.percentile(values, [2.5, 97.5]) if len(values) else (np.nan, np.nan)
    return float(low), float(high)
