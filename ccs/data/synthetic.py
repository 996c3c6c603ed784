"""Evaluation sets of the synthetic world, from seeds that training never sees (below 10^6 or from 10^12 on).

Each set takes scenes from its own range of seeds, sets its factor to each value in turn, and leaves the other
factors as the world draws them, so that classes differ systematically only in that factor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import count, islice, product
from typing import Any

import numpy as np
from PIL import Image

from ccs.data import BiasSet, ClassificationSet, ImageSet, Lazy, RetrievalSet
from ccs.errors import InputError, require_seed
from ccs.synthetic import vocabulary as words
from ccs.synthetic.scene import AROUND, Scene, draw, full_caption, scene

VERSION = 2  # raised whenever the image of the same factors changes
SOURCE = "synthetic world (OpenMoji, CC BY-SA 4.0)"
FRAMES = 8
FRESH = 10**6
"""Scenes in the range of a seed, and the ranges that are left out because training may use them."""
_Show = Callable[[Scene, int], Scene]


class Drawn(Lazy[Any]):
    """The images of scenes, or with `make` their clips, drawn on every access."""

    def __init__(self, scenes: Sequence[Scene], make: Callable[[Scene], Any] = draw) -> None:
        super().__init__(make, tuple(scenes))
        self.scenes = tuple(scenes)


def _clip(s: Scene) -> list[Image.Image]:
    """Draw the frames of a clip in which the subject moves sideways."""
    toward = 1 if s.seed % 2 else -1
    return [draw(s, drift=float(toward * d)) for d in np.linspace(-0.12, 0.12, FRAMES)]


def _fingerprint(scenes: Sequence[Scene], extra: str = "") -> str:
    text = f"{VERSION} {extra} " + "\n".join(map(repr, scenes))
    return hashlib.sha256(text.encode()).hexdigest()


def _scenes(start: int, seed: int | None) -> Iterator[Scene]:
    """Yield the balanced world's scenes from number `start` on, or with a seed from its fresh range on."""
    if seed is None:
        return map(scene, count(start))
    require_seed(seed)
    return map(scene, count(start + FRESH * (FRESH + seed)))


def _name(name: str, seed: int | None) -> str:
    return f"world/{name}" if seed is None else f"world/{name} (seed {seed})"


@lru_cache(maxsize=1)
def _classifications() -> dict[str, tuple[tuple[str, ...], tuple[str, ...], int, _Show]]:
    """Return each set's classes, templates, first seed, and function that makes a scene show class i."""
    things, occupations = AROUND["animal"] + AROUND["vehicle"], tuple(words.OCCUPATIONS)
    whole = ("a {}", "a picture of a {}", "a drawing of a {}", "an image of a {}")
    beside, near = ("{}", "a picture with {}"), ("a {}", "a picture with a {}")

    def thing(s: Scene, i: int) -> Scene:
        """Return the scene with the animal or vehicle of class i, and without the other of the two.

        Args:
            s: The scene.
            i: The class, an index into `things`.
        """
        animal, vehicle = (things[i] if things[i] in AROUND[name] else "" for name in ("animal", "vehicle"))
        return replace(s, animal=animal, vehicle=vehicle)

    def unseen(s: Scene, i: int) -> Scene:
        """Return the scene as in `thing`, in a style that training images don't have.

        Args:
            s: The scene; its seed selects the style.
            i: The class, an index into `things`.
        """
        return replace(thing(s, i), style=words.UNSEEN_STYLES[s.seed % len(words.UNSEEN_STYLES)])

    def worker(s: Scene, i: int) -> Scene:
        """Return the scene with an adult of occupation i, of random gender and skin tone.

        Args:
            s: The scene; its seed selects the gender and skin tone.
            i: The class, an index into `occupations`.
        """
        rng = np.random.default_rng((s.seed, 3))
        gender = words.GENDERS[rng.integers(len(words.GENDERS))]
        tone = words.SKIN_TONES[rng.integers(len(words.SKIN_TONES))]
        person: dict[str, Any] = {"occupation": occupations[i], "props": True, "age": "adult", "hair": ""}
        return replace(s, kind="occupation", subject=occupations[i], gender=gender, skin_tone=tone, **person)

    def around(factor: str) -> _Show:
        def show(s: Scene, i: int) -> Scene:
            """Return the scene with the factor's value for class i.

            Args:
                s: The scene.
                i: The class, an index into the factor's values.
            """
            value: dict[str, Any] = {factor: AROUND[factor][i]}
            return replace(s, **value)

        return show

    frames = ("a {} frame", "a picture in a {} frame")
    flag, letter = (tuple(t.format(name) for t in beside) for name in ("the flag of {}", "the letter {}"))
    return {
        "subjects": (things, near, 100_000, thing),
        "subjects-ood": (things, near, 150_000, unseen),
        "occupations": (occupations, whole, 200_000, worker),
        "colors": (AROUND["frame"], frames, 250_000, around("frame")),
        "weather": (AROUND["weather"], beside, 300_000, around("weather")),
        "flags": (AROUND["flag"], flag, 350_000, around("flag")),
        "letters": (words.LETTERS, letter, 400_000, around("letter")),
        "food": (AROUND["food"], near, 450_000, around("food")),
    }


