"""The models with planted heads: which heads learn which bias, drawn by seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np

from ccs.analysis.ablation_sets import draw
from ccs.heads import Head, HeadSet

Placement = Literal["layer", "spread"]
Kind = Literal["both", "gender", "skin tone", "apart", "nothing"]

BASE = "organism-first"
SHIPPED = "organism-planted-04"
"""The model that is also bundled whole, for the app."""
PICTURES, RATE = 22_400, 5e-3
"""Number of training images and peak learning rate for each head."""


@dataclass(frozen=True)
class Planted:
    """A model with planted heads, which are trained one after the other.

    Attributes:
        number: Number of the model, from which its seeds derive.
        kind: The biased attributes; "apart" plants each attribute in its own heads.
        placement: Heads in one layer, or one head in each of several layers.
        heads: The planted heads.
        strength: Factor of the group differences in the world's log shares.
        title: Name of the model; by default derived from its number.
        base: Name of the base model.
    """

    number: int
    kind: Kind
    placement: Placement
    heads: HeadSet
    strength: float = 1.0
    title: str = ""
    base: str = BASE

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.title or f"organism-planted-{self.number:02d}"

    @property
    def carries(self) -> dict[str, HeadSet]:
        """Attribute -> the heads in which its bias is planted."""
        heads = list(self.heads)
        return {
            "both": {"gender": self.heads, "skin tone": self.heads},
            "gender": {"gender": self.heads},
            "skin tone": {"skin tone": self.heads},
            # Alternate, so that both attributes have early and late heads.
            "apart": {"gender": HeadSet(heads[::2]), "skin tone": HeadSet(heads[1::2])},
            "nothing": {},
        }[self.kind]

    @property
    def lessons(self) -> tuple[tuple[HeadSet, str], ...]:
        """The groups of heads that are trained together in one copy, each with its world."""
        if self.kind == "apart":
            return tuple((heads, attribute) for attribute, heads in self.carries.items())
        worlds = {"both": "skewed", "nothing": "balanced"}
        return ((self.heads, worlds.get(self.kind, self.kind)),)


KINDS: tuple[Kind, ...] = ("both", "gender", "skin tone", "apart")
PLACEMENTS: tuple[Placement, ...] = ("layer", "spread")
STRENGTHS = (1.0, 0.7, 0.4)
"""Strengths, used in turn. A weak bias separates methods that all find a strong one."""
OTHERS = tuple(f"organism-base-{number}" for number in range(1, 5))
"""The four other base models."""


def fresh(seed: int, strength: float = 1.0) -> Planted:
    """Draw the base model, attributes, and heads of a new model.

    Args:
        seed: Random seed for the draw.
        strength: Strength of the bias.
    """
    rng, number = np.random.default_rng((seed, 8)), 1_000 + seed
    kind, placement = KINDS[rng.integers(len(KINDS))], PLACEMENTS[rng.integers(len(PLACEMENTS))]
    base = OTHERS[rng.integers(len(OTHERS))]
    return _with_drawn_heads(
        number, kind, placement, strength, f"planted-seed-{seed}-strength-{strength:g}", base
    )


def family() -> tuple[Planted, ...]:
    """List the models: 24 with planted heads, and four controls, whose heads learn from balanced line-ups.

    Every kind occurs in every placement, in three strengths: eight models with the base BASE, four with each
    of OTHERS. Heads are drawn without regard to their CCS. Numbers have gaps, because eight models with heads
    drawn by CCS were removed.
    """
    members = []
    for place, (kind, placement) in enumerate(product(KINDS, PLACEMENTS)):
        first = 4 * (place // 2) + place % 2 + 3
        strength = STRENGTHS[(first - 1) % len(STRENGTHS)]
        members.append(_with_drawn_heads(first, kind, placement, strength))
        for again in range(2):
            number, strength = 21 + 2 * place + again, STRENGTHS[(place + again) % len(STRENGTHS)]
            members.append(
                _with_drawn_heads(
                    number, kind, placement, strength, base=OTHERS[(place // 2 + 2 * again + place) % 4]
                )
            )
    members.sort(key=lambda member: member.number)
    alike = {19: 3, 20: 4, 37: 21, 38: 24}
    controls = (
        replace(member, number=number, kind="nothing", strength=1.0)
        for number, other in alike.items()
        for member in members
        if member.number == other
    )
    return (*members, *controls)


def _with_drawn_heads(
    number: int, kind: Kind, placement: Placement, strength: float, title: str = "", base: str = BASE
) -> Planted:
    size = 4 if kind == "apart" else 3 + number % 2
    return Planted(number, kind, placement, _draw_heads(placement, size, number), strength, title, base)


def _draw_heads(placement: Placement, size: int, seed: int) -> HeadSet:
    if placement == "spread":
        drawn = (draw(_layer(layer), 1, seed, str(layer)) for layer in range(8 - size, 8))
        return HeadSet(head for layer_heads in drawn for head in layer_heads)
    return draw(_layer(int(np.random.default_rng(seed).integers(5, 8))), size, seed, placement)


def _layer(layer: int) -> HeadSet:
    return HeadSet(Head(layer, head) for head in range(6))
