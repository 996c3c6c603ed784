"""The study's questions where the truth is known: when pruning lowers bias, and what a high CCS means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from batch.planted.measure import ATTRIBUTES, K, Row
from ccs.measures import stats
from ccs.measures.stats import Effect, Estimate
from ccs.texts import concepts
from ccs.texts.score import level

LIES = ("high", "low", "elsewhere")
"""Where most of a planted skew sits: in heads of high CCS, of low CCS, or in neither."""


def cases(rows: Sequence[Row], heads: Sequence[Row], before: bool = False) -> pd.DataFrame:
    """A row per model and attribute planted in it; by the CCS of heads, or by that `before` it was planted.

    Columns: model, attribute; in_high: the share of the gap that sits in heads of high CCS, by the shares of
    the heads that lower it; lies: one of LIES; lowered: the part of the planted gap (that with nothing off
    less that with the planted heads off) that goes with the high-CCS heads; random: the mean of it over
    random sets as large; low: that with the low-CCS heads; skew: the change of MaxSkew. 0 where there is no
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
            parts = {name: share[levels == name].sum() / share.sum() for name in ("high", "low")}
            gap, skew = plans[f"gap {attribute}"], plans[f"MaxSkew {attribute}"]
            planted = gap["none"] - gap["planted"]
            off, low = ("was high", "was low") if before else ("high", "low")
            found.append(
                {"model": model, "attribute": attribute, "in_high": parts["high"]}
                | {"lies": next((name for name in parts if parts[name] > 0.5), "elsewhere")}
                | {"lowered": (gap["none"] - gap[off]) / planted, "skew": skew[off] - skew["none"]}
                | {"random": (gap["none"] - gap.get(f"random for {off}", gap["none"])) / planted}
                | {"low": (gap["none"] - gap.get(low, gap["none"])) / planted}
            )
    columns = ["model", "attribute", "in_high", "lies", "lowered", "skew", "random", "low"]
    return pd.DataFrame(found, columns=columns)


@dataclass(frozen=True)
class When:
    """The answer to when pruning the heads of high CCS lowers a planted bias.

    lowered: one of LIES -> models, and the part of the gap that goes, with its interval between models.
    with_share: the correlation, over models, of that part with the share that sits in these heads.
    beyond_random, beyond_low: that part less the mean over random sets as large, and less what goes with the
    low-CCS heads, with their intervals between models.
    """

    lowered: dict[str, tuple[int, Estimate]]
    with_share: Effect
    beyond_random: Effect
    beyond_low: Effect

    def sentence(self) -> str:
        """The answer, which depends on `with_share`, `beyond_random` and `beyond_low` alone."""
        said = {
            "yes": "Pruning the most informative heads lowers bias as far as the bias sits in them",
            "no, the reverse": "Pruning the most informative heads lowers bias the less of it sits in them",
            "not shown": "It is not shown that pruning informative heads lowers bias where it sits in them",
        }[stats.answer(self.with_share, expected="above")]
        verbs = {
            "yes": "lower it more than",
            "no, the reverse": "lower it less than",
            "not shown": "are not shown to lower it more than",
        }
        also = [
            f"{verbs[stats.answer(more, expected='above')]} {heads} ({_percent(more)} of the gap)"
            for heads, more in (("random heads", self.beyond_random), ("the low-CCS heads", self.beyond_low))
        ]
        rho = self.with_share
        known = f"rho {rho.value:.2f}, {rho.low:.2f} to {rho.high:.2f}"
        if np.isnan(rho.value):
            known = "its share in them is the same everywhere"
        return f"{said} ({known}); on average they {' and '.join(also)}."

    def by_place(self) -> str:
        """The part of the gap that goes with the high-CCS heads, by where the bias sits."""
        words = {"high": "in high-CCS heads", "low": "in low-CCS heads", "elsewhere": "elsewhere"}
        parts = [
            f"{_percent(part)} where most of the bias sits {words[lies]} (organisms: {n})"
            for lies, (n, part) in self.lowered.items()
        ]
        return f"With the high-CCS heads off the planted gap falls by {', '.join(parts)}."


