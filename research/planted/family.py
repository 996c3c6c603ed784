"""The family of organisms with planted heads: which heads learn what, drawn by seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np

from ccs.analysis.ablation_sets import draw
from ccs.heads import Head, HeadSet

Where = Literal["layer", "spread"]
What = Literal["both", "gender", "skin tone", "apart", "nothing"]

BASE = "organism-first"
SHIPPED = "organism-planted-04"
"""The one that also ships whole, for the page."""
PICTURES, RATE = 22_400, 5e-3
"""Images and peak learning rate of each head."""


@dataclass(frozen=True)
class Planted:
    """An organism: what is planted, in heads drawn where. Heads learn one after the other, in their order.

    number: of its training's seeds. strength: the part of the world's skew that is planted, in logarithms of
    its shares. title: its name, if that is not the number's. base: the model that learns.
    """

    number: int
    what: What
    where: Where
    heads: HeadSet
    strength: float = 1.0
    title: str = ""
    base: str = BASE

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
WHERES: tuple[Where, ...] = ("layer", "spread")
STRENGTHS = (1.0, 0.7, 0.4)
"""In turn: methods that all find a strong skew are told apart by a weak one."""
OTHERS = tuple(f"organism-base-{number}" for number in range(1, 5))
"""The four other bases."""


def fresh(seed: int, strength: float = 1.0) -> Planted:
    """An organism of nobody's acquaintance: its base, what is planted and where are drawn by the seed."""
    rng, number = np.random.default_rng((seed, 8)), 1_000 + seed
    what, where = WHATS[rng.integers(len(WHATS))], WHERES[rng.integers(len(WHERES))]
    base = OTHERS[rng.integers(len(OTHERS))]
    return _one(number, what, where, strength, f"planted-seed-{seed}-strength-{strength:g}", base)


def family() -> tuple[Planted, ...]:
    """Twenty-four organisms, every what in every where, in three strengths: eight with the base BASE, four
    with each of OTHERS; and four controls, whose heads learn from balanced line-ups.

    Where heads are drawn, their CCS has no say. Numbers have gaps, because eight whose heads were drawn by
    CCS are gone.
    """
    made = []
    for place, (what, where) in enumerate(product(WHATS, WHERES)):
        first = 4 * (place // 2) + place % 2 + 3
        strength = STRENGTHS[(first - 1) % len(STRENGTHS)]
        made.append(_one(first, what, where, strength))
        for again in range(2):
            number, strength = 21 + 2 * place + again, STRENGTHS[(place + again) % len(STRENGTHS)]
            made.append(
                _one(number, what, where, strength, base=OTHERS[(place // 2 + 2 * again + place) % 4])
            )
    made.sort(key=lambda one: one.number)
    alike = {19: 3, 20: 4, 37: 21, 38: 24}
    controls = (
        replace(one, number=number, what="nothing", strength=1.0)
        for number, other in alike.items()
        for one in made
        if one.number == other
    )
    return (*made, *controls)


def _one(
    number: int, what: What, where: Where, strength: float, title: str = "", base: str = BASE
) -> Planted:
    size = 4 if what == "apart" else 3 + number % 2
    return Planted(number, what, where, _drawn(where, size, number), strength, title, base)


def _drawn(where: Where, size: int, seed: int) -> HeadSet:
    if where == "spread":
        each = (draw(_layer(one), 1, seed, str(one)) for one in range(8 - size, 8))
        return HeadSet(head for one in each for head in one)
    return draw(_layer(int(np.random.default_rng(seed).integers(5, 8))), size, seed, where)


def _layer(layer: int) -> HeadSet:
    return HeadSet(Head(layer, head) for head in range(6))
