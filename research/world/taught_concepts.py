"""The concepts of the drawn world that a head can be taught, and the texts of what a card shows of them."""

from __future__ import annotations

from ccs.world import Scene
from ccs.world import vocabulary as words
from ccs.world.scene import AROUND
from ccs.world.vocabulary import article

_AROUND = {
    "Animals": "animal", "Vehicles": "vehicle", "Colors": "frame", "Weather": "weather", "Flags": "flag",
    "Letters": "letter", "Food": "food",
}  # fmt: skip
CONCEPTS = ("Professions", *_AROUND)


def value_of(concept: str, s: Scene) -> str:
    """What a card shows of a concept; "" for nothing. A plain face shows no profession."""
    if concept == "Professions":
        return s.occupation if s.props else ""
    return str(getattr(s, _AROUND[concept]))


def concept_texts(concept: str) -> dict[str, str]:
    """Each value of a concept with a text for it, from the pool `world`."""
    if concept == "Professions":
        return {value: article(value) for value in words.OCCUPATIONS}
    values = AROUND[_AROUND[concept]]
    if concept == "Colors":
        return {value: article(f"{value} frame") for value in values}
    text = {"Weather": "{}", "Flags": "the flag of {}", "Letters": "the letter {}"}.get(concept)
    return {value: text.format(value) if text else article(value) for value in values}
