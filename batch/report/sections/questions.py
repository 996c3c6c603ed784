"""The study's two questions put to measured results as tests: does pruning the high heads hurt more than
pruning as many random ones, and does it lower MaxSkew?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from batch.report.wording import interval, p_text, signed
from ccs.measures import stats
from ccs.measures.stats import Effect
from ccs.results import Results, queries

ACCURACY = "accuracy (points)"
HURT = f"{ACCURACY}: high off less random off"
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
    """One test: the difference asked about, of which set (or model), the effect as printed (percent points).

    `adjusted`: its p by Holm over the tests of one table; NaN without a test.
    """

    question: str
    where: str
    effect: Effect
    n_heads: int = 0
    adjusted: float = float("nan")

    @property
    def digits(self) -> int:
        """The decimals to print."""
        return 1 if self.question.startswith(ACCURACY) else 3

    @property
    def unit(self) -> str:
        """What follows the printed effect."""
        return " points" if self.question.startswith(ACCURACY) else ""

    @property
    def answer(self) -> stats.Answer:
        """Is the difference below zero, at an adjusted p of 5%?"""
        return stats.answer(replace(self.effect, p_value=self.adjusted), expected="below")

    @property
    def figure(self) -> str:
        """The effect as it is printed, without its unit."""
        return signed(self.effect.value, self.digits)

    @property
    def said(self) -> str:
        """The answer and the effect, in words."""
        answer = f"{self.answer} " if np.isfinite(self.adjusted) else "mean effect "
        return f"{self.where}: {answer}({self.figure}{self.unit})"

    def row(self, place: str) -> dict[str, str]:
        """The test as a row of a table; `place` heads the column that says where."""
        lower: Mapping[stats.Answer, str] = {"yes": "yes, lower", "no, the reverse": "no, higher"}
        each = self.effect.times(1 / self.n_heads).value if self.n_heads else None
        return {
            "difference": self.question,
            place: self.where,
            "effect": self.figure,
            "95% interval": interval(self.effect, digits=self.digits),
            "p": p_text(self.effect.p_value),
            "adjusted p": p_text(self.adjusted),
            **({} if each is None else {"per head": signed(each, self.digits + 1)}),
            "lower?": lower.get(self.answer, self.answer) if np.isfinite(self.adjusted) else "not tested",
        }


def _adjusted(found: Sequence[Tested]) -> list[Tested]:
    """The tests with their p adjusted by Holm over all of them."""
    adjusted = stats.holm([one.effect.p_value for one in found])
    return [replace(one, adjusted=float(p)) for one, p in zip(found, adjusted, strict=True)]


def against_random(frame: pd.DataFrame) -> Effect | None:
    """High heads against as many random ones, means over the frame's sets; None if either is missing."""
    means = frame.groupby(["plan", "seed"], dropna=False)["value"].mean().reset_index()
    high, random = queries.of_plan(means, "high")["value"], queries.seeds(means)["value"]
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


def _measures(results: Results) -> dict[str, pd.DataFrame]:
    """Accuracy and skew of every plan on every set; the column `where` names the set (and attribute)."""
    top1, skew = queries.top1(results), queries.max_skew(results)
    return {
        ACCURACY: top1.assign(where=top1["dataset"]),
        "MaxSkew": skew.assign(where=skew["dataset"] + ", " + skew["attribute"]),
    }


def _asked(measure: str, frame: pd.DataFrame) -> Iterator[tuple[str, Effect]]:
    """High heads off against none and against random heads off, where measured, in the units printed."""
    for other, against in (("none", against_none), ("random", against_random)):
        effect = against(frame)
        if effect is not None:
            yield f"{measure}: high off less {other} off", effect.times(100 if measure == ACCURACY else 1)


def tests_of(results: Results) -> list[Tested]:
    """Accuracy and skew on every set, against no head off and against random heads off."""
    return _adjusted(
        [
            Tested(question, str(where), effect, int(queries.of_plan(some, "high")["n_heads"].max()))
            for measure, frame in _measures(results).items()
            for where, some in frame.groupby("where", sort=False)
            for question, effect in _asked(measure, some)
        ]
    )


def by_model(models: Mapping[str, Results]) -> list[Tested]:
    """Each question once per model, on the means over its sets; p adjusted over models and questions."""
    found = [
        Tested(question, model, effect)
        for model, results in models.items()
        for measure, frame in _measures(results).items()
        for question, effect in _asked(measure, frame)
        if question in QUESTIONS and np.isfinite(effect.p_value)
    ]
    return _adjusted(sorted(found, key=lambda one: list(QUESTIONS).index(one.question)))


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


def in_short(models: Mapping[str, Results]) -> dict[str, object]:
    """Each question's answer in words and the tests behind it, for each model and for all."""
    found = by_model(models)
    wholes = overall(found)
    both = [*found, *wholes]
    asked = {question: [one for one in both if one.question == question] for question in QUESTIONS}
    answers = [
        f"**{QUESTIONS[question]}** {'; '.join(one.said for one in tests)}."
        for question, tests in asked.items()
        if tests
    ]
    rows = pd.DataFrame([one.row("model") for tests in asked.values() for one in tests])
    return {
        "answers": answers,
        "tests": rows.replace({"model": {ALL: f"**{ALL}**"}}).to_dict("records") if found else [],
        "common": any(np.isfinite(one.adjusted) for one in wholes),
        "together": bool(wholes),
    }
