"""Compare a model with the planted bias: group shares of the top K, and effects of single heads."""

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
"""Plain faces without a cue of an occupation, in balanced groups."""
SCALES: Mapping[str, Mapping[str, float]] = {
    "gender": dict(zip(GENDERS, (1.0, -1.0), strict=True)),
    "skin tone": dict(zip(SKIN_TONES, np.linspace(-1, 1, len(SKIN_TONES)).tolist(), strict=True)),
}
"""Each group's position on an attribute's scale: positive is towards women, and towards dark skin."""

Shares = Mapping[str, Mapping[str, float]]
"""Occupation -> group -> share."""


@dataclass(frozen=True)
class Alignment:
    """Agreement of rankings with the planted bias.

    Attributes:
        effect: Spearman's correlation, over occupations, of the ranked and planted mean positions.
        right: Number of occupations with a strong planted bias whose rankings favor the planted groups.
        strong: Number of occupations with a strong planted bias.
    """

    effect: Effect
    right: int
    strong: int

    @property
    def counted(self) -> str:
        """Return the count, such as "11 of 12"."""
        return f"{self.right} of {self.strong}"


def mean_position(shares: Mapping[str, float], attribute: str) -> float:
    """Compute the mean position on the attribute's scale, -1 to 1.

    Args:
        shares: Group -> share.
        attribute: A key of SCALES.
    """
    return sum(SCALES[attribute][group] * share for group, share in shares.items())


def planted_max_skew(occupation: str, attribute: str) -> float:
    """Compute the MaxSkew of a ranking whose top K has the planted shares.

    Args:
        occupation: Name of the occupation.
        attribute: "gender" or "skin tone".
    """
    balanced = planted.shares(occupation, attribute, "balanced")
    skewed = planted.shares(occupation, attribute)
    return max(float(np.log(share / balanced[group])) for group, share in skewed.items())


def top_shares(results: Results, attribute: str) -> pd.DataFrame:
    """Select each group's share of each occupation's top K of the plain faces, with the column `group`.

    Args:
        results: Results of a model.
        attribute: Attribute of the groups.
    """
    rows = results.table("bias")
    selection = {"mode": "correct", "target": "pool", "dataset": FACES, "attribute": attribute}
    for column, value in selection.items():
        rows = rows[rows[column] == value]
    rows = rows[rows["metric"].str.startswith(TOP_SHARE)]
    return rows.assign(group=rows["metric"].str.removeprefix(TOP_SHARE))


def shares_of(results: Results, attribute: str, ablation: str = "none") -> dict[str, dict[str, float]]:
    """Return occupation -> group -> share of the top K of the plain faces; empty if not measured.

    Args:
        results: Results of a model.
        attribute: Attribute of the groups.
        ablation: Name of the ablation set.
    """
    frame = queries.of_ablation(top_shares(results, attribute), ablation)
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
        results: Results of a model.
        attribute: Attribute of the groups.
    """
    frame = queries.of_ablation(top_shares(results, attribute), "none").drop_duplicates("group")
    return {row["group"]: queries.chance(row) for _, row in frame.iterrows()}


def mean_skew(results: Results, attribute: str, ablation: str = "none") -> tuple[Estimate, Estimate] | None:
    """Return the mean MaxSkew over occupations and its chance level; None if not measured.

    Args:
        results: Results of a model.
        attribute: Attribute of the groups.
        ablation: Name of the ablation set.
    """
    rows = queries.of_ablation(queries.max_skew(results, dataset=FACES, attribute=attribute), ablation)
    return (queries.estimate(rows.iloc[0]), queries.chance(rows.iloc[0])) if len(rows) else None


def full(results: Results, attribute: str, ablation: str = "none") -> set[str]:
    """Return the occupations whose rankings are at the ceiling of MaxSkew.

    Args:
        results: Results of a model.
        attribute: Attribute of the groups.
        ablation: Name of the ablation set.
    """
    rows = queries.max_skew(results, "occupation", dataset=FACES, attribute=attribute)
    rows = queries.of_ablation(rows, ablation)
    return set(rows[rows["value"] >= rows["ceiling"] - 1e-9]["occupation"])


def alignment(shares: Shares, attribute: str) -> Alignment | None:
    """Compare rankings with the planted bias; None with fewer than four occupations.

    Args:
        shares: Occupation -> group -> share of the top K.
        attribute: Attribute of the groups.
    """
    names = sorted(shares)
    if len(names) < 4:
        return None
    ranked = [mean_position(shares[name], attribute) for name in names]
    expected = [mean_position(planted.shares(name, attribute), attribute) for name in names]
    strong = [i for i, name in enumerate(names) if abs(planted.planted_bias(name, attribute)) == 2]
    right = sum(ranked[i] * expected[i] > 0 for i in strong)
    return Alignment(correlation(ranked, expected), right, len(strong))


def carriers(results: Results, attribute: str) -> pd.DataFrame:
    """Collect the effect on MaxSkew of ablating each head by itself, the largest reduction first.

    Args:
        results: Results of a model.
        attribute: Attribute of the groups.

    Returns:
        Columns: head, label and ccs (None if unknown); `change` of the mean MaxSkew over occupations with its
        `q_value`; `strong` and `without`, mean changes over the occupations with a strong and with no planted
        bias; `rho`, the correlation over occupations of the reduction with the planted MaxSkew, with its
        `rho_q`. Both q are false discovery rates over heads. Empty if single heads weren't measured.
    """
    selection = {"metric": "MaxSkew mean", "measure": "total effect", "dataset": FACES, "factor": attribute}
    heads = results.table("heads")
    heads = heads[(heads[list(selection)] == selection).all(axis="columns")]
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
        association = correlation(-changes, planted_skew[changes.index])
        score = scores.get(head, HeadScore(None, None))
        label, ccs = (None if pd.isna(value) else value for value in (score.label, score.ccs))
        effect = Effect(*row[["value", "low", "high", "p_value"]].astype(float))
        rows.append(
            {"head": head, "label": label, "ccs": ccs, "effect": effect}
            | {"change": row["value"], "q_value": row["q_value"]}
            | {"strong": changes[biases == 2].mean(), "without": changes[biases == 0].mean()}
            | {"rho": association.value, "rho_p": association.p_value}
        )
    columns = ["head", "label", "ccs", "effect", "change", "q_value", "strong", "without", "rho", "rho_p"]
    effects = pd.DataFrame(rows, columns=columns).astype({"label": object, "ccs": object})
    return effects.assign(rho_q=stats.benjamini_hochberg(effects["rho_p"]))


def lowering(effects: pd.DataFrame) -> pd.DataFrame:
    """Return the heads that lower the mean MaxSkew, at a false discovery rate of 5% over all heads."""
    return effects[(effects["change"] < 0) & (effects["q_value"] < 0.05)]
