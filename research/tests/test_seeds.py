"""The interval over seeds against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from research.seeds import over_seeds


def test_mean_over_seeds_has_students_interval():
    values = [0.61, 0.64, 0.58, 0.66, 0.60]
    found = over_seeds(values)
    low, high = scipy.stats.ttest_1samp(values, 0).confidence_interval()
    assert (found.value, found.low, found.high) == pytest.approx((np.mean(values), low, high))
    alone = over_seeds([0.5])
    assert alone.value == 0.5
    assert np.isnan(alone.low)
    assert np.isnan(alone.high)
