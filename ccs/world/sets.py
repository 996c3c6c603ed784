"""Evaluation sets of the drawn world, from seeds that training never sees (below 1,000,000).

Each set takes scenes from its own range of seeds, deals out the factor that is asked for evenly, and leaves
the others as the world draws them, so that a class can be told by its factor alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from itertools import product

import numpy as np
from PIL import Image

from ccs.datasets.sets import BiasSet, ClassificationSet, ImageSet, RetrievalSet
from ccs.errors import InputError
from ccs.world.drawing import SIZE, draw
from ccs.world.scene import Scene, article, captions, scene
from ccs.world.vocabulary import (
    COLORS,
    DIGITS,
    GENDERS,
    HAIRS,
    LETTERS,
    OCCUPATIONS,
    PATTERNS,
    PLACE_PHRASES,
    PLACES,
    SKIN_TONES,
    STYLES,
    THINGS,
    UNSEEN_STYLES,
    WEATHER_PHRASES,
)

VERSION = 1  # raised whenever a scene of the same factors comes out differently
SOURCE = "drawn world (OpenMoji, CC BY-SA 4.0)"
OCCUPATION_TEMPLATES = ("a {}", "a photo of a {}", "a picture of a {}", "an image of a {}")
FRAMES = 8


class Drawn(Sequence[Image.Image]):
    """Pictures of scenes, drawn when asked for."""

    def __init__(self, scenes: Sequence[Scene], size: int = SIZE) -> None:
        self.scenes, self.size = tuple(scenes), size

    def __len__(self) -> int:
        return len(self.scenes)

    def __getitem__(self, i: int) -> Image.Image:  # type: ignore[override]
        return draw(self.scenes[i], self.size)


class Clips(Sequence[Sequence[Image.Image]]):
    """A clip a scene: the subject crosses the picture in `frames` frames."""

    def __init__(self, scenes: Sequence[Scene], frames: int = FRAMES, size: int = SIZE) -> None:
        self.scenes, self.frames, self.size = tuple(scenes), frames, size

    def __len__(self) -> int:
        return len(self.scenes)

    def __getitem__(self, i: int) -> Sequence[Image.Image]:  # type: ignore[override]
        toward = 1 if self.scenes[i].seed % 2 else -1
        return [
            draw(self.scenes[i], self.size, float(toward * d)) for d in np.linspace(-0.2, 0.2, self.frames)
        ]


def _fingerprint(scenes: Sequence[Scene], extra: str = "") -> str:
    text = f"{VERSION} {extra} " + "\n".join(map(repr, scenes))
    return hashlib.sha256(text.encode()).hexdigest()


def _scenes(start: int, accept: Callable[[Scene], bool] = lambda s: True) -> Iterator[Scene]:
    """The balanced world's scenes from a seed on, those that are accepted."""
    seed = start
    while True:
        if accept(s := scene(seed)):
            yield s
        seed += 1


# name -> (classes, templates, first seed, what a scene becomes to show class i)
_Deal = Callable[[Scene, int], Scene]


