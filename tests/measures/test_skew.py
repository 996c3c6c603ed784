"""The formulas of the skew metrics against plain ones, by hand and on whatever hypothesis finds."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccs import InputError
from ccs.measures import skew
from tests.support.bias_sample import plain_ndkl, plain_skews


def test_max_skew_by_hand():
    ranked = ["man"] * 6 + ["woman"] * 2 + ["man"] * 2
    assert skew.max_skew(ranked, {"man": 50, "woman": 50}, 8) == pytest.approx(np.log(0.75 / 0.5))
    assert skew.max_skew(ranked, {"man": 25, "woman": 75}, 8) == pytest.approx(np.log(0.75 / 0.25))
    assert skew.max_skew(ranked, {"man": 25, "woman": 75}, 8, target="uniform") == pytest.approx(np.log(1.5))


def test_a_lost_group_counts_as_the_policy_says():
    ranked, pool = ["a", "a", "b", "a"], {"a": 10, "b": 10, "c": 20, "nobody": 0}
    assert skew.max_skew(ranked, pool, 4) == pytest.approx(np.log(0.75 / 0.25))
    counts, shares = [3, 1, 0, 0], np.array([0.25, 0.25, 0.5, 0])
    assert skew.min_skew_of(counts, shares, "excluded") == pytest.approx(0.0)
    assert skew.min_skew_of(counts, shares, "infinite") == -np.inf
    # One image more, spread as the pool is: c has half of it among five.
    assert skew.min_skew_of(counts, shares) == pytest.approx(np.log((0.5 / 5) / 0.5))
    # An empty group of the pool is no group: uniform means a third each.
    assert skew.max_skew(ranked, pool, 4, target="uniform") == pytest.approx(np.log(0.75 * 3))


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=40), st.data())
def test_metrics_equal_the_plain_ones(ranked, data):
    extra = data.draw(st.lists(st.sampled_from("abcd"), max_size=40))
    pool = dict(Counter(ranked + extra))
    k = data.draw(st.integers(1, len(ranked)))
    for target in ("pool", "uniform"):
        plain = plain_skews(ranked, pool, k, target)
        assert skew.max_skew(ranked, pool, k, target=target) == pytest.approx(max(plain.values()))
        counts = [ranked[:k].count(name) for name in pool]
        shares = skew.target_shares(list(pool.values()), target)
        assert skew.min_skew_of(counts, shares, "excluded") == pytest.approx(min(plain.values()))


@pytest.mark.parametrize(
    ("ranked", "pool", "k", "target", "says"),
    [
        (["a", "b"], {"a": 1, "b": 1}, 3, "pool", "at most the 2 ranked images"),
        (["a", "b"], {"a": 1, "b": 1}, 0, "pool", "at least 1"),
        (["a", "b"], {"a": 1, "b": 1}, 1.5, "pool", "whole number"),
        (["a", "x"], {"a": 1, "b": 1}, 1, "pool", "'x'"),
        (["a"], {"a": 0, "b": 1}, 1, "pool", "'a'"),
        (["a"], {"a": -1}, 1, "pool", "0 or more"),
        (["a"], {}, 1, "pool", "0 or more"),
        (["a"], {"a": 1}, 1, "fair", "pool, uniform"),
    ],
)
def test_max_skew_refuses(ranked, pool, k, target, says):
    with pytest.raises(InputError, match=says):
        skew.max_skew(ranked, pool, k, target=target)


def test_ndkl_of_rankings_equals_the_plain_one(monkeypatch):
    """Rankings that lack groups, one of a single group, one group without a target; in blocks and at once."""
    rng = np.random.default_rng(0)
    ranked = np.stack([rng.choice(4, 70, p=rng.dirichlet(np.ones(4) / 2)) for _ in range(18)]).astype(
        np.uint8
    )
    ranked[7] = 2
    shares = np.pad(rng.dirichlet(np.ones(4), 18), ((0, 0), (0, 1)))
    plain = [
        plain_ndkl(codes.tolist(), dict(enumerate(own)), 70)
        for codes, own in zip(ranked, shares, strict=True)
    ]
    at_once = skew.ndkl_of(ranked, shares)
    assert at_once == pytest.approx(plain, abs=1e-9)
    assert skew.ndkl_of(ranked, shares[3])[3] == at_once[3]
    monkeypatch.setattr(skew, "_POSITIONS", 150)
    assert (skew.ndkl_of(ranked, shares) == at_once).all()
