"""Rates of groups against plain loops."""

import numpy as np
import pytest

from ccs.errors import InputError
from ccs.metrics.rates import group_rates, rate_gap

GROUPS = np.array(["b"] * 40 + ["a"] * 60)


def test_rates_are_plain_shares_with_wilsons_interval():
    assigned = np.arange(100) % 5 == 0
    first, second = group_rates(assigned, GROUPS)
    assert (first.group, first.n, first.value, second.group, second.value) == ("a", 60, 0.2, "b", 0.2)
    z, p, n = 1.959964, 0.2, 60  # Wilson 1927
    center, half = (p + z * z / (2 * n)), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    ends = [(center - half) / (1 + z * z / n), (center + half) / (1 + z * z / n)]
    assert [first.low, first.high] == pytest.approx(ends, abs=1e-6)


def test_a_gap_is_tested_against_shuffled_groups():
    separate = rate_gap(GROUPS == "a", GROUPS, draws=200)
    assert (separate.value, separate.highest, separate.lowest) == (1.0, "a", "b")
    assert separate.p_value == pytest.approx(1 / 201)
    p_values = [
        rate_gap(np.random.default_rng(seed).random(100) < 0.3, GROUPS, draws=100).p_value
        for seed in range(60)
    ]
    assert np.mean(np.array(p_values) <= 0.05) < 0.15  # uniform without a difference
    assert 0 < separate.chance < 0.2
    assert 0.2 < separate.detectable < 0.4


@pytest.mark.parametrize(("assigned", "groups"), [([], []), ([True], ["a", "b"])])
def test_lengths_that_differ_are_refused(assigned, groups):
    with pytest.raises(InputError, match="one group and one assignment"):
        group_rates(assigned, groups)
    with pytest.raises(InputError, match="two groups"):
        rate_gap([True, False], ["a", "a"])
