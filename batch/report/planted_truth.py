"""What of the planted skew a model shows: shares in the top K and single heads, beside the planted table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from batch.report.sections.truth import Correlated, correlated, scored
from ccs.errors import InputError
from ccs.heads import Head
from ccs.measures import stats
from ccs.measures.stats import Effect, Estimate
from ccs.results import Results, schema
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
    """How rankings go with the planted table: Spearman's correlation of leans over occupations, and how many
    of the strongly planted occupations lean the planted way.
    """

    effect: Effect
    right: int
    strong: int


@dataclass(frozen=True)
class Carrier:
    """What switching one head off does to MaxSkew on the plain faces.

    `change`: of the mean over occupations; `strong`, `without`: of the means over those with strong and
    without planted skew. `with_planted`: over occupations, how the lowering goes with the planted MaxSkew.
    `q_value`, `planted_q`: of `change` and of `with_planted`, false discovery rate over the heads.
    """

    head: Head
    label: str | None
    ccs: int | None
    change: Effect
    q_value: float
    strong: float
    without: float
    with_planted: Effect
    planted_q: float


def lean(shares: Mapping[str, float], attribute: str) -> float:
    """The mean place on the attribute's scale, -1 to 1."""
    return sum(SCALES[attribute][group] * share for group, share in shares.items())


def planted_max_skew(occupation: str, attribute: str) -> float:
    """The MaxSkew of a ranking whose top K has the planted shares."""
    fair = planted.shares(occupation, attribute, "balanced")
    skewed = planted.shares(occupation, attribute)
    return max(float(np.log(share / fair[group])) for group, share in skewed.items())


def _faces(results: Results, attribute: str) -> pd.DataFrame:
    frame = results.table("bias")
    right = (frame["dataset"] == FACES) & (frame["attribute"] == attribute)
    return frame[right & (frame["mode"] == "correct") & (frame["target"] == "pool")]


def _of_plan(frame: pd.DataFrame, plan: str) -> pd.DataFrame:
    """A plan's rows; of random plans the means over seeds."""
    return frame[(frame["plan"] == plan) & (frame["seed"].isna() | (plan.split("@")[0] != "random"))]


def shares_of(results: Results, attribute: str, plan: str = "none") -> dict[str, dict[str, float]]:
    """Occupation -> group -> share of the top K of the plain faces; empty where the tables have none."""
    frame = _of_plan(_faces(results, attribute), plan)
    frame = frame[frame["metric"].str.startswith(schema.TOP_SHARE)]
    found: dict[str, dict[str, float]] = {}
    for metric, occupation, value in zip(frame["metric"], frame["occupation"], frame["value"], strict=True):
        found.setdefault(occupation, {})[metric.removeprefix(schema.TOP_SHARE)] = float(value)
    whole = set(SCALES[attribute])
    return {name: shares for name, shares in found.items() if name in OCCUPATIONS and set(shares) == whole}


def chance_of(results: Results, attribute: str) -> dict[str, Estimate]:
    """Group -> share of a random ranking's top K, with its 95% range."""
    frame = _of_plan(_faces(results, attribute), "none")
    frame = frame[frame["metric"].str.startswith(schema.TOP_SHARE)].drop_duplicates("metric")
    cells = frame[["metric", "chance", "chance_low", "chance_high"]].itertuples(index=False, name=None)
    return {metric.removeprefix(schema.TOP_SHARE): Estimate(*figures) for metric, *figures in cells}


def mean_skew(results: Results, attribute: str, plan: str = "none") -> tuple[Estimate, Estimate] | None:
    """The mean MaxSkew over occupations, and its chance level."""
    frame = _of_plan(_faces(results, attribute), plan)
    rows = frame[(frame["metric"] == "MaxSkew mean") & (frame["occupation"] == "")]
    if not len(rows):
        return None
    row = rows.iloc[0]
    value, chance = ([float(row[name]) for name in names] for names in (
        ("value", "low", "high"), ("chance", "chance_low", "chance_high")))  # fmt: skip
    return Estimate(*value), Estimate(*chance)


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
    heads = results.table("heads")
    chosen = (heads["measure"] == "total effect") & (heads["metric"] == "MaxSkew mean")
    heads = heads[chosen & (heads["dataset"] == FACES) & (heads["factor"] == attribute)]
    frame = _faces(results, attribute)
    frame = frame[(frame["metric"] == "MaxSkew") & frame["plan"].str.startswith("single:")]
    ccs, labels = scored(results)
    found = []
    for _, row in heads.sort_values("value").iterrows():
        head = Head(int(row["layer"]), int(row["head"]))
        apart = frame[frame["plan"] == f"single:{head}"].set_index("occupation")["difference"]
        names = [name for name in OCCUPATIONS if name in apart.index]
        wanted = np.array([planted_max_skew(name, attribute) for name in names])
        moved = apart.loc[names].to_numpy(float)
        try:
            together = stats.correlation(-moved, wanted)
        except InputError:
            continue
        leans = np.array([abs(planted.lean(name, attribute)) for name in names])
        figures = [float(row[name]) for name in ("value", "low", "high", "p_value")]
        found.append(
            Carrier(
                head,
                labels.get(head),
                ccs.get(head),
                Effect(*figures),
                float(row["q_value"]),
                float(moved[leans == 2].mean()),
                float(moved[leans == 0].mean()),
                together,
                float("nan"),
            )
        )
    q_values = stats.benjamini_hochberg([one.with_planted.p_value for one in found])
    return [replace(one, planted_q=float(q)) for one, q in zip(found, q_values, strict=True)]


def lowering(found: list[Carrier]) -> list[Carrier]:
    """Those that lower the mean MaxSkew, with the false discovery rate over all heads below 5%."""
    return [one for one in found if one.change.value < 0 and one.q_value < 0.05]


def ccs_and_lowering(results: Results, found: list[Carrier]) -> Correlated:
    """Do heads of high CCS lower MaxSkew more?"""
    lowered = {one.head: -one.change.value for one in found}
    return correlated("CCS with how much a head's switching off lowers MaxSkew", scored(results)[0], lowered)
