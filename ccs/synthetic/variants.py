"""Scenes that differ in one factor, such as a thing, an occupation, or a face, and their clips."""

from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from ccs.synthetic import vocabulary as words
from ccs.synthetic.scene import AROUND, Scene, draw

FRAMES = 8
"""Frames of a clip."""


def show(s: Scene, factor: str, value: str) -> Scene:
    """Return a scene with another value of a factor.

    Args:
        s: The scene.
        factor: A field of `Scene`; "thing", an animal or vehicle, which replaces both; "unseen", the same in
            a style that training images don't have; or "occupation", a worker of random groups.
        value: The value.
    """
    if factor == "occupation":
        rng = np.random.default_rng((s.seed, 3))
        gender, tone = (group[rng.integers(len(group))] for group in (words.GENDERS, words.SKIN_TONES))
        return worker(s, value, gender, tone)
    change: dict[str, Any] = {factor: value}
    if factor in ("thing", "unseen"):
        change = {name: value if value in AROUND[name] else "" for name in ("animal", "vehicle")}
    if factor == "unseen":
        change["style"] = words.UNSEEN_STYLES[s.seed % len(words.UNSEEN_STYLES)]
    return replace(s, **change)


def worker(s: Scene, occupation: str, gender: str, tone: str) -> Scene:
    """Return a scene with an adult of an occupation, with its props.

    Args:
        s: The scene.
        occupation: What the adult works as.
        gender: Gender presentation.
        tone: Skin tone.
    """
    person: dict[str, Any] = {"gender": gender, "skin_tone": tone, "age": "adult", "hair": "", "props": True}
    return replace(s, kind="occupation", subject=occupation, occupation=occupation, **person)


def face(s: Scene, row: int, gender: str, tone: str) -> Scene:
    """Return a scene with an adult's face and nothing else.

    Args:
        s: The scene.
        row: The number of the face, which sets its hair.
        gender: Gender presentation.
        tone: Skin tone.
    """
    person: dict[str, Any] = {"gender": gender, "skin_tone": tone, "age": "adult", "props": False}
    person |= dict.fromkeys((*AROUND, "occupation"), "") | {"hair": words.HAIRS[row % (len(words.HAIRS) - 1)]}
    return replace(s, kind="face", subject=gender, **person)


def clip(s: Scene) -> list[Image.Image]:
    """Draw the frames of a clip in which the subject moves sideways."""
    toward = 1 if s.seed % 2 else -1
    return [draw(s, drift=float(toward * d)) for d in np.linspace(-0.12, 0.12, FRAMES)]
