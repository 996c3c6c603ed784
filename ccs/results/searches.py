"""Searches for heads, stored beside a model's results in `<folder of results>/<model>.search.json`.

The file is beside the model's folder because a new run removes everything but its tables from that folder.
Searches of other weights than those of the results are left out with a notice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ccs.errors import InputError
from ccs.files import write_text
from ccs.heads import HeadSet
from ccs.measures.stats import Effect, Estimate
from ccs.results import folder_name
from ccs.search import HeldOut, Limits, Point

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Search:
    """One search: the question, the answer (`heads`), and its figures on both halves.

    `seen`: every head alone, no head off, then each step, on the half that the search saw; `unseen`: on the
    other half. `k`: the cut-off over all images of people (halved in each half), or over those of an
    occupation. `again`: the answers of further searches, on both halves of other splits.
    """

    model: str
    weights_hash: str
    people: str
    attribute: str
    things: str
    prompts: tuple[str, ...]
    templates: tuple[str, ...]
    k: int
    seed: int
    limits: Limits
    heads: HeadSet
    seen: tuple[Point, ...]
    unseen: tuple[HeldOut, ...]
    again: tuple[HeadSet, ...] = ()

    @property
    def asked(self) -> tuple[str, str, str]:
        """The question; a new search with the same question replaces the old one."""
        return self.people, self.attribute, self.things


def place(folder: Path, model: str) -> Path:
    """The file of a model's searches in a folder of results."""
    return folder / f"{folder_name(model)}.search.json"


def as_data(search: Search) -> dict[str, Any]:
    """The search as plain data."""
    data = asdict(search) | {"heads": str(search.heads)}
    data["seen"] = [asdict(one) | {"off": str(one.off)} for one in search.seen]
    data["again"] = [str(one) for one in search.again]
    data["unseen"] = [asdict(one) | {"heads": str(one.heads)} for one in search.unseen]
    return data


def of_data(data: Mapping[str, Any]) -> Search:
    """The search from `as_data`'s output. Raises KeyError, TypeError or ValueError for anything else."""
    given = dict(data)
    given |= {name: tuple(str(text) for text in given[name]) for name in ("prompts", "templates")}
    given |= {"limits": Limits(**given["limits"]), "heads": HeadSet.parse(given["heads"])}
    given["seen"] = tuple(Point(**(one | {"off": HeadSet.parse(one["off"])})) for one in given["seen"])
    given["again"] = tuple(HeadSet.parse(one) for one in given.get("again", ()))
    given["unseen"] = tuple(_held_out(one) for one in given["unseen"])
    return Search(**given)


def _held_out(data: Mapping[str, Any]) -> HeldOut:
    figures: dict[str, Any] = {name: Estimate(**data[name]) for name in ("max_skew", "chance", "accuracy")}
    figures |= {name: Effect(**data[name]) for name in ("max_skew_change", "accuracy_change")}
    return HeldOut(**{**data, **figures, "heads": HeadSet.parse(data["heads"])})


def keep(folder: Path, search: Search) -> Path:
    """Store a search beside the results, replacing any with the same question or of other weights."""
    path = place(folder, search.model)
    earlier = _read(path) if path.exists() else ()
    kept = [one for one in earlier if one.asked != search.asked and one.weights_hash == search.weights_hash]
    every = sorted([*kept, search], key=lambda one: one.asked)
    text = json.dumps({"version": VERSION, "searches": [as_data(one) for one in every]}, indent=1)
    write_text(path, text + "\n")
    return path


def beside(folder: Path, model: str, weights_hash: str) -> tuple[tuple[Search, ...], str]:
    """The searches of these weights stored in a folder, and a notice if some cannot be used."""
    path = place(folder, model)
    if not path.exists():
        return (), ""
    try:
        found = _read(path)
    except InputError as error:
        return (), str(error)
    current = tuple(one for one in found if one.weights_hash == weights_hash)
    if len(current) < len(found):
        return (
            current,
            f"{path} holds searches of other weights than the results of {model}; they are left out.",
        )
    return current, ""


def _read(path: Path) -> Sequence[Search]:
    try:
        data = json.loads(path.read_text("utf-8"))
        version = data["version"]
        found = [of_data(one) for one in data["searches"]] if version == VERSION else []
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:  # InputError is a ValueError
        raise InputError(f"{path} is not what python -m batch.search writes ({error!r}).") from None
    if version != VERSION:
        raise InputError(f"{path} has version {version!r} and this program reads version {VERSION}.")
    return found
