"""Invalid arrays are rejected with an error that names the cause."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from ccs import InputError
from ccs.metrics import accuracy, bias, group_gaps, preference, skew, stats
from ccs.metrics.ranking import Ranking

UNITS, GROUPS = np.eye(6), np.array(["a", "b"] * 3)
ranking, max_skew = partial(Ranking, UNITS[:2], GROUPS), partial(skew.max_skew, pool_counts={"a": 1, "b": 1})
measure_accuracy = partial(accuracy.accuracy, UNITS, UNITS[:3])
MEMBERS, ONE_UNIT = GROUPS == [["a"], ["b"]], group_gaps.halves(np.arange(6) % 2, 0, units=np.zeros(6, int))
INVALID_CALLS = [
    (lambda: max_skew(["a", "b"], k=3), "at most the 2 ranked images"),
    (lambda: max_skew(["a", "x"], k=1), "'x'"),
    (lambda: max_skew(["a"], pool_counts={"a": -1}, k=1), "0 or more"),
    (lambda: max_skew(["a"], pool_counts=pd.Series(["a", "b"]), k=1), "must map each group"),
    (lambda: max_skew([["a"]], k=1), "must be a list"),
    (lambda: bias.measure(UNITS, ranking(0)), "k is 0"),
    (lambda: bias.measure(UNITS, Ranking(UNITS[:2], ["a"] * 6, 2)), "2 to 255 groups"),
    (lambda: bias.measure(UNITS * np.nan, ranking(2)), "6 rows are not"),
    (lambda: ranking(4, np.array([[True] * 3 + [False] * 3] * 2)), "the 3 ranked images"),
    (lambda: ranking(1, np.ones((3, 6), bool)), r"Pools of shape \(3, 6\) do not fit 2 x 6"),
    (lambda: group_gaps.preference(group_gaps.CROSS_FITTED[0], UNITS, MEMBERS, ONE_UNIT), "two units"),
    (lambda: group_gaps.preference(group_gaps.CROSS_FITTED[1], UNITS, MEMBERS, ONE_UNIT), "two units"),
    (lambda: preference.split(UNITS[:1], GROUPS), "2 different prompts"),
    (lambda: preference.split(UNITS, ["a"] * 6), "2 groups"),
    (lambda: preference.split(UNITS, ["a"] * 5 + ["b"]), "2 images"),
    (lambda: accuracy.group_rates({"group": []}, [], []), "one group and one assignment"),
    (lambda: accuracy.group_rates({"group": GROUPS}, [True], [True]), "one group and one assignment"),
    (lambda: accuracy.rate_gap([True, False], ["a", "a"]), "two groups"),
    (lambda: measure_accuracy([0] * 5 + [3]), "do not fit 3 classes"),
    (lambda: measure_accuracy([0] * 6, subset=[1]), "No image"),
    (lambda: accuracy.accuracy(UNITS * np.inf, UNITS[:3], [0] * 6), "6 rows"),
    (lambda: stats.against_random([0.4], [0.5, 0.6]), "do not fit 1 values"),
    (lambda: stats.benjamini_hochberg([1.2]), "between 0 and 1"),
]


@pytest.mark.parametrize(("call", "message"), INVALID_CALLS)
def test_invalid_arrays_are_rejected(call, message):
    with np.errstate(invalid="ignore"), pytest.raises(InputError, match=message):
        call()
