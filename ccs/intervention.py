"""What is done to attention heads, and its notation: `"L8.H11 L9.H2=0.3 L10.H0=mean"`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from ccs.errors import InputError
from ccs.heads import Head, HeadSet

MEAN, PROTOTYPE = "mean", "prototype"
FIRST = "@cls"
MOST = 100.0
"""The largest factor, in either direction."""
_NAME = re.compile(r"([^=@]+)(?:=([^@]*))?(@cls)?")


@dataclass(frozen=True)
class Change:
    """What a head's output becomes: its output times `factor`, or MEAN or PROTOTYPE (`at`).

    first: on the CLS token alone; otherwise on all tokens.
    """

    factor: float = 0.0
    at: str = ""
    first: bool = False

    def __post_init__(self) -> None:
        if not abs(self.factor) <= MOST:
            raise InputError(f"A head's factor is a number from -{MOST:g} to {MOST:g}, not {self.factor}.")

    @property
    def off(self) -> bool:
        """True where the head adds nothing to any token."""
        return self == Change()

    def __str__(self) -> str:
        value = self.at or (repr(self.factor).removesuffix(".0") if self.factor else "")
        return (f"={value}" if value else "") + (FIRST if self.first else "")

    @classmethod
    def parse(cls, value: str | None, first: bool = False) -> Change:
        """The change written `value`; None is a head that is off. Raises InputError for anything else."""
        if value in (MEAN, PROTOTYPE):
            return cls(at=str(value), first=first)
        try:
            factor = 0.0 if value is None else float(value)
        except ValueError:
            factor = math.nan
        if math.isnan(factor):
            raise InputError(f"{str(value)[:40]!r} is no factor such as 0.3, nor {MEAN} or {PROTOTYPE}.")
        return cls(factor, first=first)


class Intervention(HeadSet):
    """Heads, each with what its output becomes: 0 is off, 1 is untouched, 0.3, 1.5, `mean`, `prototype`.

    A HeadSet is one of zeros, and equal to it. Wherever heads are switched off an intervention does too.
    `L9.H2=0.3@cls` acts on the CLS token alone (in a text tower, the token that is read). `mean` is a head's
    mean output over given images, token by token; `prototype` the mean over groups of people of their means
    ("Debiasing CLIP with neural interventions", ECIR 2026). These need `Model.at_means` first.

        >>> some = Intervention.parse("L9.H2=0.30, L8.H11=0 L10.H0=mean")
        >>> str(some)
        'L8.H11 L9.H2=0.3 L10.H0=mean'
    """

    __slots__ = ("_changes", "means")
    _changes: dict[Head, Change]
    means: Means | None

    def __init__(
        self, changes: Mapping[Head, Change | float] | Iterable[Head] = (), means: Means | None = None
    ) -> None:
        given: Mapping[Head, Change | float]
        if isinstance(changes, Intervention):
            given, means = changes._changes, means or changes.means
        else:
            given = changes if isinstance(changes, Mapping) else dict.fromkeys(changes, Change())
        super().__init__(given)
        self._changes = {
            head: one if isinstance(one := given[head], Change) else Change(float(one)) for head in self
        }
        self.means = means

    @classmethod
    def parse(cls, text: str) -> Intervention:
        """Heads by name, each with `=` and what becomes of it; without it the head is off.

        Raises InputError for a text that is no such list, and for a head that is named twice.
        """
        found: dict[Head, Change] = {}
        for one in text.replace(",", " ").split():
            match = _NAME.fullmatch(one)
            head = Head.parse(match[1] if match else one)
            assert match is not None
            change = Change.parse(match[2], bool(match[3]))
            if found.setdefault(head, change) != change:
                raise InputError(f"{head} is named twice, for different things.")
        return cls(found)

    @classmethod
    def of(cls, heads: HeadSet | str | Iterable[Head] | None) -> HeadSet:
        """What a caller gave for heads: their notation, a HeadSet or an Intervention, or nothing."""
        if isinstance(heads, HeadSet):
            return heads
        return cls.parse(heads) if isinstance(heads, str) else HeadSet(heads or ())

    def __getitem__(self, head: Head) -> Change:
        return self._changes[head]

    def changed(self, heads: Mapping[Head, Change | float]) -> Intervention:
        """The same with these changes too, which take the place of others."""
        return Intervention({**self._changes, **heads}, self.means)

    def only(self, heads: Iterable[Head]) -> Intervention:
        """What is done to these heads alone."""
        kept = set(heads)
        return Intervention({head: self[head] for head in self if head in kept}, self.means)

    def __and__(self, other: AbstractSet[Any]) -> Intervention:
        return self.only(head for head in self if head in other)

    def __or__(self, other: AbstractSet[Any]) -> Intervention:
        return self.changed(dict(changes(HeadSet(other) if not isinstance(other, HeadSet) else other)))

    def __ror__(self, other: AbstractSet[Any]) -> Intervention:
        return Intervention(other) | self  # Set's would forget what is done to these heads

    def __sub__(self, other: AbstractSet[Any]) -> Intervention:
        return self.only(head for head in self if head not in other)

    def of_tower(self, tower: str) -> Intervention:
        return self.only(super().of_tower(tower))

    def of_layer(self, layer: int) -> Intervention:
        return self.only(super().of_layer(layer))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Intervention):
            return self._changes == other._changes and self.means is other.means
        return all(one.off for one in self._changes.values()) and HeadSet(self) == other

    __hash__ = HeadSet.__hash__

    def __str__(self) -> str:
        return " ".join(f"{head}{change}" for head, change in self._changes.items())

    def __repr__(self) -> str:
        return f"Intervention.parse({str(self)!r})"


def changes(heads: HeadSet) -> Iterator[tuple[Head, Change]]:
    """Each head and what becomes of it; those of a HeadSet are off."""
    for head in heads:
        yield head, heads[head] if isinstance(heads, Intervention) else Change()


def factors(heads: HeadSet, where: str) -> dict[Head, float]:
    """Head -> factor on all tokens. InputError, with `where` as its subject, for what is no such factor."""
    for head, change in changes(heads):
        if change.at or change.first:
            raise InputError(f"{where} can hold factors on all tokens, and {head}{change} is none.")
    return {head: change.factor for head, change in changes(heads)}


@dataclass(frozen=True, eq=False)
class Means:
    """Heads' mean outputs over images, and prototypes: head -> [T, d], float32, by MEAN or PROTOTYPE."""

    of: Mapping[str, Mapping[Head, Any]]

    @staticmethod
    def required(heads: Intervention, head: Head) -> Any:
        """The value to use for this head; InputError where nobody has said over which images."""
        at = heads[head].at
        known = {} if heads.means is None else heads.means.of.get(at, {})
        if head not in known:
            raise InputError(f"{head}={at} is taken over images: model.at_means(heads, images) gives it.")
        return known[head]
