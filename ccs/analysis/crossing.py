"""Crossed groups: `--attribute "gender,race"` ranks people by both at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ccs.data import BiasSet, Lazy
from ccs.errors import InputError

NOUNS = {"woman", "man", "girl", "boy", "female", "male"}
"""Groups that are nouns in prompts; others get "person"."""
SMALLEST = 10
"""Fewest people in a crossed group. With fewer, its share of the top K is mostly noise."""


def cross_groups(
    gallery: BiasSet, attribute: str, smallest: int = SMALLEST
) -> tuple[BiasSet, Mapping[str, int]]:
    """Add crossed groups to a gallery, such as "woman, dark" for the attribute "gender,skin tone".

    Args:
        gallery: people with groups.
        attribute: names of the gallery's attributes with commas between them.
        smallest: fewest people in a crossed group. People in smaller groups are left out of the gallery.

    Returns:
        tuple: the gallery with `attribute` among its groups, and the number of people left out by group.

    Raises:
        InputError: If an attribute is unknown or named twice, or fewer than two crossed groups are left.
    """
    names = [name.strip() for name in attribute.split(",")]
    if unknown := [name for name in names if name not in gallery.groups]:
        raise InputError(
            f"{gallery.name} has no attribute {unknown[0][:40]!r}; it has {', '.join(gallery.groups)}."
        )
    if len(set(names)) < len(names) or len(names) < 2:
        raise InputError(f"Crossed groups need two or more different attributes, not {attribute[:60]!r}.")
    parts = zip(*(gallery.groups[name].tolist() for name in names), strict=True)
    crossed = np.array([", ".join(map(str, part)) for part in parts])
    counts = Counter(crossed.tolist())
    small = {group: count for group, count in sorted(counts.items()) if count < smallest}
    if len(counts) - len(small) < 2:
        raise InputError(
            f"Fewer than two groups of {attribute!r} have {smallest} people or more; the largest has "
            f"{max(counts.values())}. Cross fewer attributes or use a larger gallery."
        )
    rows = np.flatnonzero(~np.isin(crossed, list(small)))
    k = max(1, len(rows) // 10) if small else min(gallery.k[name] for name in names)
    return replace(
        gallery,
        images=gallery.images if not small else Lazy(gallery.images.__getitem__, rows.tolist()),
        groups={name: values[rows] for name, values in gallery.groups.items()} | {attribute: crossed[rows]},
        k={**gallery.k, attribute: k},
        digests=None if gallery.digests is None else gallery.digests[rows],
        pools=None if gallery.pools is None else gallery.pools[rows],
        units=None if gallery.units is None else gallery.units[rows],
    ), small


def format_left_out(left_out: Mapping[str, int]) -> str:
    """Return the groups that are too small, such as "3 woman, dark", or ""."""
    return ", ".join(f"{count} {group}" for group, count in left_out.items())


def name_person(group: str) -> str:
    """Return a person of a group: "man" as it is, "dark" as "dark person", "woman, dark" as "dark woman"."""
    words = group.split(", ")
    noun = next((word for word in words if word.lower() in NOUNS), "person")
    return " ".join([*(word for word in words if word != noun), noun])