def _percent(found: Estimate) -> str:
    text = f"{100 * found.value:.0f}%"
    return text if np.isnan(found.low) else f"{text} ({100 * found.low:.0f} to {100 * found.high:.0f}%)"


def when(found: pd.DataFrame) -> When:
    """The answer from `cases`; a model's attributes are averaged, so that each model counts once."""
    each = found.groupby("model")[["in_high", "lowered", "random", "low"]].mean()
    by_place = {
        lies: found[found["lies"] == lies].groupby("model")["lowered"].mean()
        for lies in LIES
        if (found["lies"] == lies).any()
    }
    return When(
        {lies: (len(values), stats.over_seeds(values)) for lies, values in by_place.items()},
        stats.correlation(each["in_high"], each["lowered"]),
        stats.paired(each["lowered"], each["random"]),
        stats.paired(each["lowered"], each["low"]),
    )


@dataclass(frozen=True)
class Found:
    """How far a high CCS finds the heads that learned one concept.

    Heads count to which what they were taught gave half of their variance or more. recall: of those taught
    one concept, those with a high CCS and that concept's label. precision: of those with a high CCS, those
    taught one. Each as (found, of).
    """

    recall: tuple[int, int]
    precision: tuple[int, int]

    def sentence(self) -> str:
        recall, precision = (f"{n} of {of}" for n, of in (self.recall, self.precision))
        return (
            f"Of heads that learned one concept {recall} have a high CCS under its name; "
            f"of taught heads with a high CCS {precision} learned one concept alone."
        )


def concepts_found(heads: Sequence[Row]) -> Found:
    """See `Found`."""
    tree = concepts.tree()
    taught = [row for row in heads if (row["pure"] or 0) >= 0.5]
    high = [row for row in taught if level(row["ccs"], K) == "high"]
    one = [row for row in taught if len(row["planted"]) == 1]
    named = [row for row in one if row in high and tree.is_under(row["label"], row["planted"][0])]
    return Found((len(named), len(one)), (sum(row in one for row in high), len(high)))


def planted_gone(rows: Sequence[Row], attribute: str) -> dict[str, Estimate]:
    """Plan -> the mean gap of models in which the attribute is planted, with its interval between models."""
    shown = pd.DataFrame([row for row in rows if attribute in row["carries"]])
    means = shown.groupby(["plan", "model"])[f"gap {attribute}"].mean()
    return {str(plan): stats.over_seeds(own) for plan, own in means.groupby("plan")}


@dataclass(frozen=True)
class Carriers:
    """The heads that carry a quarter or more of a planted skew.

    n, had, have: how many there are, how many had a high CCS before, how many have one with it. beyond_all:
    their share of high CCS less that of all heads, with its interval between models.
    """

    n: int
    had: int
    have: int
    beyond_all: Effect

    def sentence(self) -> str:
        """One sentence; which one depends on `beyond_all` alone."""
        sits = {
            "yes": "sits in high-CCS heads more often than in others",
            "no, the reverse": "sits in high-CCS heads less often than in others",
            "not shown": "is not shown to sit in high-CCS heads more or less often than in others",
        }[stats.answer(self.beyond_all, expected="above")]
        more = self.beyond_all.times(100)
        return (
            f"Planted bias {sits}: of {self.n} heads that carry a quarter or more of a skew {self.have} "
            f"{'has' if self.have == 1 else 'have'} a high CCS, which is {more.value:+.0f} points "
            f"({more.low:+.0f} to {more.high:+.0f}) from the share of all heads; before the skew was "
            f"planted {self.had} of them had one."
        )


def carriers(heads: Sequence[Row]) -> Carriers:
    """See `Carriers`; of models in which a skew was planted."""
    every = pd.DataFrame(
        {"model": row["model"], "carries": any(row["share"].get(a, 0) >= 0.25 for a in row["planted"])}
        | {name: level(row[key], K) == "high" for name, key in (("had", "was"), ("have", "ccs"))}
        for row in heads
    )
    found = every[every["carries"]]
    of_all = every.groupby("model")["have"].mean()
    shares = found.groupby("model")["have"].mean()
    return Carriers(
        len(found),
        int(found["had"].sum()),
        int(found["have"].sum()),
        stats.paired(shares, of_all[shares.index]),
    )
