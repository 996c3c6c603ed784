"""Facts about the heads of the bundled models: training targets, measured shares, and planted skew."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import TypeAdapter
from safetensors import safe_open
from safetensors.numpy import load_file

from ccs.files import sha256
from ccs.heads import Head, HeadSet

FILE = "heads.json"
WORDS = "words.txt"
FIRST_SCREEN, WEIGHTS = "first_screen.safetensors", "open_clip_model.safetensors"
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


@lru_cache(64)
def known_heads(model: str) -> KnownHeads | None:
    """Return the facts about the heads of a bundled model; None if there are none."""
    content = _read(model, FILE)
    return None if content is None else TypeAdapter(KnownHeads).validate_json(content)


@lru_cache(64)
def _read(model: str, name: str) -> bytes | None:
    """Return a file of a bundled model; None if there is none."""
    file = _MODELS / model / name
    return file.read_bytes() if "/" not in model and file.is_file() else None


class FirstScreen(NamedTuple):
    """The data of a bundled model that Start and Bias show first (`scripts/first_screen.py` writes them).

    Attributes:
        weights: The hash of the model's weights.
        logit_scale: The model's.
        values: Key of the app's cache, as its repr, which names weights and images -> embeddings.
    """

    weights: str
    logit_scale: float
    values: Mapping[str, np.ndarray]


@lru_cache(64)
def first_screen(model: str) -> FirstScreen | None:
    """Return what is stored for a model's first screen; None for most, and for other weights."""
    folder = _MODELS / model
    if "/" in model or not (folder / FIRST_SCREEN).is_file():
        return None
    with safe_open(folder / FIRST_SCREEN, "numpy") as stored:
        facts = stored.metadata()
    if facts["file"] != sha256(folder / WEIGHTS):
        return None
    return FirstScreen(facts["weights"], float(facts["logit_scale"]), load_file(folder / FIRST_SCREEN))


def stored_value(key: object) -> np.ndarray | None:
    """Return the value of a key of the app's cache, if it is stored for a bundled model's first screen."""
    screens = [first_screen(folder.name) for folder in _MODELS.iterdir() if folder.is_dir()]
    return next((s.values[name] for s in screens if s and (name := repr(key)) in s.values), None)


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


TRUTH_FILE = "truth.json"


@dataclass(frozen=True, kw_only=True)
class Planted:
    """The heads in which skew was planted.

    Attributes:
        heads: The only heads that were trained.
        carries: Planted attribute or concept -> its heads; empty for a control.
    """

    heads: HeadSet
    carries: Mapping[str, HeadSet]


@lru_cache(64)
def planted_truth(model: str) -> Planted | None:
    """Return the truth about the bundled model of that name; None if nothing was planted in it."""
    content = _read(model, TRUTH_FILE)
    return None if content is None else TypeAdapter(Planted).validate_json(content)
