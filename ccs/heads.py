"""Attention heads, sets of heads, and interventions on them: `"L8.H11 L9.H2=0.3 L10.H0=mean"`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, TypeAlias

from ccs.errors import InputError

_NAME = r"(?ai:[LT]\d{1,6}\.H\d{1,6})"
IMAGE, TEXT = "L", "T"
ENCODERS = {IMAGE: "image", TEXT: "text"}
"""The encoders, by the letter in a head's name."""


def _as_text(cls: Any, *_: Any) -> Any:
    """Tell pydantic that a head or a set of heads is written as the text that `parse` reads."""
    from pydantic_core import core_schema as schema

    return schema.no_info_after_validator_function(
        cls.parse, schema.str_schema(), serialization=schema.plain_serializer_function_ser_schema(str)
    )


@dataclass(frozen=True, order=True)
class Head:
    """One attention head; layers and heads count from 0. Written `L11.H5`, in the text encoder `T11.H5`.

    >>> str(Head(11, 5)), Head.parse("T3.H0").encoder
    ('L11.H5', 'T')
    """

    layer: int
    head: int
    encoder: str = IMAGE

    def __post_init__(self) -> None:
        for name in ("layer", "head"):
            number = getattr(self, name)
            if isinstance(number, bool) or not hasattr(number, "__index__") or number < 0:
                raise InputError(f"A head's {name} is a whole number from 0, not {number!r}.")
            object.__setattr__(self, name, int(number))  # numpy's integers too
        if self.encoder not in ENCODERS:
            raise InputError(f"A head's encoder is 'L' (image) or 'T' (text), not {self.encoder!r}.")

    @classmethod
    def parse(cls, text: str) -> Head:
        """Read a head's name, such as "L11.H5"; InputError for anything else."""
        if not isinstance(text, str) or not re.fullmatch(_NAME, text.strip()):
            raise InputError(f"{str(text)[:40]!r} is not the name of a head; L11.H5 is head 5 of layer 11.")
        layer, head = map(int, re.findall(r"\d+", text))
        return cls(layer, head, text.strip()[0].upper())

    __get_pydantic_core_schema__ = classmethod(_as_text)

    def __str__(self) -> str:
        return f"{self.encoder}{self.layer}.H{self.head}"


MEAN, ERASE = "mean", "erase:"
MAX_FACTOR = 100.0
"""The largest factor, in either direction."""


@dataclass(frozen=True)
class HeadChange:
    """The change of a head's output.

    Attributes:
        factor: The factor by which it is multiplied.
        replacement: MEAN, which replaces it; ERASE and the attribute to erase from it; or "".
    """

    factor: float = 0.0
    replacement: str = ""

    def __post_init__(self) -> None:
        if not abs(self.factor) <= MAX_FACTOR:
            raise InputError(f"A head's factor is from {-MAX_FACTOR:g} to {MAX_FACTOR:g}, not {self.factor}.")

    @property
    def ablates(self) -> bool:
        """True if the head adds nothing to any token."""
        return self == HeadChange()

    @property
    def attribute(self) -> str:
        """The attribute whose groups are erased from the output, or ""."""
        return self.replacement.removeprefix(ERASE) if self.replacement.startswith(ERASE) else ""

    @property
    def effect(self) -> str:
        """The kind of change, in a word: "ablated", "scaled", "replaced", or "edited"."""
        if self.attribute:
            return "edited"
        return "ablated" if self.ablates else "replaced" if self.replacement else "scaled"

    def __str__(self) -> str:
        value = self.replacement or (repr(self.factor).removesuffix(".0") if self.factor else "")
        return f"={value}" if value else ""

    @classmethod
    def from_value(cls, value: HeadChange | float | str) -> HeadChange:
        """Make a change of a factor, or of "0.3", "mean", or "erase:skin tone"; InputError for others."""
        if isinstance(value, HeadChange):
            return value
        if isinstance(value, str) and (value == MEAN or (value.startswith(ERASE) and value != ERASE)):
            return cls(replacement=value)
        try:
            factor = float("nan" if isinstance(value, bool) else value)
        except (TypeError, ValueError):
            factor = float("nan")
        if factor != factor:
            raise InputError(f"{str(value)[:40]!r} is neither a factor such as 0.3 nor {MEAN!r}.")
        return cls(factor)


Changes = Mapping[Head, HeadChange | float | str] | Iterable[Head]
Means = Mapping[str, Mapping[Head, Any]]
"""Replacements of heads' outputs, float32: MEAN -> head -> mean [T, d]; ERASE and an attribute -> head ->
map [d + 1, d] (`ccs.model.editing`)."""


