"""Labels of heads: one spelling for each concept's name, and the stand-in labeler `tags`.

`tags` needs no model: it reads the concept with which the pool tags each text. It stands in for a language
model (ccs/judges/labeler.py) and is never presented as one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ccs.errors import InputError
from ccs.heads import Head
from ccs.texts import concepts
from ccs.texts.pools import Pool
from ccs.texts.score import HeadScore
from ccs.texts.textspan import Span

TAGS = "tags"


def normalize(name: str) -> str:
    """One spelling for every name of a concept.

    The name of a concept in the tree becomes that concept, in any case and number and also by a synonym
    (ccs/texts/concepts.csv). Any other name is capitalized and put in the singular, so that its spellings
    agree too. InputError for an empty name.
    """
    found = concepts.tree().find(name)
    if found is not None:
        return found
    other = concepts.key(name)
    if not other:
        raise InputError(f"{name!r} is not a name of a concept.")
    return other[0].upper() + other[1:]


def cover(paths: Sequence[Sequence[str]], shares: Sequence[float]) -> str | None:
    """The most specific concept that covers the most texts; None if no text has a tag.

    `paths`: the concepts that each text is under, most specific first, without the root. `shares`: of the
    variance. Both are in rank order. Ties go to the larger share that the covered texts explain together,
    then to the lower ranks, then to the deeper concept, a concept before its parent.
    """
    covered: dict[str, list[int]] = {}
    for rank, path in enumerate(paths):
        for concept in path:
            covered.setdefault(concept, []).append(rank)

    def merit(concept: str) -> tuple[int, float, tuple[int, ...]]:
        ranks = covered[concept]
        return len(ranks), math.fsum(shares[rank] for rank in ranks), tuple(-rank for rank in ranks)

    # Concepts that cover the same texts lie on one path, and `max` keeps the first of equals.
    return max(covered, key=merit, default=None)


def _path(tag: str | None) -> tuple[str, ...]:
    """The tag and the concepts above it; none without a tag."""
    return () if tag is None else concepts.tree().path(tag)


def score_by_tags(spans: Mapping[Head, Sequence[Span]], pool: Pool) -> dict[Head, HeadScore]:
    """Label and CCS of every head with `tags` as labeler and judge: the number of texts under the label."""
    found = {}
    for head, chosen in spans.items():
        paths = [_path(pool.concept_of(span.text)) for span in chosen]
        label = cover(paths, [span.share for span in chosen])
        under = sum(label in path for path in paths)
        found[head] = HeadScore(None if label is None else under, label)
    return found


def chance_by_tags(pool: Pool, k: int, draws: int = 10_000) -> tuple[float, ...]:
    """CCS@0 ... CCS@k under `tags` for heads whose k texts are drawn at random from the pool.

    A label is chosen to fit its texts, so random texts score above 0 too. The k texts are all different.
    InputError if the pool has fewer than k texts.
    """
    if not 1 <= k <= len(pool):
        raise InputError(f"k must be 1 to {len(pool)} (the texts of the pool {pool.name!r}), not {k}.")
    rng = np.random.default_rng(0)
    counts = np.zeros(k + 1)
    for _ in range(draws):
        paths = [_path(pool.concepts[i]) for i in rng.choice(len(pool), size=k, replace=False, shuffle=False)]
        best = cover(paths, [0.0] * k)
        counts[sum(best in path for path in paths)] += 1
    return tuple(float(x) for x in counts / draws)
