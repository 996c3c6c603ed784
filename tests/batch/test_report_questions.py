"""The study's questions: answers that turn round on models that differ in nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ccs import results
from ccs.batch.report import questions as report_questions
from ccs.measures.stats import Ranked
from ccs.pruning.plans import ALIKE, PlanName
from tests.support.report_sample import bias_rows, pruning_rows


def around(drawn: float, none: float, high: float, n: int = 100) -> dict[str, float]:
    """A measure under each plan: random sets of all kinds at `drawn`, give or take 0.01."""
    rng, values = np.random.default_rng(0), {"none": none, "high": high}
    for name in map(str, map(PlanName.random, ALIKE)):
        values |= {f"{name}@{seed}": drawn + 0.01 * rng.normal() for seed in range(n)} | {name: drawn}
    return values


def model_of(changed: str, high: float, *, colors: int = 100) -> results.Results:
    """Random sets lower every measure by 0.1, give or take 0.01; the high heads change one of them by `high`
    and lower the others by 0.1.
    """
    top1, skew, gap = (
        (0.5, 0.6, 0.6 + (high if name == changed else -0.1))
        for name in ("top1", "MaxSkew", report_questions.GAP)
    )
    pruning = pruning_rows("organism", "world/subjects", around(*top1))
    pruning += pruning_rows("organism", "world/colors", around(*top1, colors))
    bias = [
        row | {"metric": f"{name} mean", "attribute": attribute}
        for name, values in (("MaxSkew", skew), (report_questions.GAP, gap))
        for row in bias_rows("organism", "world/faces", around(*values))
        if row["metric"] == "MaxSkew mean"
        for attribute in ("gender", "skin tone")
    ]
    tables = {"pruning": pd.DataFrame(pruning), "bias": pd.DataFrame(bias)}
    return results.Results("organism", Path(), tables, {})


@pytest.mark.parametrize(("high", "answer"), [(-0.2, "yes"), (-0.102, "not shown"), (0.0, "no, the reverse")])
@pytest.mark.parametrize(
    ("measure", "question"),
    [
        ("top1", report_questions.HURT),
        ("MaxSkew", report_questions.MORE),
        (report_questions.GAP, report_questions.NARROWS_MORE),
    ],
)
def test_whether_high_heads_carry_more_than_random_sets_like_them(measure, question, high, answer):
    """The models differ in one measure alone, and so do the answers; two of them are the README's."""
    model = model_of(measure, high)
    found = [one for one in report_questions.by_model({"organism": model}) if one.alike]
    asked = {name: [one for one in found if one.question == name] for name in report_questions.QUESTIONS}
    said = {name: report_questions.said(tests) for name, tests in asked.items() if tests}
    readme = report_questions.answers({"organism": model})
    assert set(said) == {report_questions.HURT, report_questions.MORE, report_questions.NARROWS_MORE}
    for name, text in said.items():
        expected = answer if name == question else "not shown"
        assert text.startswith(f"organism: {expected} (")
        assert ("80% power from" in text) == (expected == "not shown")
        assert text.count("of 101 among sets alike in") == 3
        if name != report_questions.NARROWS_MORE:
            words = f"**{report_questions.QUESTIONS[name]}** {text.split(';')[0]}"
            assert words in readme
    assert [one.alike for one in asked[question]] == list(ALIKE)
    (strictest,) = report_questions.strictest(asked[question])
    assert strictest.adjusted == max(one.adjusted for one in asked[question])
    by_set = [one for one in report_questions.tests_of(model) if one.alike and one.question == question]
    assert {one.answer for one in by_set} == {answer}


def test_a_set_with_only_some_of_the_random_sets_is_left_out():
    model = model_of("top1", -0.2, colors=3)
    tests = [one for one in report_questions.tests_of(model) if one.alike]
    assert "world/colors" not in {one.where for one in tests}
    assert {one.effect.of for one in tests if isinstance(one.effect, Ranked)} == {101}
