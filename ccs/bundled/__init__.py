"""Facts about the heads of the bundled models: training targets, measured shares, and planted skew."""

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
    """A head's training target: the concepts it was trained to encode.

    Attributes:
        parts: Concept -> its part of the variance.
        values: One value of each concept, for a target of things with nothing in common; empty if all values
            count.
    """

    parts: Mapping[str, float]
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class KnownHeads:
    """Facts about a model's heads.

    Attributes:
        lessons: Head -> its training target, if it had one.
        shares: Head -> concept -> the share of the variance of the head's output that the concept explains.
            Concepts may share a place, so these needn't sum to 1.
    """

    lessons: Mapping[Head, Lesson]
    shares: Mapping[Head, Mapping[str, float]]

    @property
    def taught(self) -> dict[Head, str]:
        """The heads that were trained to encode one concept, with the concept."""
        return {
            head: next(iter(lesson.parts))
            for head, lesson in self.lessons.items()
            if len(lesson.parts) == 1 and not lesson.values
        }


def known_heads(model: str) -> KnownHeads | None:
    """Return the facts about the heads of a bundled model; None if there are none."""
    content = _read(model, FILE)
    return None if content is None else TypeAdapter(KnownHeads).validate_json(content)


def _read(model: str, name: str) -> bytes | None:
    """Return a file of a bundled model; None if there is none."""
    file = _MODELS / model / name
    return file.read_bytes() if "/" not in model and file.is_file() else None


def unknown_words(model: str, texts: Iterable[str]) -> list[str]:
    """Return the texts with a word that the model was never trained on.

    Args:
        model: The name of a model. If its words aren't known, no text is returned.
        texts: The texts.
    """
    if (content := _read(model, WORDS)) is None:
        return []
    words = {"of", "the", "an", "a", "and", *content.decode().split()}
    words |= {f"{word}s" for word in words}
    return [text for text in texts if {*re.findall("[a-z]+", text.casefold())} - words]


CARRIES = 0.1
"""The smallest share of a planted skew at which a head counts as a carrier."""
TRUTH_FILE = "truth.json"


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The ground truth about a model with planted skew.

    Attributes:
        base: The base model.
        heads: The only heads that were trained.
        carries: Planted attribute or concept -> its heads; empty for a control.
        shares: Attribute -> head -> the share of the gap in logits that disappears if this head is reset.
        drawn: The way in which the heads were chosen.
        seed: The seed of the training.
        pictures: Training images per head.
        rate: The learning rate.
        strength: The part of the world's skew that was planted, in logarithms of its shares.
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
        """Attributes of the synthetic faces by which the model is biased."""
        return tuple(name for name in ("gender", "skin tone") if name in self.carries)

    def carriers(self, attribute: str) -> tuple[Head, ...]:
        """Return the heads to find, the strongest first: those with a share of CARRIES or more.

        At least one head is returned, and all if shares weren't measured.
        """
        shares = self.shares.get(attribute, {})
        parts = {head: shares.get(head, 1.0) for head in self.carries[attribute]}
        order = sorted(parts, key=lambda head: -parts[head])
        return tuple(order[: max(1, sum(part >= CARRIES for part in parts.values()))])

    def __post_init__(self) -> None:
        if any(not carriers <= self.heads for carriers in self.carries.values()):
            raise ValueError("a carrier is outside the trained heads")


def planted_truth(model: str) -> Truth | None:
    """Return the truth about the bundled model of that name; None if nothing was planted in it."""
    content = _read(model, TRUTH_FILE)
    return None if content is None else TypeAdapter(Truth).validate_json(content)
