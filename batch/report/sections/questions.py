"""The study's two questions put to measured results as tests: does pruning the high heads hurt more than
pruning as many random ones, and does it lower MaxSkew?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd
import scipy.stats

from batch.report.page import Block, Grid, Heading, Items, Text
from batch.report.wording import interval, p_text, signed
from ccs.measures import stats
from ccs.measures.stats import Effect
from ccs.results import Results

HURT = "accuracy (points): high off less random off"
LOWERS = "MaxSkew: high off less none off"
MORE = "MaxSkew: high off less random off"
QUESTIONS: Mapping[str, str] = {
    HURT: "Does pruning the high heads hurt accuracy more than pruning as many random heads?",
    LOWERS: "Does pruning the high heads lower MaxSkew?",
    MORE: "Does it lower MaxSkew more than pruning as many random heads does?",
}
"""Each asks whether the named difference is below zero."""
ALL = "all models"


@dataclass(frozen=True)
class Tested:
    """One test: the difference asked about, of which set (or model), the effect in the measure's units.

    `adjusted`: its p by Holm over the tests that stand in one table.
    """

    question: str
    where: str
    effect: Effect
    n_heads: int = 0
    adjusted: float = float("nan")

    @property
    def scale(self) -> float:
        """From the measure's units to what is printed."""
        return 100.0 if self.question.startswith("accuracy") else 1.0

    @property
    def digits(self) -> int:
        return 1 if self.scale > 1 else 3

    @property
    def answer(self) -> stats.Answer:
        """Whether the difference is below zero, at an adjusted p of 5%."""
        return stats.answer(replace(self.effect, p_value=self.adjusted), expected="below")


def holm(found: Sequence[Tested]) -> list[Tested]:
    """The tests with their p adjusted over all of them."""
    adjusted = stats.holm([one.effect.p_value for one in found])
    return [replace(one, adjusted=float(p)) for one, p in zip(found, adjusted, strict=True)]


def accuracy_frame(results: Results) -> pd.DataFrame:
    """Top-1 over all classes of every set."""
    frame = results.table("pruning")
    return frame[(frame["metric"] == "top1") & (frame["subset"] == "")].assign(where=frame["dataset"])


def skew_frame(results: Results) -> pd.DataFrame:
    """Mean MaxSkew over occupations by the correct metric, against the pool, of every set and attribute."""
    frame = results.table("bias")
    chosen = (frame["metric"] == "MaxSkew mean") & (frame["mode"] == "correct") & (frame["target"] == "pool")
    return frame[chosen].assign(where=frame["dataset"] + ", " + frame["attribute"])


def against_random(frame: pd.DataFrame, plan: str = "high", drawn: str = "random") -> Effect | None:
    """High heads against as many random ones; None where either is missing."""
    high = frame.loc[frame["plan"] == plan, "value"]
    random = frame.loc[(frame["plan"] == drawn) & frame["seed"].notna(), "value"]
    if not len(high) or not len(random):
        return None
    return stats.against_random(float(high.iloc[0]), random.to_numpy(float))


def against_none(frame: pd.DataFrame) -> Effect | None:
    """High heads against none, the mean over the frame's sets; None where there is no tested difference.

    The tables do not say how errors of several sets go together (attributes of one set share its pictures).
    So the interval takes them to be the same, which makes it as wide as the mean of the sets' own.
    """
    rows = frame[(frame["plan"] == "high") & frame["p_value"].notna()]
    if not len(rows):
        return None
    if len(rows) == 1:
        row = rows.iloc[0]
        return Effect(
            *(float(row[key]) for key in ("difference", "difference_low", "difference_high", "p_value"))
        )
    value = float(rows["difference"].mean())
    half = float((rows["difference_high"] - rows["difference_low"]).mean() / 2)
    error = half / stats.DEVIATIONS
    p_value = float(2 * scipy.stats.norm.sf(abs(value) / error)) if error > 0 else float(value == 0)
    return Effect(value, value - half, value + half, p_value)


def tests_of(results: Results) -> list[Tested]:
    """On every set: accuracy and skew against no head off, and against random heads off."""
    found: list[Tested] = []
    for name, frame in (("accuracy (points)", accuracy_frame(results)), ("MaxSkew", skew_frame(results))):
        for where, some in frame.groupby("where", sort=False):
            size = (
                int(some.loc[some["plan"] == "high", "n_heads"].max())
                if (some["plan"] == "high").any()
                else 0
            )
            for other, effect in (("none", against_none(some)), ("random", against_random(some))):
                if effect is not None:
                    found.append(Tested(f"{name}: high off less {other} off", str(where), effect, size))
    return holm(found)


