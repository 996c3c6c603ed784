"""Quality of a ranking of heads: precision against known heads, and its first heads as plans."""

from __future__ import annotations

from collections.abc import Sequence

from ccs.errors import InputError
from ccs.heads import Head, HeadSet

MOST = 8
"""The most heads to switch off: the first one, the first two, and so on."""


def average_precision(order: Sequence[Head], planted: HeadSet) -> float:
    """The mean, over the planted heads, of the precision at their places in the order.

    1 if they come first; a head missing from the order counts as 0. InputError without planted heads.
    """
    places = _places(order, planted)
    return sum(found / place for found, place in enumerate(places, 1)) / len(planted)


def precision(order: Sequence[Head], planted: HeadSet) -> float:
    """The share of planted heads among as many first ones as were planted; InputError if none were."""
    return sum(place <= len(planted) for place in _places(order, planted)) / len(planted)


def first(order: Sequence[Head], most: int = MOST) -> list[HeadSet]:
    """The first head of the order, the first two, ..., up to `most` or all of them."""
    return [HeadSet(order[:size]) for size in range(1, min(most, len(order)) + 1)]


def _places(order: Sequence[Head], planted: HeadSet) -> list[int]:
    """Places of the planted heads in the order, from 1."""
    if not planted:
        raise InputError("A ranking can be scored only against one or more planted heads.")
    return [place for place, head in enumerate(order, 1) if head in planted]
