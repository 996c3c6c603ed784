"""Facts about the heads of the bundled models: training targets, measured shares, and planted skew."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter
from safetensors.numpy import load

from ccs.heads import Head, HeadSet

FILE = "heads.json"
WORDS = "words.txt"
EMBEDDINGS = "embeddings.safetensors"
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


@lru_cache(64)
def stored_embeddings(model: str) -> Mapping[str, np.ndarray]:
    """Return a bundled model's embeddings of the images that the app shows first; most models have none.

    A key is the hash of the weights, the fingerprint of the images, and the head whose contributions these
    are ("" for embeddings), so other weights or images never get them.
    `scripts/first_screen.py` writes them.
    """
    content = _read(model, EMBEDDINGS)
    return {} if content is None else load(content)


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