@lru_cache(maxsize=1)
def _classifications() -> dict[str, tuple[tuple[str, ...], tuple[str, ...], int, _Deal]]:
    words = tuple(t.word for t in THINGS)
    pictures = ("a {}", "a picture of a {}", "a drawing of a {}", "an image of a {}")
    weathers, places, colors = tuple(WEATHER_PHRASES), tuple(PLACE_PHRASES.values()), tuple(COLORS)

    def bare(s: Scene, **changes: object) -> Scene:
        people = {"occupation": "", "gender": "", "skin_tone": "", "hair": "", "age": "", "props": False}
        return replace(s, **{"style": "drawn", "count": 1, **people, **changes})  # type: ignore[arg-type]

    def thing(s: Scene, i: int) -> Scene:
        return bare(s, kind="thing", subject=words[i])

    def unseen(s: Scene, i: int) -> Scene:
        return replace(thing(s, i), style=UNSEEN_STYLES[s.seed % len(UNSEEN_STYLES)])

    def worker(s: Scene, i: int) -> Scene:
        name = tuple(OCCUPATIONS)[i]
        rng = np.random.default_rng((s.seed, 3))
        return bare(
            s, kind="occupation", subject=name, occupation=name, props=True, age="adult",
            gender=GENDERS[rng.integers(len(GENDERS))], skin_tone=SKIN_TONES[rng.integers(len(SKIN_TONES))],
        )  # fmt: skip

    return {
        "subjects": (words, pictures, 100_000, thing),
        "subjects-ood": (words, pictures, 150_000, unseen),
        "occupations": (tuple(OCCUPATIONS), pictures, 200_000, worker),
        "colors": (
            colors, ("a picture on a {} background", "on a {} background"), 250_000,
            lambda s, i: replace(s, style="drawn", place="", color=colors[i], pattern=s.pattern or "plain"),
        ),
        "patterns": (
            PATTERNS[1:], ("a picture on a {} background", "on a {} background"), 300_000,
            lambda s, i: replace(
                s, style="drawn", place="", color=s.color or "blue", pattern=PATTERNS[1 + i]
            ),
        ),
        "places": (
            places, ("a picture {}", "{}"), 350_000,
            lambda s, i: replace(s, style="drawn", weather="clear", place=PLACES[i], color="", pattern=""),
        ),
        "weather": (
            tuple(p[0] for p in WEATHER_PHRASES.values()), ("a picture {}", "{}"), 400_000,
            lambda s, i: replace(s, style="drawn", weather=weathers[i]),
        ),
        "styles": (STYLES, ("a {} picture",), 450_000, lambda s, i: replace(s, style=STYLES[i])),
        "letters": (LETTERS, ("the letter {}", "a picture of the letter {}"), 500_000,
                    lambda s, i: bare(s, kind="letter", subject=LETTERS[i])),
        "digits": (DIGITS, ("the number {}", "a picture of the digit {}"), 550_000,
                   lambda s, i: bare(s, kind="digit", subject=DIGITS[i])),
    }  # fmt: skip


def classification_names() -> tuple[str, ...]:
    """The names that `classification_set` takes."""
    return tuple(_classifications())


def classification_set(name: str, n: int | None = None, seed: int = 0) -> ClassificationSet:
    """`n` pictures (default: ten a class, at least 300), by turns. `seed` 0 to 4: other scenes."""
    if name not in _classifications():
        raise InputError(f"The drawn world has no set {name!r}; it has: {', '.join(_classifications())}.")
    classes, templates, start, deal = _classifications()[name]
    n = max(300, 10 * len(classes)) if n is None else n
    source = _scenes(start + 10_000 * (seed % 5))
    scenes = [deal(next(source), i % len(classes)) for i in range(n)]
    labels = np.arange(n, dtype=np.int64) % len(classes)
    return ClassificationSet(
        name=f"world/{name}",
        images=Drawn(scenes),
        fingerprint=_fingerprint(scenes),
        source=SOURCE,
        labels=labels,
        classes=classes,
        templates=templates,
    )


def retrieval_set(name: str = "clips", n: int = 300, seed: int = 0) -> RetrievalSet:
    """ "clips": 8 frames and one caption each; "captions": one picture and two captions each.

    Captions say every factor that shows, and no two pictures share theirs.
    """
    if name not in ("clips", "captions"):
        raise InputError(f"The drawn world has no retrieval set {name!r}; it has: clips, captions.")
    scenes: list[Scene] = []
    seen: set[str] = set()
    for s in _scenes(
        (600_000 if name == "clips" else 650_000) + 10_000 * (seed % 5), lambda s: s.style == "drawn"
    ):
        caption = full_caption(s)
        if caption not in seen:
            seen.add(caption)
            scenes.append(s)
        if len(scenes) == n:
            break
    clips = Clips(scenes, FRAMES if name == "clips" else 1)
    said = [(full_caption(s),) if name == "clips" else (full_caption(s), captions(s)[0]) for s in scenes]
    return RetrievalSet(
        name=f"world/{name}",
        clips=clips,
        captions=tuple(said),
        fingerprint=_fingerprint(scenes, name),
        source=SOURCE,
    )


