"""The values of every factor of the synthetic world, with their words (vocabulary.toml).

Glyphs are OpenMoji's, under their names in the package `emoji`.
"""

import tomllib
from importlib.resources import files


def _split(rows: str) -> list[str]:
    return [row.strip() for row in rows.split(",")]


def _things(concept: str) -> dict[str, str]:
    """Return the things of a concept: word -> emoji name."""
    pairs = (row.partition("=") for row in _split(_DATA["things"][concept]))
    return {word: glyph or word.replace(" ", "_") for word, _, glyph in pairs}


_DATA = tomllib.loads(files("ccs.synthetic").joinpath("vocabulary.toml").read_text("utf-8"))
ANIMALS, VEHICLES, FOODS, WEATHERS, FLAGS = map(_things, ("Animals", "Vehicles", "Food", "Weather", "Flags"))
LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
COLORS: dict[str, tuple[int, int, int]] = {name: tuple(rgb) for name, rgb in _DATA["colors"].items()}
"""The colors of frames."""
UNSEEN_STYLES = ("inverted", "tilted", "posterized")
"""Never trained on: the out-of-domain split."""

GENDERS = ("woman", "man")
SKIN_TONES = ("light", "medium-light", "medium", "medium-dark", "dark")
HAIRS = ("", "red hair", "curly hair", "white hair", "blond hair", "bald")  # "": the glyph's own dark hair
AGES = ("child", "adult", "old")
PEOPLE_WORDS = {
    ("woman", "child"): "girl", ("woman", "adult"): "woman", ("woman", "old"): "old woman",
    ("man", "child"): "boy", ("man", "adult"): "man", ("man", "old"): "old man",
}  # fmt: skip

OCCUPATIONS: dict[str, tuple[str, ...]] = {
    row.split("/")[0]: tuple(row.split("/")) for row in _split(_DATA["occupations"]["rows"])
}
"""Occupation -> its words in captions, its name first."""


def article(noun: str) -> str:
    """Return the noun with "a" or "an"."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def person_glyph(gender: str, tone: str, occupation: str = "", hair: str = "", age: str = "adult") -> str:
    """Return the emoji name of a person.

    Args:
        gender: "woman", "man", or "person".
        tone: The skin tone.
        occupation: The occupation, or "".
        hair: The hair, only for adults without an occupation.
        age: "child", "adult", or "old".
    """
    skin = f"{tone}_skin_tone"
    if occupation:
        lead = "" if gender == "person" else f"{gender}_"
        return f"{lead}{occupation.replace(' ', '_')}_{skin}"
    if age == "child":
        return f"{'girl' if gender == 'woman' else 'boy'}_{skin}"
    if age == "old":
        return f"old_{gender}_{skin}"
    return f"{gender}_{skin}_{hair.replace(' ', '_')}" if hair else f"{gender}_{skin}"
