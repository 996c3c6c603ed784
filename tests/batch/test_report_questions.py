"""The study's questions: answers that turn round on models that differ in nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from batch.report.sections import organisms
from batch.report.sections import questions as report_questions
from ccs import results
from ccs.measures.stats import Ranked
from ccs.plans import ALIKE, PlanName
from ccs.results import queries
from tests.support.report_sample import bias_rows, pruning_rows


def around(drawn: float, none: float, high: float, n: int = 100) -> dict[str, float]:
    """A measure under each plan: random sets of all kinds at `drawn`, give or take 0.01."""
    rng, values = np.random.default_rng(0), {"none": none, "high": high}
    for name in map(str, map(PlanName.random, ALIKE)):
        values |= {f"{name}@{seed}": drawn + 0.01 * rng.normal() for seed in range(n)} | {name: drawn}
    return values


def measured_model(high: float, *, colors: int = 100) -> results.Results:
    """Two sets: random sets lose 10 points, give or take one, and the high heads `high`."""
    rows = pruning_rows("m", "world/subjects", around(0.8, 0.9, 0.9 + high))
    rows += pruning_rows("m", "world/colors", around(0.8, 0.9, 0.9 + high, colors))
    return results.Results("m", Path(), {"pruning": pd.DataFrame(rows)}, {})


@pytest.mark.parametrize(("high", "answer"), [(-0.2, "yes"), (-0.102, "not shown"), (0.0, "no, the reverse")])
def test_whether_high_heads_carry_more_than_random_sets_like_them(high: float, answer: str) -> None:
    """The three models differ in that alone, and so do the answers."""
    model = measured_model(high)
    found = report_questions.by_model({"m": model})
    assert [one.alike for one in found if one.question == report_questions.HURT] == list(ALIKE)
    (strictest,) = report_questions.strictest([one for one in found if one.alike])
    assert strictest.answer == answer
    assert strictest.adjusted == max(one.adjusted for one in found if one.alike)
    said = report_questions.said([one for one in found if one.alike])
    assert ("80% power from" in said) == (answer == "not shown")
    assert said.count("of 101 among sets alike in") == 3
    assert {one.answer for one in report_questions.tests_of(model) if one.alike} == {answer}


def skewed_model(measure: str, high: float) -> results.Results:
    """Random sets lower both measures by 0.1, give or take 0.01; the high heads change one by `high` and
    lower the other by 0.1.
    """
    rows = [
        row | {"metric": f"{each} mean", "attribute": attribute}
        for each in ("MaxSkew", "logit gap")
        for row in bias_rows(
            "organism", "world/faces", around(0.5, 0.6, 0.6 + (high if each == measure else -0.1))
        )
        if row["metric"] == "MaxSkew mean"
        for attribute in ("gender", "skin tone")
    ]
    return results.Results("organism", Path(), {"bias": pd.DataFrame(rows)}, {})


@pytest.mark.parametrize(("high", "answer"), [(-0.2, "yes"), (-0.102, "not shown"), (0.0, "no, the reverse")])
@pytest.mark.parametrize(
    ("measure", "question"),
    [("MaxSkew", report_questions.MORE), ("logit gap", report_questions.NARROWS_MORE)],
)
def test_whether_high_heads_carry_more_skew_than_random_sets_like_them(
    measure: str, question: str, high: float, answer: str
) -> None:
    """The answers on models that differ in one measure alone; that on MaxSkew is the README's."""
    model = skewed_model(measure, high)
    found = [one for one in report_questions.by_model({"organism": model}) if one.alike]
    said = {
        name: report_questions.said([one for one in found if one.question == name])
        for name in (report_questions.MORE, report_questions.NARROWS_MORE)
    }
    asked, answered = report_questions.QUESTIONS[report_questions.MORE], said[report_questions.MORE]
    assert f"**{asked}** {answered.split(';')[0]}" in organisms.answers({"organism": model})
    assert said[question].startswith(f"organism: {answer} (")
    assert ("80% power from" in said.pop(question)) == (answer == "not shown")
    (other,) = said.values()
    assert other.startswith("organism: not shown")


def test_a_set_with_only_some_of_the_random_sets_is_left_out() -> None:
    model = measured_model(-0.2, colors=3)
    tests = [one for one in report_questions.tests_of(model) if one.alike]
    assert {one.where for one in tests} == {"world/subjects"}
    assert {one.effect.of for one in tests if isinstance(one.effect, Ranked)} == {101}


def test_a_model_without_high_heads_asks_nothing() -> None:
    """So it makes no other model's p larger."""
    asks = measured_model(-0.2)
    rows = pruning_rows("n", "world/subjects", {"none": 0.9, "low": 0.8})
    silent = results.Results("n", Path(), {"pruning": pd.DataFrame(rows)}, {})
    assert report_questions.by_model({"m": asks, "n": silent}) == report_questions.by_model({"m": asks})


def test_rankings_at_the_ceiling_are_counted() -> None:
    (mean,) = [row for row in bias_rows("m", "world/faces", {"none": 0.5}) if row["metric"] == "MaxSkew mean"]
    for values, full in (((0.5, 0.6), 0), ((0.5, 0.69), 1), ((0.69, 0.69), 2), ((), 0)):
        each = [
            mean | {"metric": "MaxSkew", "occupation": str(i), "value": value, "ceiling": 0.69}
            for i, value in enumerate(values)
        ]
        model = results.Results("m", Path(), {"bias": pd.DataFrame([mean | {"ceiling": None}, *each])}, {})
        means = queries.group_plans(queries.max_skew(model))
        assert queries.with_full(model, means)["full"].tolist() == [full]
    bare = results.Results("m", Path(), {}, {})  # evaluated on no set of people
    assert queries.with_full(bare, queries.group_plans(queries.max_skew(bare))).empty