def full_caption(s: Scene) -> str:
    """A caption that names subject, count, backdrop and weather."""
    subject = captions(replace(s, place="", color="", weather="clear", style=""))[0]
    if s.place:
        where = PLACE_PHRASES[s.place]
    else:
        wash = s.color if s.pattern == "plain" else f"{s.pattern} {s.color}"
        where = f"on {article(f'{wash} background')}"
    weather = "" if s.weather == "clear" else f" {WEATHER_PHRASES[s.weather][0]}"
    return f"{subject} {where}{weather}"


def bias_set(name: str = "faces", seed: int = 0) -> BiasSet:
    """People balanced over gender presentation and skin tone.

    "faces": 600 plain faces, no occupational cue, 60 a cell, K = 60. "counterfactuals": 20 occupations with
    their props, four scenes each shown in all ten groups; an occupation's prompt ranks its own 40 pictures,
    K = 20.
    """
    cells = list(product(GENDERS, SKIN_TONES))
    scenes: list[Scene] = []
    if name == "faces":
        k = 60
        source = _scenes(700_000 + 10_000 * (seed % 5), lambda s: s.style == "drawn" and s.weather == "clear")
        for i in range(600):
            s, (gender, tone) = next(source), cells[i % len(cells)]
            hair = HAIRS[:-1][i // len(cells) % (len(HAIRS) - 1)]
            scenes.append(
                replace(s, kind="face", subject=gender, count=1, occupation="", gender=gender, skin_tone=tone,
                        hair=hair, age="adult", props=False)
            )  # fmt: skip
    elif name == "counterfactuals":
        k = 20
        source = _scenes(750_000 + 10_000 * (seed % 5), lambda s: s.style == "drawn" and s.weather == "clear")
        for occupation in OCCUPATIONS:
            for s in (next(source) for _ in range(4)):
                scenes += [
                    replace(s, kind="occupation", subject=occupation, count=1, occupation=occupation,
                            gender=gender, skin_tone=tone, hair="", age="adult", props=True)
                    for gender, tone in cells
                ]  # fmt: skip
    else:
        raise InputError(f"The drawn world has no bias set {name!r}; it has: faces, counterfactuals.")
    groups = {
        "gender": np.array([s.gender for s in scenes]),
        "skin tone": np.array([s.skin_tone for s in scenes]),
    }
    return BiasSet(
        name=f"world/{name}",
        images=Drawn(scenes),
        fingerprint=_fingerprint(scenes),
        source=SOURCE,
        groups=groups,
        k={"gender": k, "skin tone": k},
        occupations=tuple(OCCUPATIONS),
        templates=OCCUPATION_TEMPLATES,
        pools=np.array([s.occupation for s in scenes]) if name == "counterfactuals" else None,
        units=np.arange(len(scenes)) // len(cells) if name == "counterfactuals" else None,
    )


def image_set(n: int = 2000, seed: int = 0, world: str = "balanced") -> ImageSet:
    """`n` scenes as the world draws them, for the moments."""
    scenes = [scene(i, world) for i in range(20_000 * (seed % 5), 20_000 * (seed % 5) + n)]
    return ImageSet(
        name="world/images", images=Drawn(scenes), fingerprint=_fingerprint(scenes, world), source=SOURCE
    )


def factors(images: ImageSet) -> dict[str, np.ndarray]:
    """The factors of each scene of a drawn set: name -> str array [images], "" where one does not apply."""
    if not isinstance(images.images, Drawn):
        raise InputError(f"The factors of {images.name!r} are not known: only drawn sets record them.")
    names = [f.name for f in fields(Scene) if f.name != "seed"]
    return {name: np.array([str(getattr(s, name)) for s in images.images.scenes]) for name in names}
