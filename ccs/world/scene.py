"""Scenes of the drawn world: frozen records of factors, drawn from a seed, with their captions.

A scene is a card. A person stands in its middle, or nobody; around it lies a colored frame; at its sides and
corners are a sign of weather, a flag, a letter, an animal, a vehicle and a food. Each has a place of its own:
concepts that share one share what they look like there, and their texts do not come to stand apart. Each is
there in half of the cards, whatever else there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ccs.world import vocabulary as words
from ccs.world.vocabulary import article

KINDS = ("occupation", "face", "")
KIND_SHARES = (0.45, 0.12, 0.43)
PRESENT = 0.5  # of each factor around the middle
NAMED = 0.8  # of what is shown there, in a caption
PLAIN_SHARE = 0.25  # of the occupation images are faces without props; otherwise the skew cannot be learned
AROUND: dict[str, tuple[str, ...]] = {
    "frame": tuple(words.COLORS),
    "weather": tuple(one.word for one in words.WEATHERS),
    "flag": tuple(one.word for one in words.FLAGS),
    "letter": words.LETTERS,
    "animal": tuple(one.word for one in words.ANIMALS),
    "vehicle": tuple(one.word for one in words.VEHICLES),
    "food": tuple(one.word for one in words.FOODS),
}
"""The factors around the middle, with their values."""


@dataclass(frozen=True)
class Scene:
    """The factors of an image. A factor that does not apply, or is not there, is "".

    `seed` determines everything else: sizes, places, the muted ground, the wording of captions.
    """

    seed: int
    kind: str
    subject: str = ""
    frame: str = ""
    weather: str = ""
    flag: str = ""
    letter: str = ""
    animal: str = ""
    vehicle: str = ""
    food: str = ""
    style: str = ""
    occupation: str = ""
    gender: str = ""
    skin_tone: str = ""
    hair: str = ""
    age: str = ""
    props: bool = False


def scene(seed: int) -> Scene:
    """The scene of a seed. Groups are alike in number among people of every occupation."""
    rng = np.random.default_rng((seed, 0))
    u, around = rng.random(8), rng.random((len(AROUND), 2)).tolist()

    def choose(values: tuple[str, ...], x: float) -> str:
        return values[int(x * len(values))]

    common: dict[str, Any] = {
        name: choose(values, x) if there < PRESENT else ""
        for (name, values), (there, x) in zip(AROUND.items(), around, strict=True)
    }
    kind = KINDS[min(int(np.searchsorted(np.cumsum(KIND_SHARES), u[0], side="right")), len(KINDS) - 1)]
    if kind == "":
        return Scene(seed, kind, **common)
    if kind == "face":
        age = "adult" if u[4] < 0.7 else choose((words.AGES[0], words.AGES[2]), (u[4] - 0.7) / 0.3)
        gender, tone = choose(words.GENDERS, u[2]), choose(words.SKIN_TONES, u[3])
        hair = choose(words.HAIRS, u[5]) if age == "adult" else ""
        face = words.PEOPLE_WORDS[gender, age]
        return Scene(seed, kind, face, gender=gender, skin_tone=tone, hair=hair, age=age, **common)
    occupation = choose(tuple(words.OCCUPATIONS), u[1])
    plain = u[6] < PLAIN_SHARE
    gender = choose(words.GENDERS, u[2])
    if not plain and u[7] < 0.1:
        gender = "person"
    return Scene(
        seed, kind, occupation, occupation=occupation, gender=gender, props=not plain,
        skin_tone=choose(words.SKIN_TONES, u[3]),
        hair=choose(words.HAIRS[:-1], u[5]) if plain else "", age="adult", **common,
    )  # fmt: skip


def captions(s: Scene, n: int = 1) -> tuple[str, ...]:
    """`n` captions. Each names the person in the middle, and most of everything else that is there."""
    rng = np.random.default_rng((s.seed, 1))
    return tuple(_caption(s, rng) for _ in range(n))


def full_caption(s: Scene) -> str:
    """A caption that names everything that is there."""
    return _caption(s, np.random.default_rng((s.seed, 1)), named=1.0)


def _caption(s: Scene, rng: np.random.Generator, named: float = NAMED) -> str:
    subject = _subject_phrase(s, rng)
    phrases = {
        "weather": s.weather,
        "flag": s.flag and f"the flag of {s.flag}",
        "letter": s.letter and f"the letter {s.letter}",
        "animal": s.animal and article(s.animal),
        "vehicle": s.vehicle and article(s.vehicle),
        "food": s.food and article(s.food),
    }
    said = rng.random(1 + len(phrases)) < named
    corners = [text for text, here in zip(phrases.values(), said[1:].tolist(), strict=True) if text and here]
    rng.shuffle(corners)
    framed = bool(s.frame and said[0])
    if not (subject or corners or framed):
        return _caption(s, rng, 1.0) if named < 1 and (s.frame or any(phrases.values())) else "a picture"
    medium = ("a picture", "a drawing", "an image", "a photo")[int(rng.random() * 4)]
    start = subject
    if rng.random() < 0.4:
        start = f"{medium} of {subject}" if subject else medium
    frame = article(f"{s.frame} frame") if framed else ""
    start = f"{start} in {frame}" if start and frame else start or frame
    last = " and ".join((", ".join(corners[:-1]), corners[-1])) if len(corners) > 1 else "".join(corners)
    return f"{start} with {last}" if start and last else start or last


def _subject_phrase(s: Scene, rng: np.random.Generator) -> str:
    if s.kind == "":
        return ""
    if s.kind == "face":
        phrase = article(f"bald {s.subject}" if s.hair == "bald" else s.subject)
        if s.hair not in ("", "bald") and rng.random() < 0.7:
            phrase += f" with {s.hair}"
            if rng.random() < 0.4:
                phrase += f" and {s.skin_tone} skin"
        elif rng.random() < 0.6:
            phrase += f" with {s.skin_tone} skin"
        return phrase
    names = words.OCCUPATIONS[s.occupation]
    word = (
        names[0] if len(names) == 1 or rng.random() < 0.6 else names[1 + int(rng.random() * (len(names) - 1))]
    )
    if s.props and s.gender != "person" and rng.random() < 0.15:
        return f"{article(s.gender)} working as {article(word)}"
    return article(word)
