"""Intervals of the studies against SciPy's."""

import numpy as np
import pytest
import scipy.stats

from research.rank_correlation import correlation
from research.seeds import over_seeds


def test_mean_over_seeds_has_students_interval():
    values = [0.61, 0.64, 0.58, 0.66, 0.60]
    found = over_seeds(values)
    low, high = scipy.stats.ttest_1samp(values, 0).confidence_interval()
    assert (found.value, found.low, found.high) == pytest.approx((np.mean(values), low, high))
    alone = over_seeds([0.5])
    assert alone.value == 0.5
    assert np.isnan([alone.low, alone.high]).all()


def test_correlation_equals_scipy():
    rng = np.random.default_rng(6)
    x = np.round(rng.normal(size=24), 1)
    y = np.round(x + 1.5 * rng.normal(size=24), 0)
    found = correlation(x, y)
    other = scipy.stats.spearmanr(x, y)
    assert found.value == pytest.approx(other.statistic)
    assert found.p_value == pytest.approx(other.pvalue, abs=0.02)
    assert found.low < found.value < found.high