class HeadSet(Set[Head]):
    """An immutable, hashable set of heads in order of layer, then head; those of the text encoder come last.

    Python's set operators work (`|`, `&`, `-`, `^`, `<=`, `in`). `HeadSet()` is the empty set. It is the
    `Intervention` that ablates its heads, and equal to it.

        >>> ablated = HeadSet.parse("L9.H2, L8.H11")
        >>> str(ablated)
        'L8.H11 L9.H2'
    """

    __slots__ = ("_changes", "means")
    means: Means | None

    def __init__(self, heads: Iterable[Head] = ()) -> None:
        self._fill(dict.fromkeys(heads, HeadChange()), None)

    def _fill(self, by_head: Mapping[Head, HeadChange | float | str], means: Means | None) -> None:
        for head in by_head:
            if not isinstance(head, Head):
                raise InputError(f"A HeadSet holds Heads, not {head!r}; HeadSet.parse reads a text.")
        ordered = sorted(by_head, key=lambda head: (head.encoder, head))
        self._changes = {head: HeadChange.from_value(by_head[head]) for head in ordered}
        self.means = means

    @classmethod
    def parse(cls, text: str) -> HeadSet:
        """Read heads' names, separated by spaces or commas; an empty text is the empty set."""
        return cls(map(Head.parse, _split_names(text)))

    __get_pydantic_core_schema__ = classmethod(_as_text)

    def __contains__(self, head: object) -> bool:
        return head in self._changes

    def __iter__(self) -> Iterator[Head]:
        return iter(self._changes)

    def __len__(self) -> int:
        return len(self._changes)

    def __hash__(self) -> int:
        return hash(frozenset(self._changes))  # as of an equal set of another type

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HeadSet):
            return all(change.ablates for change in self._changes.values()) and super().__eq__(other)
        needs_means = any(change.replacement for change in self._changes.values())
        return self._changes == other._changes and (self.means is other.means or not needs_means)

    def __and__(self, other: Iterable[Any]) -> Any:
        return self.subset(head for head in self if head in other)

    def __sub__(self, other: Iterable[Any]) -> Any:
        return self.subset(head for head in self if head not in other)

    def __str__(self) -> str:
        return " ".join(f"{head}{change}" for head, change in self._changes.items())

    def __repr__(self) -> str:
        return f"{type(self).__name__}.parse({str(self)!r})"

    def of_encoder(self, encoder: str) -> HeadSet:
        """Return the heads of the image encoder, `IMAGE`, or of the text encoder, `TEXT`."""
        return self.subset(head for head in self if head.encoder == encoder)

    def subset(self, heads: Iterable[Head]) -> HeadSet:
        """Return a subset, with the changes of its heads."""
        return HeadSet(heads)

    def __getitem__(self, key: Any) -> Any:
        """Return the head at a position, or the set of heads of a slice."""
        try:
            chosen = list(self)[key]
        except TypeError:
            raise InputError(f"A HeadSet takes a position or a slice, not {key!r}.") from None
        return self.subset(chosen) if isinstance(key, slice) else chosen

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers of the heads, in order."""
        return tuple(sorted({head.layer for head in self}))

    def in_layer(self, layer: int) -> tuple[int, ...]:
        """Return the numbers of a layer's heads, in order."""
        return tuple(head.head for head in self if head.layer == layer)

    def of_layer(self, layer: int) -> HeadSet:
        """Return a layer's heads."""
        return self.subset(head for head in self if head.layer == layer)

    def mean_output(self, head: Head) -> Any:
        """Return the mean [T, d] to use for a head; InputError if none is attached."""
        change = self._changes[head]
        if head not in (known := (self.means or {}).get(change.replacement, {})):
            first = "ccs.edit_heads" if change.attribute else "model.at_means(heads, images)"
            raise InputError(f"{head}={change.replacement} needs images: call {first} first.")
        return known[head]


def last_layers(layers: int, heads: int, encoder: str = IMAGE) -> HeadSet:
    """Return the heads that are scored by default, those of the last four layers.

    Args:
        layers: The number of layers.
        heads: The number of heads in each.
        encoder: IMAGE or TEXT.
    """
    last = range(max(0, layers - 4), layers)
    return HeadSet(Head(layer, head, encoder) for layer in last for head in range(heads))


