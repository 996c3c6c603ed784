"""The planted skew as a model shows it: shares in the top K and single heads, beside the planted table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ccs.analysis.ablation_sets import AblationName
from ccs.heads import Head
from ccs.metrics import stats
from ccs.metrics.stats import Effect, Estimate
from ccs.results import Results, queries
from ccs.results.schema import TOP_SHARE
from ccs.synthetic.vocabulary import GENDERS, OCCUPATIONS, SKIN_TONES
from ccs.texts.score import HeadScore
from research.rank_correlation import correlation
from research.world import planted

FACES = "world/faces"
"""Plain faces, no occupational cue, every group as often as every other."""
SCALES: Mapping[str, Mapping[str, float]] = {
    "gender": dict(zip(GENDERS, (1.0, -1.0), strict=True)),
    "skin tone": dict(zip(SKIN_TONES, np.linspace(-1, 1, len(SKIN_TONES)).tolist(), strict=True)),
}
"""Each group's place on an attribute's scale: positive is towards women, and towards dark skin."""

Shares = Mapping[str, Mapping[str, float]]
"""Occupation -> group -> share."""


@dataclass(frozen=True)
class Alignment:
    """Agreement of rankings with the planted table.

    It holds Spearman's correlation of mean positions over occupations, and how many of the occupations with a
    strong planted bias are ranked that way.
    """

    effect: Effect
    right: int
    strong: int

    @property
    def counted(self) -> str:
        """Return the count, such as "11 of 12"."""
        return f"{self.right} of {self.strong}"


def mean_position(shares: Mapping[str, float], attribute: str) -> float:
    """Compute the mean place on the attribute's scale, -1 to 1.

    Args:
        shares: group -> share.
        attribute: with the scale.
    """
    return sum(SCALES[attribute][group] * share for group, share in shares.items())


def planted_max_skew(occupation: str, attribute: str) -> float:
    """Compute the MaxSkew of a ranking whose top K has the planted shares.

    Args:
        occupation: its name.
        attribute: "gender" or "skin tone".
    """
    fair = planted.shares(occupation, attribute, "balanced")
    skewed = planted.shares(occupation, attribute)
    return max(float(np.log(share / fair[group])) for group, share in skewed.items())


def top_shares(results: Results, attribute: str) -> pd.DataFrame:
    """Select each group's share of each occupation's top K of the plain faces, with the column `group`.

    Args:
        results: of a model.
        attribute: of the groups.
    """
    rows = results.table("bias")
    wanted = {"mode": "correct", "target": "pool", "dataset": FACES, "attribute": attribute}
    for column, value in wanted.items():
        rows = rows[rows[column] == value]
    rows = rows[rows["metric"].str.startswith(TOP_SHARE)]
    return rows.assign(group=rows["metric"].str.removeprefix(TOP_SHARE))


def shares_of(results: Results, attribute: str, plan: str = "none") -> dict[str, dict[str, float]]:
    """Return occupation -> group -> share of the top K of the plain faces; empty if the tables have none.

    Args:
        results: of a model.
        attribute: of the groups.
        plan: the ablation set.
    """
    frame = queries.of_ablation(top_shares(results, attribute), plan)
    shares_by_occupation: dict[str, dict[str, float]] = {}
    for group, occupation, value in zip(frame["group"], frame["occupation"], frame["value"], strict=True):
        shares_by_occupation.setdefault(occupation, {})[group] = float(value)
    groups = set(SCALES[attribute])
    return {
        name: shares
        for name, shares in shares_by_occupation.items()
        if name in OCCUPATIONS and set(shares) == groups
    }


def chance_of(results: Results, attribute: str) -> dict[str, Estimate]:
    """Return group -> share of a random ranking's top K, with its 95% range.

    Args:
        results: of a model.
        attribute: of the groups.
    """
    frame = queries.of_ablation(top_shares(results, attribute), "none").drop_duplicates("group")
    return {row["group"]: queries.chance(row) for _, row in frame.iterrows()}


def mean_skew(results: Results, attribute: str, plan: str = "none") -> tuple[Estimate, Estimate] | None:
    """Return the mean MaxSkew over occupations, and its chance level.

    Args:
        results: of a model.
        attribute: of the groups.
        plan: the ablation set.
    """
    rows = queries.of_ablation(queries.max_skew(results, dataset=FACES, attribute=attribute), plan)
    return (queries.estimate(rows.iloc[0]), queries.chance(rows.iloc[0])) if len(rows) else None


def full(results: Results, attribute: str, plan: str = "none") -> set[str]:
    """Return the occupations whose rankings are at the ceiling of MaxSkew.

    Args:
        results: of a model.
        attribute: of the groups.
        plan: the ablation set.
    """
    rows = queries.max_skew(results, "occupation", dataset=FACES, attribute=attribute)
    rows = queries.of_ablation(rows, plan)
    return set(rows[rows["value"] >= rows["ceiling"] - 1e-9]["occupation"])


def alignment(shares: Shares, attribute: str) -> Alignment | None:
    """Compare rankings with the planted table; None with fewer than four occupations.

    Args:
        shares: occupation -> group -> share.
        attribute: of the groups.
    """
    names = sorted(shares)
    if len(names) < 4:
        return None
    ranked = [mean_position(shares[name], attribute) for name in names]
    wanted = [mean_position(planted.shares(name, attribute), attribute) for name in names]
    strong = [i for i, name in enumerate(names) if abs(planted.planted_bias(name, attribute)) == 2]
    right = sum(ranked[i] * wanted[i] > 0 for i in strong)
    return Alignment(correlation(ranked, wanted), right, len(strong))


def carriers(results: Results, attribute: str) -> pd.DataFrame:
    """Measure every head's effect on MaxSkew when it alone is ablated, the strongest reduction first.

    Args:
        results: of a model.
        attribute: of the groups.

    Returns:
        Columns: head, label and ccs (None if unknown); `change` of the mean over occupations with its
        `q_value`; `strong` and `without`, means of the changes over occupations of strong and of no planted
        bias; `rho`, the correlation over occupations of the reduction with the planted MaxSkew, with its
        `rho_q`. Both q are false discovery rates over the heads. No rows without single heads' effects.
    """
    wanted = {"metric": "MaxSkew mean", "measure": "total effect", "dataset": FACES, "factor": attribute}
    heads = results.table("heads")
    heads = heads[(heads[list(wanted)] == wanted).all(axis="columns")]
    skew = queries.max_skew(results, "occupation", dataset=FACES, attribute=attribute)
    skew = queries.single_heads(skew)
    planted_skew = pd.Series({name: planted_max_skew(name, attribute) for name in OCCUPATIONS})
    biases = pd.Series({name: abs(planted.planted_bias(name, attribute)) for name in OCCUPATIONS})
    scores = dict(queries.by_head(queries.main_scores(results)))
    rows = []
    for _, row in heads.sort_values("value").iterrows():
        head = Head(row["layer"], row["head"])
        changes = queries.of_ablation(skew, str(AblationName("single", argument=str(head)))).set_index(
            "occupation"
        )["difference"]
        changes = changes.reindex(list(OCCUPATIONS)).dropna().astype(float)
        if len(changes) < 4:
            continue
        together = correlation(-changes, planted_skew[changes.index])
        score = scores.get(head, HeadScore(None, None))
        label, ccs = (None if pd.isna(value) else value for value in (score.label, score.ccs))
        effect = Effect(*row[["value", "low", "high", "p_value"]].astype(float))
        rows.append(
            {"head": head, "label": label, "ccs": ccs, "effect": effect}
            | {"change": row["value"], "q_value": row["q_value"]}
            | {"strong": changes[biases == 2].mean(), "without": changes[biases == 0].mean()}
            | {"rho": together.value, "rho_p": together.p_value}
        )
    columns = ["head", "label", "ccs", "effect", "change", "q_value", "strong", "without", "rho", "rho_p"]
    effects = pd.DataFrame(rows, columns=columns).astype({"label": object, "ccs": object})
    return effects.assign(rho_q=stats.benjamini_hochberg(effects["rho_p"]))


def lowering(effects: pd.DataFrame) -> pd.DataFrame:
    """Return those that lower the mean MaxSkew, with the false discovery rate over all heads below 5%."""
    return effects[(effects["change"] < 0) & (effects["q_value"] < 0.05)]
