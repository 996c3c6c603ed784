"""Groups of people as FairFace and the study define them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from ccs.errors import InputError

# FairFace's own two genders and seven races, and the study's six races (East and Southeast Asian are one).
GENDERS: Mapping[str, str] = {"Male": "Male", "Female": "Female"}
RACES_SEVEN: Mapping[str, str] = {
    "Black": "Black",
    "East Asian": "East Asian",
    "Indian": "Indian",
    "Latino_Hispanic": "Latino",
    "Middle Eastern": "Middle Eastern",
    "Southeast Asian": "Southeast Asian",
    "White": "White",
}
RACES_SIX: Mapping[str, str] = {**RACES_SEVEN, "East Asian": "Asian", "Southeast Asian": "Asian"}


def merge_groups(groups: Iterable[str], definition: Mapping[str, str]) -> NDArray[np.str_]:
    """Groups renamed, and so merged, by a definition such as RACES_SIX; a group it lacks is an InputError."""
    names = [str(name) for name in groups]
    for name in names:
        if name not in definition:
            raise InputError(f"The group {name!r} is not defined; the groups are {', '.join(definition)}.")
    return np.array([definition[name] for name in names], dtype=np.str_)
