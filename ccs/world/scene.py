"""Scenes of the drawn world: frozen records of factors, drawn from a seed, with their captions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ccs.errors import InputError
from ccs.world import planted
from ccs.world import vocabulary as words

_SUBJECTS = {"letter": words.LETTERS, "digit": words.DIGITS, "flag": tuple(words.COUNTRIES)}
KINDS = ("thing", "occupation", "face", "letter", "digit", "flag")
KIND_SHARES = (0.50, 0.26, 0.10, 0.06, 0.03, 0.05)
PLAIN_SHARE = 0.4  # of the occupation images are faces without props; otherwise the skew cannot be learned


@dataclass(frozen=True)
class Scene:
    """The factors of an image. A factor that does not apply is ""; `count` is 1 for all but things.

    `seed` determines everything else: position, size, details of the backdrop, the wording of captions.
    """

    seed: int
    kind: str
    subject: str
    count: int = 1
    color: str = "white"
    pattern: str = "plain"
    place: str = ""
    weather: str = "clear"
    style: str = "drawn"
    occupation: str = ""
    gender: str = ""
    skin_tone: str = ""
    hair: str = ""
    age: str = ""
    props: bool = False

    @property
    def backdrop(self) -> str:
        """The place, or the color with its pattern: a scene has one of the two."""
        return self.place or (self.color if self.pattern == "plain" else f"{self.pattern} {self.color}")


def scene(seed: int, world: str = "balanced") -> Scene:
    """The scene of a seed. The worlds differ only in the groups of people with an occupation.

    Raises InputError for a world that is not one of `planted.WORLDS`.
    """
    if world not in planted.WORLDS:
        raise InputError(f"There is no world named {world!r}; there are: {', '.join(planted.WORLDS)}.")
    rng = np.random.default_rng((seed, 0))
    u = rng.random(16)

    def choose(values: tuple[str, ...], x: float) -> str:
        return values[int(x * len(values))]

    kind = KINDS[min(int(np.searchsorted(np.cumsum(KIND_SHARES), u[0], side="right")), len(KINDS) - 1)]
    placed = u[1] < 0.35
    common: dict[str, Any] = {
        "place": choose(words.PLACES, u[2]) if placed else "",
        "color": "" if placed else choose(tuple(words.COLORS), u[3]),
        "pattern": "" if placed else ("plain" if u[4] < 0.5 else choose(words.PATTERNS[1:], 2 * u[4] - 1)),
        "weather": "clear" if u[5] < 0.75 else choose(words.WEATHERS[1:], 4 * u[5] - 3),
        "style": "drawn" if u[6] < 0.75 else choose(words.STYLES[1:], 4 * u[6] - 3),
    }
    if kind == "thing":
        thing = words.THINGS[int(u[7] * len(words.THINGS))]
        count = 1 if u[8] < 0.6 else 2 + int((u[8] - 0.6) / 0.4 * 3)
        return Scene(seed, kind, thing.word, count=count, **common)
    if kind in _SUBJECTS:
        return Scene(seed, kind, choose(_SUBJECTS[kind], u[7]), **common)
    if kind == "face":
        age = "adult" if u[10] < 0.7 else choose((words.AGES[0], words.AGES[2]), (u[10] - 0.7) / 0.3)
        gender, tone = choose(words.GENDERS, u[8]), choose(words.SKIN_TONES, u[9])
        hair = choose(words.HAIRS, u[11]) if age == "adult" else ""
        face = words.PEOPLE_WORDS[gender, age]
        return Scene(seed, kind, face, gender=gender, skin_tone=tone, hair=hair, age=age, **common)
    occupation = choose(tuple(words.OCCUPATIONS), u[7])
    plain = u[12] < PLAIN_SHARE
    gender = planted.pick(planted.shares(occupation, "gender", world), u[8])
    if not plain and u[13] < 0.1:
        gender = "person"
    return Scene(
        seed, kind, occupation, occupation=occupation, gender=gender, props=not plain,
        skin_tone=planted.pick(planted.shares(occupation, "skin tone", world), u[9]),
        hair=choose(words.HAIRS[:-1], u[11]) if plain else "", age="adult", **common,
    )  # fmt: skip


def article(noun: str) -> str:
    """The noun with a or an."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _subject_phrase(s: Scene, rng: np.random.Generator) -> str:
    if s.kind == "thing":
        thing = next(t for t in words.THINGS if t.word == s.subject)
        if s.count > 1:
            return f"{words.COUNT_WORDS[s.count - 1]} {thing.plural}" if rng.random() < 0.75 else thing.plural
        return thing.word if thing.plural == thing.word == "scissors" else article(thing.word)
    if s.kind == "letter":
        return f"the letter {s.subject}"
    if s.kind == "digit":
        return f"the {'number' if rng.random() < 0.5 else 'digit'} " + (
            s.subject if rng.random() < 0.7 else words.DIGIT_WORDS[int(s.subject)]
        )
    if s.kind == "flag":
        return f"the flag of {s.subject}"
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


def captions(s: Scene, n: int = 1) -> tuple[str, ...]:
    """`n` captions. Each names the subject and a random part of the other factors."""
    rng = np.random.default_rng((s.seed, 1))
    return tuple(_caption(s, rng) for _ in range(n))


def _caption(s: Scene, rng: np.random.Generator) -> str:
    subject = _subject_phrase(s, rng)
    # styles that are never trained on have no phrase and are captioned as drawings
    phrases = words.STYLE_PHRASES.get(s.style, words.STYLE_PHRASES["drawn"])
    said = rng.random(4)
    if s.style in words.STYLE_PHRASES and (said[0] < 0.6 if s.style != "drawn" else said[0] < 0.5):
        subject = f"{phrases[int(rng.random() * len(phrases))]} {subject}"
    parts = [subject]
    if s.place and said[1] < 0.6:
        parts.append(words.PLACE_PHRASES[s.place])
    elif s.color and said[1] < 0.6:
        if s.pattern != "plain" and rng.random() < 0.6:
            wash = f"{s.pattern} {s.color} background" if rng.random() < 0.7 else f"{s.pattern} background"
        else:
            wash = f"{s.color} background"
        parts.append(f"on {article(wash)}")
    if s.weather != "clear" and said[2] < 0.6:
        weather = words.WEATHER_PHRASES[s.weather]
        parts.append(weather[int(rng.random() * len(weather))])
    return " ".join(parts)
