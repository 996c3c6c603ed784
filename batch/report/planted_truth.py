"""The planted skew as a model shows it: shares in the top K and single heads, beside the planted table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ccs.errors import InputError
from ccs.heads import Head
from ccs.measures import stats
from ccs.measures.stats import Effect, Estimate
from ccs.plans import PlanName
from ccs.results import Results, queries
from ccs.world import planted
from ccs.world.vocabulary import GENDERS, OCCUPATIONS, SKIN_TONES

FACES = "world/faces"
"""Plain faces, no occupational cue, every group as often as every other."""
SCALES: Mapping[str, Mapping[str, float]] = {
    "gender": dict(zip(GENDERS, (1.0, -1.0), strict=True)),
    "skin tone": dict(zip(SKIN_TONES, np.linspace(-1, 1, len(SKIN_TONES)).tolist(), strict=True)),
}
"""Where each group stands on an attribute's scale: towards women, and towards dark skin, where positive."""
TOWARDS = {"gender": "women", "skin tone": "dark skin"}

Shares = Mapping[str, Mapping[str, float]]
"""Occupation -> group -> share."""


@dataclass(frozen=True)
class Alignment:
    """How far rankings agree with the planted table: Spearman's correlation of leans over occupations, and
    how many of the strongly planted occupations lean the planted way.
    """

    effect: Effect
    right: int
    strong: int


@dataclass(frozen=True)
class Carrier:
    """What switching one head off does to MaxSkew on the plain faces.

    `change`: of the mean over occupations; `strong`, `without`: of the means over those with strong and
    without planted skew. `with_planted`: correlation over occupations of the lowering with the planted
    MaxSkew. `q_value`, `planted_q`: of `change` and `with_planted`, false discovery rate over the heads.
    """

    head: Head
    label: str | None
    ccs: int | None
    change: Effect
    q_value: float
    strong: float
    without: float
    with_planted: Effect
    planted_q: float = float("nan")


def lean(shares: Mapping[str, float], attribute: str) -> float:
    """The mean place on the attribute's scale, -1 to 1."""
    return sum(SCALES[attribute][group] * share for group, share in shares.items())


def planted_max_skew(occupation: str, attribute: str) -> float:
    """The MaxSkew of a ranking whose top K has the planted shares."""
    fair = planted.shares(occupation, attribute, "balanced")
    skewed = planted.shares(occupation, attribute)
    return max(float(np.log(share / fair[group])) for group, share in skewed.items())


def shares_of(results: Results, attribute: str, plan: str = "none") -> dict[str, dict[str, float]]:
    """Occupation -> group -> share of the top K of the plain faces; empty where the tables have none."""
    frame = queries.of_plan(queries.top_shares(results, FACES, attribute), plan)
    found: dict[str, dict[str, float]] = {}
    for group, occupation, value in zip(frame["group"], frame["occupation"], frame["value"], strict=True):
        found.setdefault(occupation, {})[group] = float(value)
    groups = set(SCALES[attribute])
    return {name: shares for name, shares in found.items() if name in OCCUPATIONS and set(shares) == groups}


def chance_of(results: Results, attribute: str) -> dict[str, Estimate]:
    """Group -> share of a random ranking's top K, with its 95% range."""
    frame = queries.of_plan(queries.top_shares(results, FACES, attribute), "none").drop_duplicates("group")
    return {row["group"]: queries.chance(row) for _, row in frame.iterrows()}


def mean_skew(results: Results, attribute: str, plan: str = "none") -> tuple[Estimate, Estimate] | None:
    """The mean MaxSkew over occupations, and its chance level."""
    rows = queries.of_plan(queries.max_skew(results, dataset=FACES, attribute=attribute), plan)
    return (queries.estimate(rows.iloc[0]), queries.chance(rows.iloc[0])) if len(rows) else None


def alignment(shares: Shares, attribute: str) -> Alignment | None:
    """Ranked against planted leans; None with fewer than four occupations."""
    names = sorted(shares)
    if len(names) < 4:
        return None
    ranked = [lean(shares[name], attribute) for name in names]
    wanted = [lean(planted.shares(name, attribute), attribute) for name in names]
    strong = [i for i, name in enumerate(names) if abs(planted.lean(name, attribute)) == 2]
    right = sum(ranked[i] * wanted[i] > 0 for i in strong)
    return Alignment(stats.correlation(ranked, wanted), right, len(strong))


def carriers(results: Results, attribute: str) -> list[Carrier]:
    """Every head, first the one that lowers the mean MaxSkew most; empty without single heads' effects."""
    heads = queries.head_effects(results, "MaxSkew mean", dataset=FACES, factor=attribute)
    changes = queries.single_plans(
        queries.max_skew(results, "occupation", dataset=FACES, attribute=attribute)
    )
    scores = queries.head_scores(results)
    found = []
    for _, row in heads.sort_values("value").iterrows():
        head = Head(int(row["layer"]), int(row["head"]))
        mine = queries.of_plan(changes, str(PlanName.single(head)))
        differences = dict(zip(mine["occupation"], mine["difference"].astype(float), strict=True))
        moved = {name: differences[name] for name in OCCUPATIONS if name in differences}
        lowered = [-value for value in moved.values()]
        try:
            together = stats.correlation(lowered, [planted_max_skew(name, attribute) for name in moved])
        except InputError:  # too few occupations
            continue
        by_lean = {
            size: [value for name, value in moved.items() if abs(planted.lean(name, attribute)) == size]
            for size in (0, 2)
        }
        found.append(
            Carrier(
                head,
                scores[head].label if head in scores else None,
                scores[head].ccs if head in scores else None,
                queries.effect(row),
                float(row["q_value"]),
                strong=float(np.mean(by_lean[2])),
                without=float(np.mean(by_lean[0])),
                with_planted=together,
            )
        )
    q_values = stats.benjamini_hochberg([one.with_planted.p_value for one in found])
    return [replace(one, planted_q=float(q)) for one, q in zip(found, q_values, strict=True)]


def lowering(found: list[Carrier]) -> list[Carrier]:
    """Those that lower the mean MaxSkew, with the false discovery rate over all heads below 5%."""
    return [one for one in found if one.change.value < 0 and one.q_value < 0.05]
