"""Evaluation sets of synthetic scenes, from seeds that training never uses (below 10^6 or from 10^12 on).

Each set takes scenes from its own range of seeds, sets one factor to each value in turn, and leaves the other
factors random, so that classes differ systematically in that factor only.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, product
from typing import Any

import numpy as np
from PIL import Image

from ccs.data import BiasSet, ClassificationSet, ImageSet, Lazy, RetrievalSet
from ccs.data.labeled import renamed
from ccs.errors import InputError, require_seed
from ccs.synthetic import vocabulary as words
from ccs.synthetic.scene import AROUND, Scene, caption, draw, scene

VERSION = 2  # raise it when the image of the same factors changes
FRAMES = 8
SOURCE = "synthetic world (OpenMoji, CC BY-SA 4.0)"
FRESH = 10**6
"""Number of scenes in the range of a seed, and number of ranges left to training."""
_THINGS = AROUND["animal"] + AROUND["vehicle"]
_WITH, _WITH_A = ("{}", "a picture with {}"), ("a {}", "a picture with a {}")
_OF = ("a {}", "a picture of a {}", "a drawing of a {}", "an image of a {}")
CLASSES = {
    "subjects": ("thing", _THINGS, 100_000, _WITH_A),
    "subjects-ood": ("unseen", _THINGS, 150_000, _WITH_A),
    "occupations": ("occupation", tuple(words.OCCUPATIONS), 200_000, _OF),
    "colors": ("frame", AROUND["frame"], 250_000, ("a {} frame", "a picture in a {} frame")),
    "weather": ("weather", AROUND["weather"], 300_000, _WITH),
    "flags": ("flag", AROUND["flag"], 350_000, ("the flag of {}", "a picture with the flag of {}")),
    "letters": ("letter", words.LETTERS, 400_000, ("the letter {}", "a picture with the letter {}")),
    "food": ("food", AROUND["food"], 450_000, _WITH_A),
}
"""Dataset with classes -> the factor, its values, the first seed, and the templates."""
GALLERIES = ("faces", "counterfactuals")
NAMES = (*CLASSES, "clips", *GALLERIES)
"""All synthetic datasets and galleries."""


def _show(s: Scene, factor: str, value: str) -> Scene:
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
        return _worker(s, value, gender, tone)
    change: dict[str, Any] = {factor: value}
    if factor in ("thing", "unseen"):
        change = {name: value if value in AROUND[name] else "" for name in ("animal", "vehicle")}
    if factor == "unseen":
        change["style"] = words.UNSEEN_STYLES[s.seed % len(words.UNSEEN_STYLES)]
    return replace(s, **change)


def _worker(s: Scene, occupation: str, gender: str, tone: str) -> Scene:
    """Return a scene with an adult of an occupation, with its props.

    Args:
        s: The scene.
        occupation: The adult's occupation.
        gender: Gender presentation.
        tone: Skin tone.
    """
    person: dict[str, Any] = {"gender": gender, "skin_tone": tone, "age": "adult", "hair": "", "props": True}
    return replace(s, kind="occupation", subject=occupation, occupation=occupation, **person)


def _face(s: Scene, row: int, gender: str, tone: str) -> Scene:
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


def _clip(s: Scene) -> list[Image.Image]:
    """Draw the frames of a clip in which the subject moves sideways."""
    toward = 1 if s.seed % 2 else -1
    return [draw(s, drift=float(toward * d)) for d in np.linspace(-0.12, 0.12, FRAMES)]


def _scenes(start: int, seed: int | None) -> Iterator[Scene]:
    """Yield balanced scenes from number `start` on, or, with a seed, from the start of its fresh range."""
    if seed is not None:
        require_seed(seed)
        start += FRESH * (FRESH + seed)
    return map(scene, count(start))


def _fields(name: str, seed: int | None, scenes: Sequence[Scene], extra: str = "") -> dict[str, Any]:
    """Return the fields that all synthetic sets have."""
    text = f"{VERSION} {extra} " + "\n".join(map(repr, scenes))
    title = f"world/{name}" if seed is None else f"world/{name} (seed {seed})"
    return {"name": title, "fingerprint": hashlib.sha256(text.encode()).hexdigest(), "source": SOURCE}


def open_set(
    name: str, n: int | None = None, seed: int | None = None, classes: Sequence[str] = ()
) -> ClassificationSet | BiasSet | RetrievalSet:
    """Make a set of `NAMES`.

    Args:
        name: The set.
        n: The number of images or clips. Galleries always have all people.
        seed: As for `classification_set`.
        classes: Names of its classes in prompts.

    Raises:
        InputError: If there is no such set, or the names don't fit its classes.
    """
    if name in GALLERIES:
        return bias_set(name, seed)
    if name == "clips":
        return retrieval_set(n, seed)
    drawn = classification_set(name, n, seed)
    return replace(drawn, classes=renamed(drawn.classes, classes, f"world/{name}")) if classes else drawn


def default_count(name: str) -> int:
    """Return the number of images of a dataset of `CLASSES`: ten per class and at least 300."""
    return max(300, 10 * len(CLASSES[name][1]))


def classification_set(name: str, n: int | None = None, seed: int | None = None) -> ClassificationSet:
    """Make images that cycle through the classes of a dataset.

    Args:
        name: The set, such as "colors".
        n: The number of images, by default `default_count`.
        seed: Random seed for fresh images; by default those of every published result.

    Raises:
        InputError: If there is no such dataset.
    """
    if name not in CLASSES:
        raise InputError(f"There is no synthetic dataset 'world/{name}'; there are {', '.join(NAMES)}.")
    factor, classes, start, templates = CLASSES[name]
    labels = np.arange(default_count(name) if n is None else n, dtype=np.int64) % len(classes)
    pairs = zip(labels, _scenes(start, seed), strict=False)
    scenes = [_show(s, factor, classes[label]) for label, s in pairs]
    fields = _fields(name, seed, scenes) | {"classes": classes, "templates": templates}
    return ClassificationSet(images=Lazy(draw, scenes), labels=labels, **fields)


def retrieval_set(n: int | None = None, seed: int | None = None) -> RetrievalSet:
    """Make clips of 8 frames, each with a unique caption that names everything in it.

    Args:
        n: The number of clips, by default 300.
        seed: As for `classification_set`.
    """
    scenes: dict[str, Scene] = {}
    for s in _scenes(600_000, seed):
        if len(scenes) == (n or 300):
            break
        if s.kind:
            scenes.setdefault(caption(s, share=1.0), s)
    fields = _fields("clips", seed, [*scenes.values()], "clips")
    captions = tuple((text,) for text in scenes)
    return RetrievalSet(clips=Lazy(_clip, [*scenes.values()]), captions=captions, **fields)


def bias_set(name: str = "faces", seed: int | None = None) -> BiasSet:
    """Make people balanced over gender presentation and skin tone.

    "faces": 600 plain faces without cues of an occupation and without surroundings, 60 per cell, K = 60.
    Surroundings change a face's embedding more than its group does, and would hide a skew.
    "counterfactuals": 20 occupations with their props, four scenes each, shown in all ten groups; an
    occupation's prompt ranks its own 40 images, with K = 10, the default of the paper's code.

    Args:
        name: "faces" or "counterfactuals".
        seed: A whole number from 0 on for fresh people; by default those of every published result.
    """
    if name not in GALLERIES:
        raise InputError(f"'world/{name}' is not a gallery; there are {', '.join(GALLERIES)}.")
    cells = list(product(words.GENDERS, words.SKIN_TONES))
    pools, units = None, None
    if name == "faces":
        k, unused = 60, _scenes(700_000, seed)
        scenes = [_face(next(unused), row, *cell) for row in range(60) for cell in cells]
    else:
        k, workers = 10, [occupation for occupation in words.OCCUPATIONS for _ in range(4)]
        pairs = zip(workers, _scenes(750_000, seed), strict=False)
        scenes = [_worker(s, occupation, *cell) for occupation, s in pairs for cell in cells]
        pools, units = np.repeat(workers, len(cells)), np.arange(len(scenes)) // len(cells)
    genders, tones = zip(*((s.gender, s.skin_tone) for s in scenes), strict=True)
    return BiasSet(
        images=Lazy(draw, scenes),
        groups={"gender": np.array(genders), "skin tone": np.array(tones)},
        k={"gender": k, "skin tone": k},
        occupations=tuple(words.OCCUPATIONS),
        templates=("a {}", "a photo of a {}", "a picture of a {}", "an image of a {}"),
        pools=pools,
        units=units,
        **_fields(name, seed, scenes),
    )


def image_set(n: int = 2000, seed: int = 0) -> ImageSet:
    """Make images of random synthetic scenes, for head statistics.

    Args:
        n: The number of images.
        seed: Random seed for the scenes, modulo 5.
    """
    start = 20_000 * (seed % 5)
    scenes = [scene(number) for number in range(start, start + n)]
    return ImageSet(images=Lazy(draw, scenes), **_fields("images", None, scenes, "balanced"))
