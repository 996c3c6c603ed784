"""Shares of variance against plain sums and scikit-learn; the noise floor against factors dealt at random."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from ccs import Head, InputError, results
from ccs.model.model import Model
from research.world import correlations, selective_heads, selectivity
from tests.support.report_sample import score_rows

HEADS = (Head(4, 0), Head(4, 1), Head(5, 0))


def example(n=300, d=20, seed=0):
    """Three heads in five dimensions of d: one of color, one of noise, one of color a little; and the
    factors.
    """
    rng = np.random.default_rng(seed)
    color = rng.choice(["red", "green", "blue", "black"], n)
    other = rng.choice([f"v{i}" for i in range(40)], n)
    means = {c: rng.standard_normal(5) for c in np.unique(color)}
    signal = np.array([means[c] for c in color])
    parts = [2 * signal, 0 * signal, 0.3 * signal]
    basis = rng.standard_normal((3, 5, d))
    data = np.stack(
        [(s + rng.standard_normal((n, 5))) @ b for s, b in zip(parts, basis, strict=True)], axis=1
    )
    return (data + 7).astype(np.float32), {"color": color, "other": other}


def plain_eta(x, codes):
    """The between-group share of the sum of squares, group by group."""
    total = ((x - x.mean(axis=0)) ** 2).sum()
    groups = [x[codes == g] for g in np.unique(codes)]
    return sum(len(g) * ((g.mean(axis=0) - x.mean(axis=0)) ** 2).sum() for g in groups) / total


def test_shares_equal_plain_sums_and_a_regression():
    data, factors = example()
    found = selectivity.measure(data, HEADS, factors, draws=40)
    for name, values in factors.items():
        codes = np.unique(values, return_inverse=True)[1]
        groups = codes.max() + 1
        onehot = np.eye(groups)[codes]
        for head in range(3):
            x = data[:, head].astype(np.float64)
            eta = plain_eta(x, codes)
            # R^2 of a regression on the factor, weighted by the variance of each direction.
            fitted = LinearRegression().fit(onehot, x).predict(onehot)
            assert eta == pytest.approx(1 - ((x - fitted) ** 2).sum() / ((x - x.mean(axis=0)) ** 2).sum())
            assert found[name].values[head] == pytest.approx(1 - (1 - eta) * 299 / (300 - groups), abs=1e-5)


def test_what_is_planted_is_found_and_nothing_else():
    data, factors = example()
    found = selectivity.measure(data, HEADS, factors, seed=1)
    color, other = found["color"], found["other"]
    assert color.values[0] > 0.5
    assert abs(color.values[1]) < 0.03
    assert color.values[0] > color.values[2] > color.chance[2]
    assert color.q_values[0] < 0.01
    assert color.p_values[1] > 0.01
    assert (np.abs(other.values) < 0.05).all()
    assert ((color.low <= color.values) & (color.values <= color.high)).all()
    assert (color.n, color.groups) == (300, 4)


def test_a_factor_dealt_at_random_has_share_0_on_average_and_passes_the_floor_one_time_in_twenty():
    rng = np.random.default_rng(2)
    data, _ = example(n=120)
    factors = {f"f{i}": rng.choice([f"v{j}" for j in range(30)], 120) for i in range(60)}
    found = selectivity.measure(data, HEADS, factors, draws=40)
    values = np.array([one.values for one in found.values()])
    assert abs(values.mean()) < 0.01  # the raw share would be 29 / 119 = 0.24
    above = np.array([one.values > one.chance for one in found.values()])
    assert above.mean() == pytest.approx(0.05, abs=0.045)
    assert np.mean([one.p_values for one in found.values()]) == pytest.approx(0.5, abs=0.08)


def test_the_interval_is_about_the_spread_of_fresh_images():
    data, factors = example(n=6000)
    found = selectivity.measure(data[:300], HEADS, {"color": factors["color"][:300]})["color"]
    rng = np.random.default_rng(0)
    fresh = []
    for _ in range(50):
        rows = rng.choice(6000, 300, replace=False)
        picked = selectivity.measure(data[rows], HEADS, {"color": factors["color"][rows]}, draws=40)
        fresh.append(picked["color"].values)
    spread = np.std(fresh, axis=0) * 2 * 1.96
    assert (found.high - found.low)[[0, 2]] == pytest.approx(spread[[0, 2]], rel=0.4)


def test_images_without_the_factor_are_left_out():
    data, factors = example()
    partly = np.where(np.arange(300) < 200, factors["color"], "")
    found = selectivity.measure(data, HEADS, {"color": partly}, draws=40)["color"]
    alone = selectivity.measure(data[:200], HEADS, {"color": partly[:200]}, draws=40)["color"]
    assert found.n == 200
    assert found.values == pytest.approx(alone.values, abs=1e-5)


def test_factors_that_say_nothing_are_left_out():
    data, _ = example(n=30)
    factors = {"one value": ["a"] * 30, "nowhere": [""] * 30, "all different": [str(i) for i in range(30)]}
    assert selectivity.measure(data, HEADS, factors, draws=40) == {}


def test_a_head_that_is_always_the_same_has_no_share():
    data, factors = example(n=60)
    data[:, 1] = 3.0
    found = selectivity.measure(data, HEADS, factors, draws=40)["color"]
    assert found.values[1] == 0
    assert found.values[0] > 0.4


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"data": np.ones((5, 2, 4))}, "3 heads"),
        ({"data": np.full((300, 3, 4), np.nan)}, "finite"),
        ({"factors": {"color": ["red"]}}, "1 values for 300"),
        ({"draws": 3}, "too few"),
    ],
)
def test_measure_refuses(change, says):
    data, factors = example()
    given = {"data": data, "factors": factors, "draws": 40} | change
    with pytest.raises(InputError, match=says):
        selectivity.measure(given["data"], HEADS, given["factors"], draws=given["draws"])


def test_concepts_take_the_factors_of_their_ancestors() -> None:
    assert selective_heads.factors_of("Cities") == ("place",)
    assert selective_heads.factors_of("Children") == ("age",)
    assert selective_heads.factors_of("Desserts") == ("subject",)
    assert selective_heads.factors_of("Emotions") == selective_heads.FACTORS["People"]
    assert selective_heads.factors_of("Themes") == ()
    assert selective_heads.factors_of("no concept") == ()
    assert selective_heads.factors_of(None) == ()


def test_the_factor_of_the_label_counts_or_the_largest() -> None:
    """CCS rises with the share of colors, which the labels name, and falls with that of subjects."""
    shares = pd.DataFrame(
        [
            {
                "weights": "a" * 16,
                "layer": 4 + index // 6,
                "head": index % 6,
                "factor": factor,
                "value": value,
            }
            for index in range(12)
            for factor, value in (("color", index / 24), ("subject", 1 - index / 24))
        ]
    )
    about = {"model": {"weights_hash": "a" * 64}}
    found = results.Results("m", Path(), {"scores": pd.DataFrame(score_rows("m"))}, about)
    own, best = selective_heads.with_selectivity(found, shares)
    assert own.effect.value > 0.95
    assert best.effect.value < -0.95
    assert selective_heads.with_selectivity(found, shares.assign(weights="b")) == []


def test_measured_rows_hold_every_head_and_factor(tiny_model: Model) -> None:
    rows = selective_heads.measured(tiny_model, n=60)
    assert set(map(tuple, rows[["layer", "head"]].to_numpy().tolist())) == {
        (h.layer, h.head) for h in tiny_model.heads
    }
    assert {"subject", "color", "backdrop"} <= set(rows["factor"])
    assert np.isfinite(rows[["value", "low", "high", "chance", "p_value", "q_value"]].to_numpy()).all()


@pytest.mark.parametrize(
    ("figures", "answer"),
    [
        (range(12), "yes"),
        (range(11, -1, -1), "no, the reverse"),
        ((4, 1, 5, 0, 3, 2) * 2, "not shown"),
    ],
    ids=["they do", "the reverse", "unrelated"],
)
def test_whether_heads_of_higher_ccs_carry_more(figures: Sequence[int], answer: str) -> None:
    found = results.Results("m", Path(), {"scores": pd.DataFrame(score_rows("m"))}, {})
    of_heads = {Head(4 + index // 6, index % 6): float(one) for index, one in enumerate(figures)}
    assert str(correlations.with_ccs("x", found, of_heads)).startswith(f"{answer} (rho ")
