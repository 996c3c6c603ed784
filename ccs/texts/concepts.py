"""The tree of concepts shared by tags, labels and judges (ccs/texts/concepts.csv), and its synonyms.

The tree says which concept lies under which (Colors under Backgrounds, Professions under People). Its root
holds everything and is not a concept that a head can stand for.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files


def singular(word: str) -> str:
    """The singular of a regular English plural; other words come back as they are."""
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        return word[:-1]
    return word


def key(name: str) -> str:
    """A key equal for all spellings of a name: lower case, single spaces, singular, no outer punctuation."""
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
        """Every concept but the root, in the order of the file."""
        return tuple(self.parents)

    def path(self, concept: str) -> tuple[str, ...]:
        """The concept and all above it, most specific first, without the root.

        A concept that is not in the tree (a tag of the user's own pool) counts as directly under the root.
        """
        found = [concept]
        while (above := self.parents.get(found[-1], self.root)) != self.root:
            found.append(above)
        return tuple(found)

    def is_under(self, concept: str, ancestor: str) -> bool:
        """True if `concept` is `ancestor` or lies below it; everything lies under the root."""
        return ancestor == self.root or ancestor in self.path(concept)

    def find(self, name: str) -> str | None:
        """The concept that a name or synonym means, in any case and number; None if there is none."""
        return self._names.get(key(name))

    @cached_property
    def _names(self) -> dict[str, str]:
        own = {concept: concept for concept in self.parents}
        return {key(name): concept for name, concept in (own | {**self.synonyms}).items()}


@cache
def tree() -> ConceptTree:
    """The tree that ships with this package.

    The file has the columns concept, parent (empty for the root) and synonyms (separated by `;`).
    """
    text = files("ccs.texts").joinpath("concepts.csv").read_text(encoding="utf-8")
    root, *rows = csv.DictReader(text.splitlines())
    names = ((row["concept"], map(str.strip, row["synonyms"].split(";"))) for row in rows)
    return ConceptTree(
        parents={row["concept"]: row["parent"] for row in rows},
        synonyms={name: concept for concept, own in names for name in own if name},
        root=root["concept"],
    )