def _split_names(text: str) -> list[str]:
    """Split a list of heads into names with their changes; InputError if it isn't a text."""
    if not isinstance(text, str):
        raise InputError(f"Heads are written as in 'L8.H11 L9.H2=0.3'; {text!r} names none.")
    spaced = " ".join(text.replace(",", " ").split())
    return re.split(f" (?={_NAME})", spaced) if spaced else []  # an attribute's name may have spaces


Heads: TypeAlias = "HeadSet | Head | str | Mapping[Any, HeadChange | float | str] | Iterable[Head | str]"
"""The forms of heads that callers can pass: see `Intervention.from_heads`."""


class Intervention(HeadSet):
    """Heads, each with the change of its output: 0 ablates, 1 changes nothing, 0.3, 1.5, `mean`.

    A `HeadSet` equals an `Intervention` whose factors are all 0. Both can be used wherever heads are ablated.
    `mean` is the head's mean output over given images, token by token, or over texts, at the token that is
    read. It needs `Model.at_means` first. `L6.H1=erase:skin tone` removes the directions of the groups from
    the output (`ccs.edit_heads`).

        >>> heads = Intervention.parse("L9.H2=0.30, L8.H11=0 L10.H0=mean")
        >>> str(heads)
        'L8.H11 L9.H2=0.3 L10.H0=mean'
    """

    __slots__ = ()

    def __init__(self, changes: Changes = (), means: Means | None = None) -> None:
        if isinstance(changes, HeadSet):
            means = means or changes.means
            changes = changes._changes
        self._fill(changes if isinstance(changes, Mapping) else dict.fromkeys(changes, 0.0), means)

    @classmethod
    def parse(cls, text: str) -> Intervention:
        """Read heads' names, each with `=` and its change; a name alone ablates the head.

        Raises:
            InputError: If the text is no such list, or names a head twice with different changes.
        """
        return cls(_merge_changes(word.split("=", 1) for word in _split_names(text)))

    @classmethod
    def from_heads(cls, heads: Heads | None) -> HeadSet:
        """Read heads in any form that callers use.

        Args:
            heads: Their notation; a head; a HeadSet or Intervention, returned as it is; heads or their names;
                a mapping of heads or their names to factors, `{"L9.H2": 0.3}`; or None, no heads.

        Raises:
            InputError: If it is none of these, or a head comes twice with different changes.
        """
        if isinstance(heads, HeadSet):
            return heads
        if isinstance(heads, Mapping):
            return cls(_merge_changes(heads.items()))
        if heads is None or isinstance(heads, str | Head):
            return cls.parse(str(heads or ""))
        return cls.parse(" ".join(map(str, heads)) if isinstance(heads, Iterable) else heads)

    def __getitem__(self, key: Any) -> Any:
        """Return a head's change, or the head at a position, or the intervention of a slice."""
        return self._changes[key] if isinstance(key, Head) else super().__getitem__(key)

    def subset(self, heads: Iterable[Head]) -> Intervention:
        """Keep the changes of these heads."""
        return Intervention({head: self._changes[head] for head in heads}, self.means)

    def __or__(self, other: Iterable[Any]) -> Intervention:
        return Intervention(self._changes | Intervention(other)._changes, self.means)

    def __ror__(self, other: Iterable[Any]) -> Intervention:
        return Intervention(other) | self  # Set's would forget what is done to these heads


def _merge_changes(pairs: Iterable[Iterable[Any]]) -> dict[Head, HeadChange]:
    """Return each head's change; heads without one are ablated. InputError for a head with two."""
    merged: dict[Head, HeadChange] = {}
    for name, *value in pairs:
        head = name if isinstance(name, Head) else Head.parse(name)
        change = HeadChange.from_value(*value or [0.0])
        if merged.setdefault(head, change) != change:
            raise InputError(f"{head} is named twice, with different changes.")
    return merged


def changes(heads: HeadSet) -> Iterable[tuple[Head, HeadChange]]:
    """Return each head with its change; a plain HeadSet ablates its heads."""
    return heads._changes.items()


def effect_word(heads: Heads) -> str:
    """Say how heads are changed: "ablated", "scaled", "replaced", "edited", or several of these."""
    kinds = {change.effect for _, change in changes(Intervention.from_heads(heads))}
    words = ("ablated", "scaled", "replaced", "edited")
    return " or ".join(word for word in words if word in kinds) or "ablated"


def require_weights(heads: HeadSet) -> None:
    """Raise InputError for a mean, which weights can't hold: it differs from token to token."""
    for head, change in changes(heads):
        if change.replacement == MEAN:
            raise InputError(f"Weights can hold factors and edits, and {head}{change} is neither of them.")
