"""The study's two questions put to measured results as tests: does pruning the high heads hurt more than
pruning as many random ones, and does it lower MaxSkew?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from batch.report.page import Block, listing, table
from batch.report.wording import interval, p_text, signed
from ccs.measures import stats
from ccs.measures.stats import Effect
from ccs.results import Results, queries

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
ORGANISM, CONTROL = "organism", "organism-control"
TRAINED_TOGETHER = frozenset({ORGANISM, CONTROL})
"""Models that share the first phase of their training, so that they are not independent."""


@dataclass(frozen=True)
class Tested:
    """One test: the difference asked about, of which set (or model), the effect in the measure's units.

    `adjusted`: its p by Holm over the tests of one table; NaN without a test.
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
        """Is the difference below zero, at an adjusted p of 5%?"""
        return stats.answer(replace(self.effect, p_value=self.adjusted), expected="below")

    @property
    def figure(self) -> str:
        """The effect as it is printed, without its unit."""
        return signed(self.effect.value, self.digits, self.scale)

    @property
    def unit(self) -> str:
        return " points" if self.scale > 1 else ""

    def row(self, place: str) -> dict[str, str]:
        """The test as a row of a table; `place` heads the column that says where."""
        lower: Mapping[stats.Answer, str] = {"yes": "yes, lower", "no, the reverse": "no, higher"}
        apiece = {}
        if self.n_heads:
            each = self.effect.times(1 / self.n_heads).value
            apiece = {"per head": signed(each, self.digits + 1, self.scale)}
        return {
            "difference": self.question,
            place: self.where,
            "effect": self.figure,
            "95% interval": interval(self.effect, self.scale, self.digits),
            "p": p_text(self.effect.p_value),
            "adjusted p": p_text(self.adjusted),
            **apiece,
            "lower?": lower.get(self.answer, self.answer) if np.isfinite(self.adjusted) else "not tested",
        }


def _adjusted(found: Sequence[Tested]) -> list[Tested]:
    """The tests with their p adjusted by Holm over all of them."""
    adjusted = stats.holm([one.effect.p_value for one in found])
    return [replace(one, adjusted=float(p)) for one, p in zip(found, adjusted, strict=True)]


def against_random(frame: pd.DataFrame) -> Effect | None:
    """High heads against as many random ones; None if either is missing."""
    high, random = queries.of_plan(frame, "high")["value"], queries.seeds(frame)["value"]
    if not len(high) or not len(random):
        return None
    return stats.against_random(float(high.iloc[0]), random.to_numpy(float))


def against_none(frame: pd.DataFrame) -> Effect | None:
    """High heads against none, the mean over the frame's sets; None without a tested difference.

    Attributes of one set share its images, so errors are not taken to be independent.
    """
    rows = queries.of_plan(frame, "high").dropna(subset="p_value")
    differences = [queries.difference(row) for _, row in rows.iterrows()]
    return stats.of_one_sample(differences) if differences else None


def tests_of(results: Results) -> list[Tested]:
    """Accuracy and skew on every set, against no head off and against random heads off."""
    skew = queries.max_skew(results)
    frames = {
        "accuracy (points)": queries.top1(results).assign(where=lambda rows: rows["dataset"]),
        "MaxSkew": skew.assign(where=skew["dataset"] + ", " + skew["attribute"]),
    }
    found = []
    for measure, frame in frames.items():
        for where, some in frame.groupby("where", sort=False):
            sizes = queries.of_plan(some, "high")["n_heads"]
            for other, effect in (("none", against_none(some)), ("random", against_random(some))):
                if effect is not None:
                    name = f"{measure}: high off less {other} off"
                    found.append(Tested(name, str(where), effect, int(sizes.max())))
    return _adjusted(found)


def answers(results: Results) -> Iterator[Block]:
    """The tests of one model as a table, with Holm's correction over all of them."""
    found = tests_of(results)
    if not found:
        return
    yield "### Does pruning high heads hurt, and does it lower skew?"
    yield (
        "Lower accuracy is harm; lower MaxSkew is what one hopes for. Against no head off: paired bootstrap. "
        "Against random heads: could the high set be one more random set (prediction interval)? p is "
        "adjusted by Holm over the tests of this table."
    )
    yield table(pd.DataFrame([one.row("where") for one in found]))


def by_model(models: Mapping[str, Results]) -> list[Tested]:
    """Each question once per model, on the means over its sets; p adjusted over models and questions."""
    found: list[Tested] = []
    for question in QUESTIONS:
        for model, results in models.items():
            frame = queries.top1(results) if question == HURT else queries.max_skew(results)
            if question == LOWERS:
                effect = against_none(frame)
            else:
                means = frame.groupby(["plan", "seed"], dropna=False)["value"].mean().reset_index()
                effect = against_random(means)
            if effect is not None and np.isfinite(effect.p_value):
                found.append(Tested(question, model, effect))
    return _adjusted(found)


def overall(found: Sequence[Tested]) -> list[Tested]:
    """Each question over all models, if these are two or more.

    Models that were trained together are no independent witnesses: then there is the mean effect alone,
    without an interval and without a p.
    """
    wholes = []
    for question in QUESTIONS:
        mine = [one for one in found if one.question == question]
        if len(mine) < 2:
            continue
        effect = stats.overall([one.effect for one in mine])
        if len(TRAINED_TOGETHER & {one.where for one in mine}) > 1:
            effect = Effect(effect.value, *[float("nan")] * 3)
        wholes.append(Tested(question, ALL, effect))
    return _adjusted(wholes)


def in_short(models: Mapping[str, Results]) -> Iterator[Block]:
    """Each question's answer in words, then the tests behind it, for each model and for all."""
    found = by_model(models)
    if not found:
        return
    wholes = overall(found)
    yield (
        "The study's two questions, each put to the means over a model's sets. A yes or no stands where "
        "Holm's adjusted p is below 5% and the interval leaves out zero; otherwise the effect is not shown, "
        "which does not mean that there is none."
    )
    asked = {
        question: [one for one in (*found, *wholes) if one.question == question] for question in QUESTIONS
    }
    yield listing(
        [
            f"**{QUESTIONS[question]}** {'; '.join(_said(one) for one in tests)}."
            for question, tests in asked.items()
            if tests
        ]
    )
    rows = [one.row("model") for tests in asked.values() for one in tests]
    yield table(pd.DataFrame(rows).replace({"model": {ALL: f"**{ALL}**"}}))
    text = "Against random heads p asks whether the high set could be one more random set."
    if any(np.isfinite(one.adjusted) for one in wholes):
        text += (
            " Over all models p is Stouffer's, of no effect in any of them, while the interval is that of "
            "the mean over models such as these, and so is wide for a few. Each is adjusted over its "
            "own rows."
        )
    elif wholes:
        text += (
            " The organism and its control began as one model, so they are not independent: over all models "
            "there is a mean effect, but neither an interval nor a p."
        )
    yield text


def _said(one: Tested) -> str:
    answer = f"{one.answer} " if np.isfinite(one.adjusted) else "mean effect "
    return f"{one.where}: {answer}({one.figure}{one.unit})"
