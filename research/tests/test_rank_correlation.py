"""The correlation against scipy's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from research.rank_correlation import correlation


def test_correlation_equals_scipy():
    rng = np.random.default_rng(6)
    x = np.round(rng.normal(size=24), 1)
    y = np.round(x + 1.5 * rng.normal(size=24), 0)
    found = correlation(x, y)
    other = scipy.stats.spearmanr(x, y)
    assert found.value == pytest.approx(other.statistic)
    assert found.p_value == pytest.approx(other.pvalue, abs=0.02)
    assert found.low < found.value < found.high
