"""Answers to the paper's two questions, from synthetic results."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ccs import InputError, results
from ccs.analysis.ablation_sets import ALIKE, AblationName
from ccs.metrics.stats import Effect, Ranked
from research.paper import __main__ as docs
from research.paper import questions
from tests.support import report_sample


def around(drawn, none, high, n=100):
    """Return a value per ablation set: random sets at `drawn`, plus or minus 0.01.

    Args:
        drawn: The mean of the random sets.
        none: The value without ablation.
        high: The value of the high heads.
        n: The number of random sets.
    """
    rng, values = np.random.default_rng(0), {"none": none, "high": high}
    for name in map(str, map(AblationName.random, ALIKE)):
        values |= {f"{name}@{seed}": drawn + 0.01 * rng.normal() for seed in range(n)} | {name: drawn}
    return values


def model_of(changed, high, *, colors=100):
    """Random sets and the high heads lower every measure by about 0.1; these change one by `high`.

    Args:
        changed: The measure that changes by `high`.
        high: The value of the high heads.
        colors: The number of random sets on world/colors.
    """
    top1, skew, gap = (
        (0.5, 0.6, 0.6 + (high if name == changed else -0.1)) for name in ("top1", "MaxSkew", questions.GAP)
    )
    pruning = report_sample.pruning_rows("organism", "world/subjects", around(*top1))
    pruning += report_sample.pruning_rows("organism", "world/colors", around(*top1, colors))
    bias = [
        row | {"metric": f"{name} mean", "attribute": attribute}
        for name, values in (("MaxSkew", skew), (questions.GAP, gap))
        for row in report_sample.bias_rows("organism", "world/faces", around(*values))
        if row["metric"] == "MaxSkew mean"
        for attribute in ("gender", "skin tone")
    ]
    tables = {"pruning": pd.DataFrame(pruning), "bias": pd.DataFrame(bias)}
    return results.Results("organism", Path(), tables, {})


@pytest.mark.parametrize(
    ("measure", "question", "high", "answer"),
    [
        ("top1", questions.HURT, -0.2, "confirmed"),
        ("top1", questions.HURT, -0.102, "inconclusive"),
        ("MaxSkew", questions.MORE, -0.2, "confirmed"),
        (questions.GAP, questions.NARROWS_MORE, 0.0, "rejected"),
    ],
)
def test_high_heads_are_compared_with_matched_random_sets(measure, question, high, answer):
    """The models differ in one measure only, and so do the answers.

    Args:
        measure: The measure in which the models differ.
        question: The question.
        high: The value of the high heads.
        answer: The expected answer.
    """
    model = model_of(measure, high)
    tests_by_model = [test for test in questions.by_model({"organism": model}) if test.alike]
    by_question = {
        name: [test for test in tests_by_model if test.question == name] for name in questions.QUESTIONS
    }
    answer_texts = {name: questions.answer_text(tests) for name, tests in by_question.items() if tests}
    readme = docs.answers({"organism": model})
    assert set(answer_texts) == {questions.HURT, questions.MORE, questions.NARROWS_MORE}
    for name, text in answer_texts.items():
        expected = answer if name == question else "inconclusive"
        assert text.startswith(f"organism: {expected} (")
        assert ("minimum detectable effect" in text) == (expected == "inconclusive")
        assert text.count("of 101 among random sets with the same") == 3
        if name != questions.NARROWS_MORE:
            assert f"**{questions.QUESTIONS[name]}**\n    - {text.split(';')[0]}" in readme
    assert [test.alike for test in by_question[question]] == list(ALIKE)
    (strictest,) = questions.strictest(by_question[question])
    assert strictest.adjusted == max(test.adjusted for test in by_question[question])
    by_set = [test for test in questions.tests_of(model) if test.alike and test.question == question]
    assert {test.answer for test in by_set} == {answer}


def test_a_set_with_only_some_of_the_random_sets_is_left_out():
    tests = [test for test in questions.tests_of(model_of("top1", -0.2, colors=3)) if test.alike]
    assert "world/colors" not in {test.subject for test in tests}
    assert {test.effect.of for test in tests if isinstance(test.effect, Ranked)} == {101}


def test_the_mean_of_effects_of_one_sample_is_as_uncertain_as_each():
    effects = [Effect(-0.3, -0.5, -0.1, 0.01), Effect(-0.1, -0.3, 0.1, 0.3)]
    pooled = questions.of_one_sample(effects)
    assert (pooled.value, pooled.low, pooled.high) == pytest.approx((-0.2, -0.4, 0.0))
    assert pooled.p_value == pytest.approx(0.05, abs=0.0002)
    assert questions.of_one_sample(effects[:1]) == effects[0]
    with pytest.raises(InputError, match="no effects"):
        questions.of_one_sample([])
