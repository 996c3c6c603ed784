"""The study's question where the truth is known: does pruning the high-CCS heads lower bias?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ccs.measures import stats
from ccs.measures.stats import Effect, Estimate
from ccs.texts.score import level
from research.planted.bench import ATTRIBUTES, K, Row
from research.rank_correlation import correlation
from research.seeds import over_seeds

LIES = ("high", "other")
"""Places of a planted skew: most of it in heads of high CCS, or in the others."""


def cases(rows: Sequence[Row], heads: Sequence[Row], before: bool = False) -> pd.DataFrame:
    """A row per model and attribute planted in it; by the CCS of heads, or by that `before` it was planted.

    Columns: model, attribute; in_high: the share of the gap that sits in heads of high CCS, by the shares of
    the heads that lower it; lies: one of LIES; lowered: the part of the planted gap (that with nothing off
    less that with the planted heads off) that goes with the high-CCS heads; random: the mean of it over
    random sets as large; other: that with all other heads; skew: the change of MaxSkew. 0 where there is no
    such head.
    """
    shown, of_heads = pd.DataFrame(rows), pd.DataFrame(heads)
    found = []
    for model, own in shown.groupby("model"):
        plans = own.groupby("plan")[[f"{what} {a}" for what in ("gap", "MaxSkew") for a in ATTRIBUTES]].mean()
        its = of_heads[of_heads["model"] == model]
        levels = its["was" if before else "ccs"].map(lambda score: level(score, K))
        for attribute in [name for name in ATTRIBUTES if name in own["carries"].iloc[0]]:
            share = its["share"].map(lambda shares, a=attribute: max(shares.get(a, 0.0), 0.0))
            in_high = share[levels == "high"].sum() / share.sum()
            gap, skew = plans[f"gap {attribute}"], plans[f"MaxSkew {attribute}"]
            planted = gap["none"] - gap["planted"]
            off, other = ("was high", "was other") if before else ("high", "other")
            found.append(
                {"model": model, "attribute": attribute, "in_high": in_high}
                | {"lies": "high" if in_high > 0.5 else "other"}
                | {"lowered": (gap["none"] - gap[off]) / planted, "skew": skew[off] - skew["none"]}
                | {"random": (gap["none"] - gap.get(f"random for {off}", gap["none"])) / planted}
                | {"other": (gap["none"] - gap.get(other, gap["none"])) / planted}
            )
    columns = ["model", "attribute", "in_high", "lies", "lowered", "skew", "random", "other"]
    return pd.DataFrame(found, columns=columns)


@dataclass(frozen=True)
class When:
    """The answer to: does pruning the high-CCS heads lower a planted bias?

    lowered: one of LIES -> number of models, and the part of the gap that goes, with its interval between
    models. with_share: the correlation, over models, of that part with the share that sits in these heads.
    beyond_random, beyond_other: that part less what goes with random sets as large, and with all other heads.
    """

    lowered: dict[str, tuple[int, Estimate]]
    with_share: Effect
    beyond_random: Effect
    beyond_other: Effect

    def sentence(self) -> str:
        """The answer, which depends on `with_share`, `beyond_random` and `beyond_other` alone."""
        rho = self.with_share
        known = "its share in them is the same in every model"
        if not np.isnan(rho.value):
            known = f"rho {rho.value:.2f} [{rho.low:.2f}, {rho.high:.2f}]"
        said = _answer(
            rho,
            yes="Pruning the high-CCS heads lowers bias more where more of it sits in them",
            reverse="Pruning the high-CCS heads lowers bias less where more of it sits in them",
            unsure="Pruning the high-CCS heads is not shown to lower bias more where more of it sits in them",
        )
        random, other = (
            _answer(more, yes="more than", reverse="less than", unsure="not shown to be more than")
            for more in (self.beyond_random, self.beyond_other)
        )
        return (
            f"{said} ({known}). On average the effect is {random} that of pruning random heads (difference: "
            f"{_percent(self.beyond_random)} of the gap) and {other} that of pruning all other heads "
            f"({_percent(self.beyond_other)})."
        )

    def by_place(self) -> str:
        """The part of the gap that goes with the high-CCS heads, by where the bias sits."""
        words = {"high": "in high-CCS heads", "other": "in other heads"}
        parts = [
            f"{_percent(part)} where most of the bias sits {words[lies]} (organisms: {n})"
            for lies, (n, part) in self.lowered.items()
        ]
        return f"With the high-CCS heads off, the planted gap falls by {', '.join(parts)}."


def _answer(effect: Effect, *, yes: str, reverse: str, unsure: str) -> str:
    """The words for whether an effect lies above zero."""
    words = {"yes": yes, "no, the reverse": reverse, "not shown": unsure}
    return words[stats.answer(effect, expected="above")]


def _percent(found: Estimate) -> str:
    text = f"{100 * found.value:.0f}%"
    return text if np.isnan(found.low) else f"{text} [{100 * found.low:.0f}, {100 * found.high:.0f}]"


def when(found: pd.DataFrame) -> When:
    """The answer from `cases`; a model's attributes are averaged, so that each model counts once."""
    each = found.groupby("model")[["in_high", "lowered", "random", "other"]].mean()
    by_place = {
        lies: found[found["lies"] == lies].groupby("model")["lowered"].mean()
        for lies in LIES
        if (found["lies"] == lies).any()
    }
    return When(
        {lies: (len(values), over_seeds(values)) for lies, values in by_place.items()},
        correlation(each["in_high"], each["lowered"]),
        stats.paired(each["lowered"], each["random"]),
        stats.paired(each["lowered"], each["other"]),
    )


def planted_gone(rows: Sequence[Row], attribute: str) -> dict[str, Estimate]:
    """Plan -> the mean gap of models in which the attribute is planted, with its interval between models."""
    shown = pd.DataFrame([row for row in rows if attribute in row["carries"]])
    means = shown.groupby(["plan", "model"])[f"gap {attribute}"].mean()
    return {str(plan): over_seeds(own) for plan, own in means.groupby("plan")}


def carriers(heads: Sequence[Row]) -> str:
    """Sentences on whether heads that carry a quarter or more of a planted skew have a high CCS.

    Their share of high CCS is compared with that of all heads of the same models; the interval is between
    models.
    """
    every = pd.DataFrame(
        {"model": row["model"], "carries": any(row["share"].get(a, 0) >= 0.25 for a in row["planted"])}
        | {name: level(row[key], K) == "high" for name, key in (("had", "was"), ("have", "ccs"))}
        for row in heads
    )
    found = every[every["carries"]]
    of_all = every.groupby("model")["have"].mean()
    shares = found.groupby("model")["have"].mean()
    beyond = stats.paired(shares, of_all[shares.index])
    said = _answer(
        beyond,
        yes="have a high CCS more often than other heads",
        reverse="have a high CCS less often than other heads",
        unsure="are not shown to have a high CCS more or less often than other heads",
    )
    points = beyond.times(100)
    return (
        f"Heads that carry planted bias {said}: {found['have'].sum()} of the {len(found)} heads that carry a "
        f"quarter or more of a skew, {points.value:+.0f} points [{points.low:+.0f}, {points.high:+.0f}] from "
        f"the share among all heads. Before planting, {found['had'].sum()} of these heads had one."
    )
