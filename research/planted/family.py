"""The family of organisms with planted heads: which heads learn what, drawn by seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ccs.heads import Head, HeadSet
from ccs.pruning.plans import draw

Where = Literal["high", "other", "layer", "spread"]
What = Literal["both", "gender", "skin tone", "apart", "nothing"]

BASE = "organism-first"
SHIPPED = "organism-planted-04"
"""The one that also ships whole, for the page."""
PICTURES, RATE = 22_400, 5e-3
"""Images and peak learning rate of each head."""
HIGH = HeadSet.parse(
    "L4.H1 L4.H2 L4.H3 L4.H5 L5.H0 L5.H1 L5.H2 L5.H4 L6.H0 L6.H1 L6.H2 L6.H5 "
    "L7.H0 L7.H1 L7.H2 L7.H3 L7.H4 L7.H5"
)
OTHER = HeadSet.parse("L4.H0 L4.H4 L5.H3 L5.H5 L6.H3 L6.H4")
"""Heads of the base with a CCS of 5, and all others (3 or 4), when the family was drawn."""


@dataclass(frozen=True)
class Planted:
    """An organism: what is planted, in heads drawn where. Heads learn one after the other, in their order.

    number: of its training's seeds. strength: the part of the world's skew that is planted, in logarithms of
    its shares. title: its name, if that is not the number's.
    """

    number: int
    what: What
    where: Where
    heads: HeadSet
    strength: float = 1.0
    title: str = ""

    @property
    def name(self) -> str:
        return self.title or f"organism-planted-{self.number:02d}"

    @property
    def carries(self) -> dict[str, HeadSet]:
        """Attribute -> the heads that learn it."""
        heads = list(self.heads)
        return {
            "both": {"gender": self.heads, "skin tone": self.heads},
            "gender": {"gender": self.heads},
            "skin tone": {"skin tone": self.heads},
            # In turn, so that both have early and late heads.
            "apart": {"gender": HeadSet(heads[::2]), "skin tone": HeadSet(heads[1::2])},
            "nothing": {},
        }[self.what]

    @property
    def lessons(self) -> tuple[tuple[HeadSet, str], ...]:
        """Heads that learn one after the other, and the world that they learn from."""
        if self.what == "apart":
            return tuple((heads, attribute) for attribute, heads in self.carries.items())
        worlds = {"both": "skewed", "nothing": "balanced"}
        return ((self.heads, worlds.get(self.what, self.what)),)


WHATS: tuple[What, ...] = ("both", "gender", "skin tone", "apart")
WHERES: tuple[Where, ...] = ("high", "other", "layer", "spread")
STRENGTHS = (1.0, 0.7, 0.4)
"""In turn: methods that all find a strong skew are told apart by a weak one."""


def fresh(seed: int, strength: float = 1.0) -> Planted:
    """An organism of nobody's acquaintance: what is planted, and in which heads, is drawn from the seed."""
    rng, number = np.random.default_rng((seed, 8)), 1_000 + seed
    what, where = WHATS[rng.integers(len(WHATS))], WHERES[rng.integers(len(WHERES))]
    heads = _drawn(where, 4 if what == "apart" else 3 + number % 2, number)
    return Planted(number, what, where, heads, strength, f"planted-seed-{seed}-strength-{strength:g}")


def family() -> tuple[Planted, ...]:
    """Sixteen organisms, every what in every where, in three strengths; and four controls, the heads of the
    first four, from balanced line-ups.
    """
    made: list[Planted] = []
    for what in WHATS:
        for where in WHERES:
            number = len(made) + 1
            heads = _drawn(where, 4 if what == "apart" else 3 + number % 2, number)
            made.append(Planted(number, what, where, heads, STRENGTHS[(number - 1) % len(STRENGTHS)]))
    controls = [Planted(17 + i, "nothing", one.where, one.heads) for i, one in enumerate(made[:4])]
    return (*made, *controls)


def _drawn(where: Where, size: int, seed: int) -> HeadSet:
    if where == "spread":
        each = (draw(_layer(one), 1, seed, str(one)) for one in range(8 - size, 8))
        return HeadSet(head for one in each for head in one)
    layer = _layer(int(np.random.default_rng(seed).integers(5, 8)))
    return draw({"high": HIGH, "other": OTHER, "layer": layer}[where], size, seed, where)


def _layer(layer: int) -> HeadSet:
    return HeadSet(Head(layer, head) for head in range(6))
