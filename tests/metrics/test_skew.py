"""Skew metrics and group rates against plain formulas, and the fault of the paper's code."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from ccs.metrics import bias, group_gaps, ranking, skew
from ccs.metrics.accuracy import group_rates, rate_gap
from tests.support.bias_sample import draw_embeddings, reference_ndkl, reference_skews


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=40), st.data())
def test_max_skew_matches_plain_formula(ranked, data):
    pool = dict(Counter(ranked + data.draw(st.lists(st.sampled_from("abcd"), max_size=40))))
    k = data.draw(st.integers(1, len(ranked)))
    assert skew.max_skew(ranked, pool, k) == pytest.approx(max(reference_skews(ranked, pool, k).values()))


def test_max_skew_accepts_pandas_and_numpy_counts():
    groups = pd.Series(["f", "m", "m", "m"], index=[7, 2, 2, 0])
    for ranked in (groups, groups.to_numpy(), iter(groups), groups.astype("category")):
        assert skew.max_skew(ranked, groups.value_counts(), 1) == pytest.approx(np.log(4))
    pool = dict(zip(*np.unique(groups, return_counts=True), strict=True))
    assert skew.max_skew(groups, pool, 4) == pytest.approx(0)


def test_ndkl_matches_plain_formula(monkeypatch):
    """Rankings that lack groups, one of a single group, and one group without a target."""
    rng = np.random.default_rng(0)
    ranked = np.array([rng.choice(4, 70, p=rng.dirichlet(np.ones(4) / 2)) for _ in range(9)], np.uint8)
    ranked[7] = 2
    shares = np.pad(rng.dirichlet(np.ones(4), 9), ((0, 0), (0, 1)))
    plain = [reference_ndkl(list(ranked[row]), dict(enumerate(shares[row])), 70) for row in range(9)]
    at_once = skew.ndkl_of(ranked, shares)
    assert at_once == pytest.approx(plain, abs=1e-9)
    assert skew.ndkl_of(ranked, shares[3])[3] == at_once[3]
    monkeypatch.setattr(skew, "_POSITIONS", 150)
    assert (skew.ndkl_of(ranked, shares) == at_once).all()


def test_ceiling_matches_highest_skew_of_all_tops():
    for pool, k in (([30, 30], 12), ([5, 20, 35], 12), ([2, 58], 4), ([40, 0, 20], 30)):
        counts = np.array(pool)
        tops = [top for top in np.ndindex(*(np.minimum(counts, k) + 1)) if sum(top) == k]
        highest = skew.max_skew_of(np.array(tops), skew.target_shares(counts)).max()
        assert skew.ceiling(counts, k) == pytest.approx(highest)
    assert skew.ceiling([30, 30], 12) == pytest.approx(np.log(2))


def plain_levels(name, row, codes, part, weight):
    """Compute each group's mean score or AUC against the others, minus 0.5, from weighted images."""
    levels = []
    for group in range(3):
        inside, outside = (np.flatnonzero(part & ((codes == group) == same)) for same in (True, False))
        if name.startswith("AUC"):
            wins = ((row[i] > row[j]) + (row[i] == row[j]) / 2 for i in inside for j in outside)
            pairs = [weight[i] * weight[j] for i in inside for j in outside]
            levels.append(sum(np.multiply(list(wins), pairs)) / sum(pairs) - 0.5)
        else:
            levels.append(sum(weight[i] * row[i] for i in inside) / sum(weight[i] for i in inside))
    return levels


@pytest.mark.parametrize("name", group_gaps.PREFERENCES)
def test_group_preferences_match_plain_formula(name):
    """Cross-fitted metrics choose the highest group on one half of the images and measure the other."""
    rng, n = np.random.default_rng(3), 101
    codes, half = np.arange(n) % 3, np.arange(n) % 4 < 2
    scores = rng.integers(0, 20, (2, n)).astype(float)  # with ties
    drawn = rng.integers(0, 3, (n, 2)).astype(float)
    preferences = group_gaps.preference(name, scores, np.equal.outer(np.arange(3), codes), half, drawn)
    parts = (half, ~half) if name in group_gaps.CROSS_FITTED else [np.ones(n, bool)] * 2
    for index, row in enumerate(scores):
        for draw, weight in enumerate(drawn.T):
            sides, leads = [plain_levels(name, row, codes, part, weight) for part in parts], []
            for chosen, measured in (sides, sides[::-1]):
                highest, lowest = (measured[int(end(chosen))] for end in (np.argmax, np.argmin))
                leads.append(highest + 0.5 if name.startswith("AUC") else highest - lowest)
            assert preferences[index, draw] == pytest.approx(np.mean(leads))


def test_as_published_divides_by_share_of_another_group():
    images, texts, _ = draw_embeddings(n=300)
    groups = np.array(["white"] * 200 + ["black"] * 30 + ["asian"] * 70)
    measured = bias.measure(images, ranking.Ranking(texts, groups, 50), as_published=True, draws=40)
    # Alphabetical counts (asian, black, white) over shares in order of appearance (white, black, asian).
    shares = np.array([200, 30, 70]) / 300
    with np.errstate(divide="ignore"):
        expected = np.log(measured.top / 50 / shares).max(axis=1)
    assert measured.max_skew.values == pytest.approx(expected)
    assert set(measured.metrics) == {"MaxSkew"}


GROUPS = np.array(["b"] * 40 + ["a"] * 60)


def test_group_rates_have_wilson_intervals():
    assigned = np.arange(100) % 5 == 0
    rates = group_rates({"group": GROUPS}, ~assigned, assigned)
    first = rates.iloc[0]
    columns = rates[["group", "n", "before", "after"]]
    assert columns.values.tolist() == [["a", 60, 0.8, 0.2], ["b", 40, 0.8, 0.2]]
    reference = scipy.stats.binomtest(12, 60).proportion_ci(method="wilson")
    assert (first["low"], first["high"]) == pytest.approx((reference.low, reference.high))
    certain = group_rates({"group": GROUPS}, assigned, GROUPS == "a")
    assert (certain["after"].tolist(), certain["high"][0], certain["low"][1]) == ([1, 0], 1, 0)


def test_rate_gap_is_tested_against_shuffled_groups():
    separate = rate_gap(GROUPS == "a", GROUPS, draws=200)
    assert (separate["after"], separate["group"]) == (1.0, "a minus b")
    assert separate["p_value"] == pytest.approx(1 / 201)
    drawn = np.random.default_rng(0).random((40, 100)) < 0.3
    p_values = [rate_gap(hits, GROUPS, draws=100)["p_value"] for hits in drawn]
    assert np.mean(np.array(p_values) <= 0.05) < 0.15  # uniform without a difference
    assert 0 < separate["chance"] < 0.2
    assert 0.2 < separate["detectable"] < 0.4
