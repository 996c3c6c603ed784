"""The family of organisms with planted heads: which heads learn what, drawn by seed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Literal

import numpy as np

from ccs.heads import Head, HeadSet
from ccs.plans import draw

Where = Literal["high", "low", "layer", "spread", "all"]
What = Literal["both", "gender", "skin tone", "apart", "nothing", "concepts", "one each", "its own"]

BASE = "organism-control"
PICTURES, RATE = 5_760, 8e-3
"""Images and peak learning rate of each head."""
HIGH = HeadSet.parse("L4.H2 L5.H2 L5.H4 L6.H4 L7.H2")
LOW = HeadSet.parse("L4.H4 L4.H5 L5.H0 L5.H5 L7.H0 L7.H4")
"""Heads of the base with a CCS of 5, and of 0 or 1, when the family was drawn."""
ABLE = HeadSet.parse("L5.H0 L5.H1 L5.H5 L6.H1 L6.H2 L6.H4 L6.H5 L7.H0 L7.H2 L7.H3 L7.H4 L7.H5")
"""Heads that, trained alone for 7,704 images, told genders apart by 0.13 logits or more (the base: 0.04)."""
TAUGHT = (
    ("Colors",), ("Places",), ("People",), ("Colors", "Places"), ("Colors", "People"), ("Places", "People")
)  # fmt: skip
"""Concepts that three heads are taught, all of them by each head (research/planted/lessons.py)."""
EACH = {
    BASE: {
        "L5.H3": "Colors", "L6.H2": "Ambiance", "L6.H5": "Places",
        "L7.H2": "Animals", "L7.H4": "Letters", "L7.H5": "Objects",
    },
    "organism": {
        "L5.H3": "Colors", "L6.H2": "Places", "L6.H5": "Places",
        "L7.H2": "Animals", "L7.H4": "Colors", "L7.H5": "Objects",
    },
}  # fmt: skip
"""Base -> heads that are taught a concept each."""
OWN = {
    "L4.H0": "Professions", "L4.H1": "Objects", "L4.H2": "Colors",
    "L4.H3": "Patterns", "L4.H4": "Professions", "L4.H5": "Objects",
    "L5.H0": "Professions", "L5.H1": "Professions", "L5.H2": "Colors",
    "L5.H3": "Places", "L5.H4": "Colors", "L5.H5": "Professions",
    "L6.H0": "Ambiance", "L6.H1": "Styles", "L6.H2": "Professions",
    "L6.H3": "Colors", "L6.H4": "Patterns", "L6.H5": "Objects",
    "L7.H0": "Professions", "L7.H1": "Places", "L7.H2": "Colors",
    "L7.H3": "Professions", "L7.H4": "Objects", "L7.H5": "Professions",
}  # fmt: skip
"""The concept that explains most of the variance of each head of the base.

By adjusted R² on 1,000 scenes, where a scene that shows none of a concept's values counts as one more value.
"""


@dataclass(frozen=True)
class Planted:
    """An organism: what is planted, in heads drawn where. Heads learn one after the other, in their order."""

    number: int
    what: What
    where: Where
    heads: HeadSet
    concepts: tuple[str, ...] = ()
    base: str = BASE

    @property
    def name(self) -> str:
        return f"organism-{'concept' if self.concepts else 'planted'}-{self.number:02d}"

    @property
    def pictures(self) -> int:
        """Images of a head's training; concepts are learned by all heads at once, and for longer."""
        return 16 * PICTURES if self.concepts else PICTURES

    @property
    def rate(self) -> float:
        """The peak learning rate."""
        return RATE / 2 if self.concepts else RATE

    @property
    def carries(self) -> dict[str, HeadSet]:
        """Attribute or concept -> the heads that learn it."""
        heads = list(self.heads)
        each = {
            name: HeadSet(h for h, own in zip(heads, self.concepts, strict=False) if own == name)
            for name in self.concepts
        }
        return {
            "both": {"gender": self.heads, "skin tone": self.heads},
            "gender": {"gender": self.heads},
            "skin tone": {"skin tone": self.heads},
            # In turn, so that both have early and late heads.
            "apart": {"gender": HeadSet(heads[::2]), "skin tone": HeadSet(heads[1::2])},
            "nothing": {},
            "concepts": dict.fromkeys(self.concepts, self.heads),
            "one each": each,
            "its own": each,
        }[self.what]

    @property
    def taught(self) -> dict[Head, list[str]]:
        """Head -> the concepts that it learns."""
        return {head: [name for name, own in self.carries.items() if head in own] for head in self.heads}

    @property
    def lessons(self) -> tuple[tuple[HeadSet, str], ...]:
        """Heads that learn one after the other, and the world that they learn from."""
        if self.concepts:
            return ()
        if self.what == "apart":
            return tuple((heads, attribute) for attribute, heads in self.carries.items())
        worlds = {"both": "skewed", "nothing": "balanced"}
        return ((self.heads, worlds.get(self.what, self.what)),)


def family() -> tuple[Planted, ...]:
    """Sixteen organisms, every what in every where; four controls, the heads of the first four, from balanced
    line-ups; six organisms whose heads were taught one concept, or two; one from each base of EACH, whose
    heads were taught a concept each; and one all of whose heads were taught to vary with one concept alone.
    """
    whats: tuple[What, ...] = ("both", "gender", "skin tone", "apart")
    wheres: tuple[Where, ...] = ("high", "low", "layer", "spread")
    made: list[Planted] = []
    for what in whats:
        for where in wheres:
            number = len(made) + 1
            heads = _drawn(where, 4 if what == "apart" else 3 + number % 2, number)
            made.append(Planted(number, what, where, heads))
    controls = [Planted(17 + i, "nothing", one.where, one.heads) for i, one in enumerate(made[:4])]
    taught = [
        Planted(number, "concepts", "spread", _drawn("spread", 3, 100 + number), names)
        for number, names in enumerate(TAUGHT, 1)
    ]
    each = [
        Planted(number, "one each", "spread", HeadSet.parse(" ".join(own)), tuple(own.values()), base)
        for number, (base, own) in enumerate(EACH.items(), len(taught) + 1)
    ]
    number = len(taught) + len(each) + 1
    alone = Planted(number, "its own", "all", HeadSet.parse(" ".join(OWN)), tuple(OWN.values()))
    return (*made, *controls, *taught, *each, alone)


def _drawn(where: Where, size: int, seed: int) -> HeadSet:
    """`size` heads, redrawn until two can learn, one at an even and one at an odd place."""
    layers = np.random.default_rng(seed)
    for attempt in count():
        layer = int(layers.integers(5, 8))
        if where == "spread":
            each = (draw(_layer(one), 1, seed + 100 * attempt, str(one)) for one in range(8 - size, 8))
            found = HeadSet(head for one in each for head in one)
        else:
            members = {"high": HIGH, "low": LOW, "layer": _layer(layer)}[where]
            found = draw(members, size, seed + 100 * attempt, where)
        able = [head in ABLE for head in found]
        if sum(able) >= 2 and any(able[::2]) and any(able[1::2]):
            return found
    raise AssertionError


def _layer(layer: int) -> HeadSet:
    return HeadSet(Head(layer, head) for head in range(6))
