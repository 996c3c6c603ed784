"""Labels of heads: one spelling for each concept's name, and the stand-in labeler `tags`.

`tags` needs no model: it reads the concept with which the pool tags each text. It stands in for a language
model (ccs/judges/labeler.py) and is never presented as one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ccs.errors import InputError
from ccs.heads import Head
from ccs.texts import concepts
from ccs.texts.concepts import ConceptTree
from ccs.texts.pools import Pool
from ccs.texts.score import HeadScore
from ccs.texts.textspan import Span

TAGS = "tags"


@dataclass(frozen=True)
class Label:
    """A head's concept, None if it has none, and the labeler that named it."""

    concept: str | None
    labeler: str


def normalize(name: str, tree: ConceptTree | None = None) -> str:
    """One spelling for every name of a concept.

    The name of a concept in the tree becomes that concept, in any case and number and also by a synonym
    (ccs/texts/concepts.csv). Any other name is capitalized and put in the singular, so that its spellings
    agree too. InputError for an empty name.
    """
    found = (tree or concepts.tree()).find(name)
    if found is not None:
        return found
    other = concepts.key(name)
    if not other:
        raise InputError(f"{name!r} is not a name of a concept.")
    return other[0].upper() + other[1:]


class Paths(Protocol):
    """A tree of concepts, or part of one."""

    def path(self, concept: str) -> tuple[str, ...]:
        """The concept and all above it, most specific first, without the root."""

    def depth(self, concept: str) -> int:
        """The number of steps below the root."""


def cover(tags: Sequence[str | None], shares: Sequence[float], tree: Paths) -> str | None:
    """The most specific concept that covers the most texts; None if no text has a tag.

    `tags` and `shares` are in rank order. A concept covers the texts tagged with it or with a concept below
    it; the root is never the answer. Ties go to the larger share of variance that the covered texts explain
    together, then to the lower ranks, then to the deeper concept, a concept before its parent.
    """
    covered: dict[str, list[int]] = {}
    for rank, tag in enumerate(tags):
        for concept in tree.path(tag) if tag is not None else ():
            covered.setdefault(concept, []).append(rank)

    def merit(concept: str) -> tuple[int, float, tuple[int, ...], int]:
        ranks = covered[concept]
        explained = math.fsum(shares[rank] for rank in ranks)
        return len(ranks), explained, tuple(-rank for rank in ranks), tree.depth(concept)

    return max(covered, key=merit, default=None)


def score_by_tags(
    spans: Mapping[Head, Sequence[Span]], pool: Pool, tree: Paths | None = None
) -> dict[Head, HeadScore]:
    """Label and CCS of every head with `tags` as labeler and judge: the number of texts under the label."""
    known, found = tree or concepts.tree(), {}
    for head, chosen in spans.items():
        tags = [pool.concept_of(span.text) for span in chosen]
        label = cover(tags, [span.share for span in chosen], known)
        under = sum(tag is not None and label in known.path(tag) for tag in tags)
        found[head] = HeadScore(None if label is None else under, label)
    return found


def label_by_tags(
    spans: Mapping[Head, Sequence[Span]], pool: Pool, tree: ConceptTree | None = None
) -> dict[Head, Label]:
    """The stand-in labeler: every head's label from the tags of its texts, by the rule of `cover`."""
    return {head: Label(score.label, TAGS) for head, score in score_by_tags(spans, pool, tree).items()}


def chance_by_tags(
    pool: Pool, k: int, *, draws: int = 10_000, seed: int = 0, tree: ConceptTree | None = None
) -> tuple[float, ...]:
    """CCS@0 ... CCS@k under `tags` for heads whose k texts are drawn at random from the pool.

    A label is chosen to fit its texts, so random texts score above 0 too. The k texts are all different.
    InputError if the pool has fewer than k texts.
    """
    if not 1 <= k <= len(pool):
        raise InputError(f"k must be 1 to {len(pool)} (the texts of the pool {pool.name!r}), not {k}.")
    known = tree or concepts.tree()
    rng = np.random.default_rng(seed)
    counts = np.zeros(k + 1)
    for _ in range(draws):
        tags = [pool.concepts[int(i)] for i in rng.choice(len(pool), size=k, replace=False, shuffle=False)]
        paths = [known.path(tag) if tag is not None else () for tag in tags]
        best = cover(tags, [0.0] * k, known)
        counts[sum(best in path for path in paths)] += 1
    return tuple(float(x) for x in counts / draws)
