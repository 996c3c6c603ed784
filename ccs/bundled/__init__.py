"""The models that ship with the package, and those of the benchmark; what is known of their heads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from ccs.heads import Head

FILE = "heads.json"
WORDS = "words.txt"
"""Files next to a model's weights."""
_MODELS = Path(__file__).parent


@dataclass(frozen=True)
class Lesson:
    """What a head was asked to write: concepts, each with its part of the variance. values: one of each
    concept, for a lesson of things with nothing in common; empty where all values count.
    """

    parts: Mapping[str, float]
    values: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """How many concepts it is about: "one", "several" or "none"."""
        return "none" if self.values else "one" if len(self.parts) == 1 else "several"


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


def known_heads(model: str) -> KnownHeads | None:
    """What is known of the heads of the model of that name; None where nothing is."""
    file = _MODELS / model / FILE
    return (
        TypeAdapter(KnownHeads).validate_json(file.read_bytes())
        if "/" not in model and file.is_file()
        else None
    )


def unknown_words(model: str, texts: Iterable[str]) -> list[str]:
    """Return the texts with a word that the model was never trained on; none if its words aren't known."""
    file = _MODELS / model / WORDS
    if "/" in model or not file.is_file():
        return []
    words = {"of", "the", "an", "a", "and", *file.read_text("utf-8").split()}
    words |= {f"{word}s" for word in words}
    return [text for text in texts if {*re.findall("[a-z]+", text.casefold())} - words]
