"""The models that ship with the package, and those of the benchmark; what is known of their heads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccs.heads import Head

FILE = "heads.json"
"""Beside a model's weights."""
_MODELS = Path(__file__).parent


@dataclass(frozen=True)
class Lesson:
    """What a head was asked to write while the model learned: concepts, each with its part of the variance.

    values: one of each concept, a lesson of things with nothing in common; empty where all values count.
    """

    parts: Mapping[str, float]
    values: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """How many concepts it is about: "one", "several" or "none"."""
        return "none" if self.values else "one" if len(self.parts) == 1 else "several"

    def to_json(self) -> dict[str, Any]:
        return {"parts": dict(self.parts), "values": list(self.values)}

    @classmethod
    def from_json(cls, held: Mapping[str, Any]) -> Lesson:
        return cls(held["parts"], tuple(held["values"]))


@dataclass(frozen=True)
class KnownHeads:
    """lessons: of the heads that had one. shares: head -> concept -> the share of the variance of what it
    writes that goes with what is shown of the concept. Concepts may share a place, so these need not add up
    to 1.
    """

    lessons: Mapping[Head, Lesson]
    shares: Mapping[Head, Mapping[str, float]]

    @property
    def taught(self) -> dict[Head, str]:
        """The heads that were taught one concept, with it."""
        return {head: next(iter(one.parts)) for head, one in self.lessons.items() if one.kind == "one"}

    def to_json(self) -> str:
        """The text of FILE."""
        lessons = {str(head): one.to_json() for head, one in self.lessons.items()}
        shares = {str(head): dict(own) for head, own in self.shares.items()}
        return json.dumps({"lessons": lessons, "shares": shares}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> KnownHeads:
        """What `to_json` wrote."""
        held = json.loads(text)
        return cls(
            {Head.parse(head): Lesson.from_json(one) for head, one in held["lessons"].items()},
            {Head.parse(head): own for head, own in held["shares"].items()},
        )


def known_heads(model: str) -> KnownHeads | None:
    """What is known of the heads of the model of that name; None where nothing is."""
    file = _MODELS / model / FILE
    return KnownHeads.from_json(file.read_text("utf-8")) if "/" not in model and file.is_file() else None
