"""What is known of the heads of the models that come with the package."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from ccs.heads import Head, HeadSet

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


CARRIES = 0.1
"""The least share of a planted skew with which a head counts as one that carries it."""
TRUTH_FILE = "truth.json"


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The truth about a model in which something was planted.

    base: the model it started from. heads: the only part that was trained. carries: what was planted
    ("gender", a concept) -> its heads; empty for a control. shares: attribute -> head -> the share of the gap
    in logits that goes when this head alone is reset. drawn: how the heads were chosen. seed, pictures (per
    head), rate: of the training. strength: the part of the world's skew that was planted, in logarithms of
    its shares.
    """

    base: str
    heads: HeadSet
    carries: Mapping[str, HeadSet]
    shares: Mapping[str, Mapping[Head, float]]
    drawn: str
    seed: int
    pictures: int
    rate: float
    strength: float = 1.0

    @property
    def attributes(self) -> tuple[str, ...]:
        return tuple(name for name in ("gender", "skin tone") if name in self.carries)

    def carriers(self, attribute: str) -> tuple[Head, ...]:
        """The heads to find: those that carry CARRIES of the attribute's skew or more, most first; never
        none, and all where shares were not measured.
        """
        shares = self.shares.get(attribute, {})
        parts = {head: shares.get(head, 1.0) for head in self.carries[attribute]}
        order = sorted(parts, key=lambda head: -parts[head])
        return tuple(order[: max(1, sum(part >= CARRIES for part in parts.values()))])

    def __post_init__(self) -> None:
        if any(not own <= self.heads for own in self.carries.values()):
            raise ValueError("what was planted lies outside the heads that learned")


def planted_truth(model: str) -> Truth | None:
    """Return the truth about the bundled model of that name; None if nothing was planted in it."""
    file = _MODELS / model / TRUTH_FILE
    if "/" in model or not file.is_file():
        return None
    return TypeAdapter(Truth).validate_json(file.read_bytes())
