"""A head's concept: what a label is, how names of concepts are made one, and the stand-in labeler `tags`.

`tags` needs no model: it reads the concept that the pool gives each text. It stands in for a language model
(ccs/judges/labeler.py) and is never presented as one.
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

TAGS = "tags"


class Chosen(Protocol):
    """A text chosen for a head with the share of the head's variance it explains (ccs.textspan.Span)."""

    @property
    def text(self) -> str: ...
    @property
    def share(self) -> float: ...


@dataclass(frozen=True)
class Label:
    """A head's concept, None where there is none, and who named it."""

    concept: str | None
    labeler: str


def normalize(name: str, tree: ConceptTree | None = None) -> str:
    """The one spelling of a concept's name.

    A name that means a concept of the tree, whatever its case, number or synonym (the table is
    ccs/data/concepts.csv), becomes that concept. Any other comes back in the singular with a capital, so that
    two spellings of it are still one. InputError for an empty name.
    """
    found = (tree or concepts.tree()).find(name)
    if found is not None:
        return found
    other = concepts.key(name)
    if not other:
        raise InputError(f"{name!r} is no name of a concept.")
    return other[0].upper() + other[1:]


def cover(tags: Sequence[str | None], shares: Sequence[float], tree: ConceptTree) -> str | None:
    """The most specific concept that covers the most texts; None if no text has a tag.

    `tags` and `shares` stand in rank order. A concept covers a text whose tag it is or lies above. The root
    is no answer. Equal counts are decided by the share of variance that the covered texts explain together,
    then by the ranks of the covered texts (lowest first), then by depth: of a concept and its parent that
    cover the same texts, the concept. What is still equal is the same set of texts at the same depth, which
    cannot be.
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


def label_by_tags(
    spans: Mapping[Head, Sequence[Chosen]], pool: Pool, tree: ConceptTree | None = None
) -> dict[Head, Label]:
    """Label every head by the tags of its texts: the stand-in labeler. See `cover` for the rule."""
    known = tree or concepts.tree()
    found = {}
    for head, chosen in spans.items():
        tags = [pool.concept_of(span.text) for span in chosen]
        found[head] = Label(cover(tags, [span.share for span in chosen], known), TAGS)
    return found


def chance_by_tags(
    pool: Pool, k: int, *, draws: int = 10_000, seed: int = 0, tree: ConceptTree | None = None
) -> tuple[float, ...]:
    """CCS@0 ... CCS@k, under `tags`, of heads whose k texts are drawn at random from the pool.

    A label is chosen to fit its texts, so even random texts score above 0: this says how far. All k texts are
    different. InputError if the pool has fewer than k texts.
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
