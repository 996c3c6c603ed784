"""Means over base models: coverage, and the least p that their number allows."""

import numpy as np
import pytest
import scipy

from ccs import InputError
from ccs.metrics import stats
from ccs_benchmark import bases


@pytest.mark.parametrize(("n", "lowest_p", "detectable"), [(2, 0.5, 16.33), (5, 0.0625, 3.76)])
def test_means_over_bases_have_t_intervals_and_no_p_below_what_their_number_allows(n, lowest_p, detectable):
    base_of = np.repeat(np.arange(n), 2)  # two models of each base
    values = 0.3 + np.random.default_rng(n).normal(size=2 * n)
    effect = bases.across_bases(values, base_of)
    assert effect.p_value >= lowest_p
    means = values.reshape(n, 2).mean(axis=1)
    expected = scipy.stats.ttest_1samp(means, 0).confidence_interval()
    assert (effect.low, effect.high) == pytest.approx((expected.low, expected.high))
    assert bases.across_bases(np.abs(means)).p_value == lowest_p
    assert stats.minimum_detectable(effect) == pytest.approx(scipy.stats.sem(means) * detectable, rel=2e-3)


def test_a_single_base_says_nothing_of_others():
    effect = bases.across_bases([0.4, 0.6], ["a", "a"])
    assert (effect.value, effect.p_value, effect.low) == (0.5, 1.0, -np.inf)
    with pytest.raises(InputError, match="one base for each"):
        bases.across_bases([0.4], ["a", "b"])
