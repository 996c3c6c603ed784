"""Concepts of heads: the tree of concepts, one spelling per concept, and the labeler `tags`.

Tags, labels, and judges share the tree (ccs/texts/concepts.csv), which says which concept lies under which
(Colors under Backgrounds, Professions under People). Its root holds everything and is not a concept that a
head can stand for. `tags` needs no model: it reads the concept with which the pool tags each text. It takes
the place of an LLM (ccs/judges/panel.py) and is never presented as one.

    >>> spelling_key("Some Red_Dogs."), cover([["Dogs", "Animals"], ["Cats", "Animals"]], [0.5, 0.3])
    ('some red dog', 'Animals')
"""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files

import numpy as np

from ccs.errors import InputError
from ccs.heads import Head
from ccs.texts.pools import Pool
from ccs.texts.score import HeadScore
from ccs.texts.textspan import Span


def singular(word: str) -> str:
    """Return the singular of a regular English plural, or the word unchanged."""
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        return word[:-1]
    return word


def spelling_key(name: str) -> str:
    """Return a key equal for all spellings: lower case, single spaces, singular, no outer punctuation."""
    words = name.casefold().replace("-", " ").replace("_", " ").split()
    text = " ".join(words).strip(" .,:;!?\"'`*()[]")
    head, space, last = text.rpartition(" ")
    return head + space + singular(last)


@dataclass(frozen=True)
class ConceptTree:
    """Concepts with their parents. `parents`: concept -> parent; `synonyms`: other name -> concept."""

    parents: Mapping[str, str]
    synonyms: Mapping[str, str]
    root: str

    @property
    def concepts(self) -> tuple[str, ...]:
        """All concepts except the root, in the order of the file."""
        return tuple(self.parents)

    def path(self, concept: str) -> tuple[str, ...]:
        """Return the concept and all above it, most specific first, without the root.

        A concept that is not in the tree (a tag of a custom pool) counts as directly under the root.
        """
        path = [concept]
        while (above := self.parents.get(path[-1], self.root)) != self.root:
            path.append(above)
        return tuple(path)

    def is_under(self, concept: str, ancestor: str) -> bool:
        """Return whether a concept equals another one or lies below it.

        Args:
            concept: The concept.
            ancestor: The other one; all concepts lie under the root.
        """
        return ancestor == self.root or ancestor in self.path(concept)

    def find_concept(self, name: str) -> str | None:
        """Return the concept that a name or synonym means, in any case and number, or None."""
        return self._names.get(spelling_key(name))

    @cached_property
    def _names(self) -> dict[str, str]:
        names = {concept: concept for concept in self.parents} | {**self.synonyms}
        return {spelling_key(name): concept for name, concept in names.items()}


@cache
def tree() -> ConceptTree:
    """Read the bundled tree.

    The file has the columns concept, parent (empty for the root) and synonyms (separated by `;`).
    """
    text = files("ccs.texts").joinpath("concepts.csv").read_text(encoding="utf-8")
    root, *rows = csv.DictReader(text.splitlines())
    names = ((row["concept"], map(str.strip, row["synonyms"].split(";"))) for row in rows)
    return ConceptTree(
        parents={row["concept"]: row["parent"] for row in rows},
        synonyms={name: concept for concept, synonyms in names for name in synonyms if name},
        root=root["concept"],
    )


TAGS = "tags"


def normalize(name: str) -> str:
    """Return one spelling for all names of a concept.

    The name of a concept in the tree becomes that concept, in any case and number and also by a synonym
    (ccs/texts/concepts.csv). Any other name is capitalized and put in the singular, so that its spellings
    agree too. InputError for an empty name.
    """
    if (concept := tree().find_concept(name)) is not None:
        return concept
    spelling = spelling_key(name)
    if not spelling:
        raise InputError(f"{name!r} is not the name of a concept.")
    return spelling[0].upper() + spelling[1:]


def cover(paths: Sequence[Sequence[str]], shares: Sequence[float]) -> str | None:
    """Find the most specific concept that covers the most texts.

    Ties go to the larger share that the covered texts explain together, then to the lower ranks, then to the
    deeper concept, a concept before its parent.

    Args:
        paths: The concepts that each text is under, most specific first, without the root; in rank order.
        shares: The texts' shares of the variance, in rank order.

    Returns:
        The concept, or None if no text has a tag.
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
    """Return the tag and the concepts above it."""
    return () if tag is None else tree().path(tag)


def score_by_tags(spans: Mapping[Head, Sequence[Span]], pool: Pool) -> dict[Head, HeadScore]:
    """Score all heads with `tags` as labeler and judge: the number of texts under the label.

    Args:
        spans: Each head's texts.
        pool: The texts' tags.
    """
    scores = {}
    for head, chosen in spans.items():
        paths = [_path(pool.concept_of(span.text)) for span in chosen]
        label = cover(paths, [span.share for span in chosen])
        under = sum(label in path for path in paths)
        scores[head] = HeadScore(None if label is None else under, label)
    return scores


def chance_by_tags(pool: Pool, k: int, draws: int = 10_000) -> tuple[float, ...]:
    """Return CCS@0 ... CCS@k under `tags` for heads whose k texts are drawn at random from the pool.

    A label is chosen to fit its texts, so random texts score above 0 too.

    Args:
        pool: The texts.
        k: Texts per head, all different.
        draws: The number of random heads.

    Raises:
        InputError: The pool has fewer than k texts.
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