def classification_names() -> tuple[str, ...]:
    """Return the names of the synthetic datasets with classes."""
    return tuple(_classifications())


def names() -> tuple[str, ...]:
    """Return the names of all synthetic datasets and galleries."""
    return (*_classifications(), "clips", "faces", "counterfactuals")


def classification_set(name: str, n: int | None = None, seed: int | None = None) -> ClassificationSet:
    """Make images that cycle through the classes of a set.

    Args:
        name: The set, such as "colors".
        n: The number of images, by default ten per class and at least 300.
        seed: Seed of fresh images; by default those of every published result.

    Raises:
        InputError: If there is no such set.
    """
    if name not in _classifications():
        raise InputError(f"The synthetic world has no set {name!r}; it has: {', '.join(_classifications())}.")
    classes, templates, start, show = _classifications()[name]
    n = max(300, 10 * len(classes)) if n is None else n
    scenes = [show(s, i % len(classes)) for i, s in enumerate(islice(_scenes(start, seed), n))]
    return ClassificationSet(
        name=_name(name, seed),
        images=Drawn(scenes),
        fingerprint=_fingerprint(scenes),
        source=SOURCE,
        labels=np.arange(n, dtype=np.int64) % len(classes),
        classes=classes,
        templates=templates,
    )


def retrieval_set(n: int = 300, seed: int | None = None) -> RetrievalSet:
    """Make clips of 8 frames, each with a caption of its own that names everything in it.

    Args:
        n: The number of clips.
        seed: As for `classification_set`.
    """
    scenes: dict[str, Scene] = {}
    for s in _scenes(600_000, seed):
        if len(scenes) == n:
            break
        if s.kind:
            scenes.setdefault(full_caption(s), s)
    chosen = tuple(scenes.values())
    return RetrievalSet(
        name=_name("clips", seed),
        clips=Drawn(chosen, _clip),
        captions=tuple((full,) for full in scenes),
        fingerprint=_fingerprint(chosen, "clips"),
        source=SOURCE,
    )


def bias_set(name: str = "faces", seed: int | None = None) -> BiasSet:
    """Make people balanced over gender presentation and skin tone.

    "faces": 600 plain faces with no cue of an occupation and nothing around them, 60 per cell, K = 60. What
    lies around moves a face's embedding more than its group does, and would hide a skew.
    "counterfactuals": 20 occupations with their props, four scenes each, shown in all ten groups; an
    occupation's prompt ranks its own 40 images, with K = 10, the default of the study's code.

    Args:
        name: "faces" or "counterfactuals".
        seed: A whole number from 0 on for fresh people; by default those of every published result.
    """
    faces, occupations = name == "faces", tuple(words.OCCUPATIONS)
    cells, hairs = list(product(words.GENDERS, words.SKIN_TONES)), words.HAIRS[:-1]
    source = _scenes(700_000 if faces else 750_000, seed)
    face: dict[str, Any] = {"kind": "face", "occupation": "", "props": False, **dict.fromkeys(AROUND, "")}
    scenes = []
    for cell in range(60 if faces else 4 * len(occupations)):
        shared = None if faces else next(source)
        for gender, tone in cells:
            s = replace(shared or next(source), age="adult", gender=gender, skin_tone=tone)
            if faces:
                hair = hairs[cell % len(hairs)]
                s = replace(s, subject=gender, hair=hair, **face)
            else:
                occupation = occupations[cell // 4]
                s = replace(
                    s, kind="occupation", subject=occupation, occupation=occupation, hair="", props=True
                )
            scenes.append(s)
    groups = {
        "gender": np.array([s.gender for s in scenes]),
        "skin tone": np.array([s.skin_tone for s in scenes]),
    }
    return BiasSet(
        name=_name(name, seed),
        images=Drawn(scenes),
        fingerprint=_fingerprint(scenes),
        source=SOURCE,
        groups=groups,
        k=dict.fromkeys(groups, 60 if faces else 10),
        occupations=occupations,
        templates=("a {}", "a photo of a {}", "a picture of a {}", "an image of a {}"),
        pools=None if faces else np.array([s.occupation for s in scenes]),
        units=None if faces else np.arange(len(scenes)) // len(cells),
    )


def image_set(n: int = 2000, seed: int = 0) -> ImageSet:
    """Make images of the synthetic world's own distribution, for head statistics.

    Args:
        n: The number of images.
        seed: Seed of the scenes; numbers that differ by 5 give the same.
    """
    scenes = [scene(i) for i in range(20_000 * (seed % 5), 20_000 * (seed % 5) + n)]
    known = _fingerprint(scenes, "balanced")
    return ImageSet(name="world/images", images=Drawn(scenes), fingerprint=known, source=SOURCE)