def answers(results: Results) -> Iterator[Block]:
    """The tests of one model as a table, Holm's correction over all of them."""
    found = tests_of(results)
    if not found:
        return
    rows = []
    for one in found:
        apiece = stats.per_head(one.effect, one.n_heads).value * one.scale
        rows.append([*_cells(one), signed(apiece, one.digits + 1), _lower(one.answer)])
    yield Heading(3, "Does pruning high heads hurt, and does it lower skew?")
    yield Text(
        "Lower accuracy is harm, lower MaxSkew is what one hopes for. Against no head off: paired bootstrap. "
        "Against random heads: could the high set be one more random set (prediction interval)? p is "
        "adjusted by Holm over the tests of this table."
    )
    columns = ["difference", "where", "effect", "95% interval", "p", "adjusted p", "per head", "lower?"]
    yield Grid(columns, rows, "", frozenset({"where", "lower?"}))


def _cells(one: Tested) -> list[str]:
    return [
        one.question,
        one.where,
        signed(one.effect.value, one.digits, one.scale),
        interval(one.effect, one.scale, one.digits),
        p_text(one.effect.p_value),
        p_text(one.adjusted),
    ]


def _lower(answer: stats.Answer) -> str:
    words: Mapping[stats.Answer, str] = {"yes": "yes, lower", "no, the reverse": "no, higher"}
    return words.get(answer, answer)


def by_model(models: Mapping[str, Results]) -> list[Tested]:
    """Each question once a model, on the means over its sets; p adjusted over models and questions."""
    found: list[Tested] = []
    for question in QUESTIONS:
        make = accuracy_frame if question == HURT else skew_frame
        for model, results in models.items():
            frame = make(results)
            if question == LOWERS:
                effect = against_none(frame)
            else:
                means = frame.groupby(["plan", "seed"], dropna=False)["value"].mean().reset_index()
                effect = against_random(means)
            if effect is not None and np.isfinite(effect.p_value):
                found.append(Tested(question, model, effect))
    return holm(found)


def overall(found: Sequence[Tested]) -> list[Tested]:
    """Each question over all models that it was asked of, where these are two or more."""
    wholes = []
    for question in QUESTIONS:
        mine = [one.effect for one in found if one.question == question]
        if len(mine) > 1:
            wholes.append(Tested(question, ALL, stats.overall(mine)))
    return holm(wholes)


def in_short(models: Mapping[str, Results]) -> Iterator[Block]:
    """Each question's answer in words, then the tests behind it, a model and all models."""
    found = by_model(models)
    if not found:
        return
    wholes = overall(found)
    yield Text(
        "The study's two questions, each put to the means over a model's sets. A yes or no stands where "
        "Holm's adjusted p is below 5%; else the effect is not shown, which is not the same as none."
    )
    yield Items(
        tuple(
            f"**{words}** {'; '.join(_said(one) for one in (*found, *wholes) if one.question == question)}."
            for question, words in QUESTIONS.items()
            if any(one.question == question for one in found)
        )
    )
    rows = [
        [*(f"**{cell}**" if cell == ALL else cell for cell in _cells(one)), _lower(one.answer)]
        for question in QUESTIONS
        for one in (*found, *wholes)
        if one.question == question
    ]
    columns = ["difference", "model", "effect", "95% interval", "p", "adjusted p", "lower?"]
    yield Grid(columns, rows, "", frozenset({"model", "lower?"}))
    text = (
        "Against random heads p asks whether the high set could be one more random set. Over all models p "
        "is Stouffer's, of no effect in any of them, while the interval is of the mean over models such "
        "as these and so is wide for a few; each is adjusted over its own rows."
    )
    if {"organism", "organism-control"} <= models.keys():
        text += (
            " The organism and its control began as one model: taken as independent, as here, they make the "
            "p over all models too small."
        )
    yield Text(text)


def _said(one: Tested) -> str:
    unit = " points" if one.scale > 1 else ""
    return f"{one.where}: {one.answer} ({signed(one.effect.value, one.digits, one.scale)}{unit})"


Verdict = Literal["whole", "accuracy alone", "skew alone", "neither"]


def verdict(found: Sequence[Tested], model: str) -> Verdict | None:
    """Whether a model's consistent heads carry its accuracy, and its skew. None: not tested."""
    said = {one.question: one.answer == "yes" for one in found if one.where == model}
    if HURT not in said or LOWERS not in said:
        return None
    if said[HURT]:
        return "whole" if said[LOWERS] else "accuracy alone"
    return "skew alone" if said[LOWERS] else "neither"
