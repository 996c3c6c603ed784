"""What a visitor's action brings along, checked: it comes from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ccs.errors import InputError

Fields = Mapping[str, Any]


def whole(value: object, name: str) -> int:
    """A whole number from 0; InputError for anything else."""
    text = str(value).strip()
    if not text.isascii() or not text.isdigit() or len(text) > 7:
        raise InputError(f"The {name} must be a whole number of at most seven digits, not {text[:20]!r}.")
    return int(text)


def among(value: object, allowed: Sequence[str], name: str) -> str:
    """One of the words allowed; InputError for any other."""
    if value not in allowed:
        raise InputError(f"There is no {name} {str(value)[:20]!r}.")
    return str(value)
