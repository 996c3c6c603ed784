"""Intervals over seeds, compared with SciPy."""

import numpy as np
import pytest
import scipy.stats

from research.rank_correlation import correlation
from research.seeds import over_seeds


def test_mean_over_seeds_has_students_interval():
    values = [0.61, 0.64, 0.58, 0.66, 0.60]
    estimate = over_seeds(values)
    low, high = scipy.stats.ttest_1samp(values, 0).confidence_interval()
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((np.mean(values), low, high))
    alone = over_seeds([0.5])
    assert alone.value == 0.5
    assert np.isnan([alone.low, alone.high]).all()


def test_correlation_equals_scipy():
    rng = np.random.default_rng(6)
    x = np.round(rng.normal(size=24), 1)
    y = np.round(x + 1.5 * rng.normal(size=24), 0)
    estimate = correlation(x, y)
    other = scipy.stats.spearmanr(x, y)
    assert estimate.value == pytest.approx(other.statistic)
    assert estimate.p_value == pytest.approx(other.pvalue, abs=0.02)
    assert estimate.low < estimate.value < estimate.high
