"""Names of attention heads, and sets of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from typing import Any

from ccs.errors import InputError

_NAME = re.compile(r"([LT])(\d{1,6})\.H(\d{1,6})", re.ASCII | re.IGNORECASE)
IMAGE, TEXT = "L", "T"
"""The towers, by the letter in a head's name."""
TOWERS = {IMAGE: "image", TEXT: "text"}


def _as_text(cls: Any, *_: Any) -> Any:
    """In data a head, or a set of them, is the text that `parse` reads."""
    from pydantic_core import core_schema as schema

    return schema.no_info_after_validator_function(
        cls.parse, schema.str_schema(), serialization=schema.plain_serializer_function_ser_schema(str)
    )


@dataclass(frozen=True, order=True)
class Head:
    """One attention head; layers and heads count from 0. Written `L11.H5`, in the text tower `T11.H5`.

    >>> str(Head(11, 5)), Head.parse("T3.H0").tower
    ('L11.H5', 'T')
    """

    layer: int
    head: int
    tower: str = IMAGE

    def __post_init__(self) -> None:
        if self.layer < 0 or self.head < 0:
            raise InputError(f"Layers and heads count from 0, not {self.layer} and {self.head}.")

    @classmethod
    def parse(cls, text: str) -> Head:
        """`Head.parse("L11.H5") == Head(11, 5)`; raises InputError for anything else."""
        match = _NAME.fullmatch(text.strip())
        if match is None:
            raise InputError(f"{text[:40]!r} is not the name of a head, such as L11.H5 (layer 11, head 5).")
        return cls(int(match[2]), int(match[3]), match[1].upper())

    __get_pydantic_core_schema__ = classmethod(_as_text)

    def __str__(self) -> str:
        return f"{self.tower}{self.layer}.H{self.head}"


class HeadSet(Set[Head]):
    """An immutable, hashable set of heads in order of layer, then head; those of the text tower come last.

    Python's set operators work (`|`, `&`, `-`, `^`, `<=`, `in`). `HeadSet()` is the empty set.

        >>> off = HeadSet.parse("L9.H2, L8.H11")
        >>> str(off)
        'L8.H11 L9.H2'
    """

    __slots__ = ("_heads",)

    def __init__(self, heads: Iterable[Head] = ()) -> None:
        members = frozenset(heads)
        for head in members:
            if not isinstance(head, Head):
                raise InputError(f"A HeadSet holds Heads, not {head!r}; HeadSet.parse reads a text.")
        self._heads = tuple(sorted(members, key=lambda head: (head.tower, head)))

    @classmethod
    def parse(cls, text: str) -> HeadSet:
        """Heads by name, separated by spaces or commas; an empty text is the empty set."""
        return cls(Head.parse(name) for name in text.replace(",", " ").split())

    __get_pydantic_core_schema__ = classmethod(_as_text)

    def __contains__(self, head: object) -> bool:
        return head in self._heads

    def __iter__(self) -> Iterator[Head]:
        return iter(self._heads)

    def __len__(self) -> int:
        return len(self._heads)

    def __hash__(self) -> int:
        return hash(frozenset(self._heads))  # that of an equal set of another type

    def __str__(self) -> str:
        return " ".join(map(str, self._heads))

    def __repr__(self) -> str:
        return f"HeadSet.parse({str(self)!r})"

    def of_tower(self, tower: str) -> HeadSet:
        """The heads of the image tower, `IMAGE`, or of the text tower, `TEXT`."""
        return HeadSet(head for head in self._heads if head.tower == tower)

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that the heads are in, in order."""
        return tuple(sorted({head.layer for head in self._heads}))

    def in_layer(self, layer: int) -> tuple[int, ...]:
        """The numbers of the heads of one layer, in order."""
        return tuple(head.head for head in self._heads if head.layer == layer)

    def of_layer(self, layer: int) -> HeadSet:
        """The heads of one layer."""
        return HeadSet(head for head in self._heads if head.layer == layer)


def last_layers(layers: int, heads: int, tower: str = IMAGE) -> HeadSet:
    """The heads that are scored by default: those of the last four of `layers` layers of so many heads."""
    last = range(max(0, layers - 4), layers)
    return HeadSet(Head(layer, head, tower) for layer in last for head in range(heads))
