"""Names of classes and groups: the cells of a table as text, spellings of one name, and their order."""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Any

_UNKNOWN = ("nan", "NaN", "<NA>")
"""Texts that pandas makes of a missing value."""
_WRITTEN_LIST = re.compile(r"""\[['"{].*\]|\{['"].*\}""", re.DOTALL)


def tidy(cell: object) -> str:
    """Return a cell as text: HTML entities resolved, NFC, single spaces, and 7.0 as "7"."""
    text = repr(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)
    return " ".join(unicodedata.normalize("NFC", html.unescape(text)).split())


def plain(cell: Any) -> Any:
    """Return a cell as text, a number, a Boolean, or None; a list or record of one value becomes that value.

    Bytes, and lists and records of several values, are returned unchanged. They can't label images.
    """
    if isinstance(cell, dict | list) and len(cell) <= 1:
        cell = next(iter(cell.values() if isinstance(cell, dict) else cell), None)
    if cell != cell or cell in _UNKNOWN:
        return None
    if isinstance(cell, float | Decimal):
        cell = float(cell) if cell % 1 else int(cell)
    return cell if isinstance(cell, str | int | float | bytes | list | dict | None) else str(cell)


def is_several(cell: Any) -> bool:
    """Return True for bytes, a list, a record, or the text of one: a plain cell that can't label an image."""
    is_written = isinstance(cell, str) and _WRITTEN_LIST.fullmatch(cell)
    return isinstance(cell, bytes | list | dict) or bool(is_written)


def spelling(name: str) -> str:
    """Return the common form of spellings that differ in case, space, _, -, and invisible characters only."""
    visible = "".join(letter for letter in tidy(name) if unicodedata.category(letter) != "Cf")
    return " ".join(re.sub(r"_|(?<=\w)-(?=\w)", " ", visible).casefold().split()) or name


def merge_spellings(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Replace spellings of the same name by the most frequent one.

    Returns:
        The spellings, and a note for each name that is merged into another.
    """
    counts = Counter(names)
    spellings: dict[str, str] = {}
    merged: dict[str, str] = {}
    for name in sorted(counts, key=lambda name: (-counts[name], name)):
        merged[name] = spellings.setdefault(spelling(name), name)
    notes = [f"{name!r} is read as {merged[name]!r}" for name in merged if name and name != merged[name]]
    return [merged[name] for name in names], notes


def are_numbers(names: Collection[str]) -> bool:
    """Return True if all names are whole numbers, such as 7 or 7.0, and no two are equal."""
    whole = all(re.fullmatch(r"\d{1,9}(\.0+)?", name, re.ASCII) for name in names)
    return whole and len({*map(float, names)}) == len(names)


def in_order(names: Collection[str]) -> list[str]:
    """Sort names: whole numbers by value, others as text."""
    return sorted(names, key=float if are_numbers(names) else None)
