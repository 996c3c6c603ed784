"""Tidy the names of classes and groups, merge their spellings, and sort them."""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable


def tidy(cell: object) -> str:
    """Return a cell as text: entities resolved, Unicode composed, single spaces, whole floats as whole."""
    text = repr(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)
    return " ".join(unicodedata.normalize("NFC", html.unescape(text)).split())


def merge_spellings(names: Iterable[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Map names that are one text to a model to their most frequent spelling.

    Case, spaces, underscores, and hyphens make no difference.

    Returns:
        Each name's spelling, and a note for each name that is merged into another.
    """
    counts = Counter(names)
    spellings: dict[str, str] = {}
    merged: dict[str, str] = {}
    for name in sorted(counts, key=lambda name: (-counts[name], name)):
        text = re.sub(r"_|(?<=\w)-(?=\w)", " ", tidy(name)).casefold()
        merged[name] = spellings.setdefault(" ".join(text.split()), name)
    notes = [f"{name!r} is read as {merged[name]!r}" for name in merged if name and name != merged[name]]
    return merged, tuple(notes)


def are_numbers(names: Iterable[str]) -> bool:
    """Return True if all names are whole numbers."""
    return all(re.fullmatch(r"\d{1,9}", name, re.ASCII) for name in names)


def in_order(names: Iterable[str]) -> list[str]:
    """Sort names: whole numbers by value, others as text."""
    names = list(names)
    return sorted(names, key=lambda name: (int(name), name)) if are_numbers(names) else sorted(names)
