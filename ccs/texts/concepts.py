"""The tree of concepts shared by tags, labels and judges (ccs/texts/concepts.csv), and its synonyms.

The tree says which concept lies under which (Colors under Backgrounds, Professions under People). Its root
holds everything and is not a concept that a head can stand for.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from ccs.errors import InputError


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
    """Concepts with their parents. `parents`: concept -> parent; `synonyms`: other name -> concept.

    The root is the only parent without a parent.
    """

    parents: Mapping[str, str]
    synonyms: Mapping[str, str] = field(default_factory=dict)
    root: str = field(init=False)
    _paths: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    _names: Mapping[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        roots = sorted(set(self.parents.values()) - set(self.parents))
        if len(roots) != 1:
            raise InputError(f"A tree of concepts has one root, not {len(roots)} ({', '.join(roots)}).")
        names: dict[str, str] = {}
        own = {concept: concept for concept in self.parents}
        for name, concept in [*own.items(), *self.synonyms.items()]:
            if concept not in self.parents:
                raise InputError(f"{name!r} is said to mean {concept!r}, which is not in the tree.")
            if names.setdefault(key(name), concept) != concept:
                raise InputError(f"{name!r} means both {names[key(name)]!r} and {concept!r}.")
        object.__setattr__(self, "root", roots[0])
        object.__setattr__(self, "_names", MappingProxyType(names))
        object.__setattr__(self, "_paths", MappingProxyType({c: self._climb(c) for c in self.parents}))

    def _climb(self, concept: str) -> tuple[str, ...]:
        path = [concept]
        while self.parents[path[-1]] != self.root:
            path.append(self.parents[path[-1]])
            if len(path) > len(self.parents):
                raise InputError(f"{concept!r} lies under itself in the tree of concepts.")
        return tuple(path)

    @property
    def concepts(self) -> tuple[str, ...]:
        """Every concept but the root, in the order of the file."""
        return tuple(self.parents)

    def parent(self, concept: str) -> str:
        """The concept one level up (at the top, the root); InputError for a concept not in the tree."""
        if concept not in self.parents:
            raise InputError(f"There is no concept {concept!r}; there are: {', '.join(self.parents)}.")
        return self.parents[concept]

    def path(self, concept: str) -> tuple[str, ...]:
        """The concept and all above it, most specific first, without the root.

        A concept that is not in the tree (a tag of the user's own pool) counts as directly under the root.
        """
        return self._paths.get(concept, (concept,))

    def depth(self, concept: str) -> int:
        """The number of steps below the root: 1 at the top."""
        return len(self.path(concept))

    def is_under(self, concept: str, ancestor: str) -> bool:
        """True if `concept` is `ancestor` or lies below it; everything lies under the root."""
        return ancestor == self.root or ancestor in self.path(concept)

    def find(self, name: str) -> str | None:
        """The concept that a name or synonym means, in any case and number; None if there is none."""
        return self._names.get(key(name))


def read_tree(lines: Iterable[str]) -> ConceptTree:
    """The tree from a CSV with the columns concept, parent, synonyms (separated by `;`).

    The root's row has no parent.
    """
    parents: dict[str, str] = {}
    synonyms: dict[str, str] = {}
    for row in csv.DictReader(lines):
        if not row["parent"]:
            continue
        if row["concept"] in parents:
            raise InputError(f"The concept {row['concept']!r} has two rows.")
        parents[row["concept"]] = row["parent"]
        for name in filter(None, (part.strip() for part in row["synonyms"].split(";"))):
            if synonyms.setdefault(name, row["concept"]) != row["concept"]:
                raise InputError(f"{name!r} means both {synonyms[name]!r} and {row['concept']!r}.")
    return ConceptTree(MappingProxyType(parents), MappingProxyType(synonyms))


@cache
def tree() -> ConceptTree:
    """The tree that ships with this package."""
    text = files("ccs.texts").joinpath("concepts.csv").read_text(encoding="utf-8")
    return read_tree(text.splitlines())
