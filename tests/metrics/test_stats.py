"""Intervals and tests against SciPy, plain loops, and data with known answers."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from ccs.metrics import stats


def test_bootstrap_matches_scipy():
    values = np.random.default_rng(0).exponential(size=80)
    estimate = stats.bootstrap(values, draws=20_000)
    reference = scipy.stats.bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", rng=1)
    assert estimate.value == pytest.approx(values.mean())
    assert (estimate.low, estimate.high) == pytest.approx(tuple(reference.confidence_interval), abs=0.01)


def test_few_draws_give_normal_interval():
    draws = np.random.default_rng(0).normal(0, 1, 64)
    estimate = stats.interval(1.0, draws)
    assert estimate.high - 1 == pytest.approx(1.959964 * draws.std(ddof=1))
    effect = stats.effect(1.0, draws)
    assert effect.p_value == pytest.approx(2 * scipy.stats.norm.sf(1 / draws.std(ddof=1)))


@pytest.mark.parametrize("n", [1, 20, 400])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_unanimous_share_has_wilson_interval(value, n):
    estimate = stats.share_interval(stats.bootstrap(np.full(n, value)), n)
    reference = scipy.stats.binomtest(int(n * value), n).proportion_ci(method="wilson")
    assert (estimate.low, estimate.high) == pytest.approx((reference.low, reference.high))


def plain_effect(value, draws):
    """Compute the interval and p-value by sorting and counting draws."""
    middle = sum(draws) / len(draws)
    moved = sorted(0.0 if draw == 0 else draw + value - middle for draw in draws)
    against = [draw * (1 if value > 0 else -1) for draw in moved]
    beyond = sum((draw < 0) + (draw == 0) / 2 for draw in against) if value else len(moved)
    m = (len(moved) + 1) // 40
    ends = min(value, moved[m - 1]), max(value, moved[len(moved) - m])
    return (*ends, min(1.0, 2 * (beyond + 1) / (len(moved) + 1)))


@pytest.mark.parametrize("count", [500, 999, 2000])
def test_interval_excludes_zero_exactly_if_p_is_below_5_percent(count):
    """For smooth draws, for lumped ones (one image of 370 differs), and for nearly constant ones."""
    rng, significances = np.random.default_rng(7), set()
    for trial in range(120):
        value = (rng.normal(0, 1.5), -1.0, 0.0, 0.02)[trial % 4]
        smooth, lumped = rng.normal(value * 1.1, 0.5, count), -rng.poisson(abs(value), count)
        draws = (smooth, lumped / 370, np.where(rng.random(count) < 0.99, 0.4, value))[trial % 3]
        effect = stats.effect(value / 370 if trial % 3 == 1 else value, draws)
        low, high, p_value = plain_effect(effect.value, draws.tolist())
        assert (effect.low, effect.high, effect.p_value) == pytest.approx((low, high, p_value), abs=1e-9)
        assert effect.low <= effect.value <= effect.high
        touches = 0 in (effect.low, effect.high)  # half of the draws at 0 count
        assert touches or (effect.p_value <= 0.05) == (effect.low > 0 or effect.high < 0)
        significances.add(effect.p_value <= 0.05)
    assert significances == {True, False}


def test_one_changed_image_is_not_significant():
    changes = np.array([-1.0] + [0.0] * 369)
    effect = stats.effect(changes.mean(), stats.mean_draws(changes, 10_000, 0), units=370)
    assert effect.high == 0
    assert 0.3 < effect.p_value < 0.5  # 37% of draws lack the image


@pytest.mark.parametrize("n_families", [1, 2])
def test_random_set_is_significant_at_nominal_rate(n_families):
    rng = np.random.default_rng(5)
    drawn = rng.normal(size=(300, 100, 3))  # three tests in a family
    families = [stats.against_random(sample[0], sample[1:], tests=n_families) for sample in drawn]
    significant = np.mean([min(result.adjusted for result in family) <= 0.05 for family in families])
    unadjusted = np.mean([family[0].p_value <= 0.05 for family in families])
    assert significant == pytest.approx(0.05 / n_families, abs=0.02)
    assert unadjusted == pytest.approx(0.05, abs=0.02)


def test_detectable_effect_has_80_percent_power():
    rng = np.random.default_rng(6)
    detections = {-1: 0, 1: 0}
    for drawn in rng.normal(3, 2, size=(150, 201, 2)):
        for sign in detections:
            moved = drawn[0] + [sign * stats.against_random(drawn[0], drawn[1:])[0].detectable, 0]
            detections[sign] += stats.against_random(moved, drawn[1:])[0].adjusted <= 0.05
    assert [n / 150 for n in detections.values()] == pytest.approx([0.8, 0.8], abs=0.06)


def test_rank_and_p_value_among_random_sets():
    (result,) = stats.against_random([0.4], np.linspace(0.5, 0.7, 99)[:, None])
    assert (result.rank, result.of) == (1, 100)
    assert result.value == pytest.approx(-0.2)
    assert (result.p_value, result.adjusted) == (pytest.approx(0.01), pytest.approx(0.01))
    assert result.low < result.value < result.high < 0
    # With ten sets no difference can reach a p of 5%.
    (few,) = stats.against_random([0.4], np.linspace(0.5, 0.7, 10)[:, None])
    assert few.p_value == pytest.approx(1 / 11)
    assert np.isnan(few.detectable)
    constant, varied = stats.against_random([0.6, 0.6], [[0.6, 0.5], [0.6, 0.7]])
    assert np.isnan([constant.p_value, constant.adjusted]).all()
    assert varied.p_value == 1.0


def test_conclusion_follows_interval_and_p():
    for low, high, p_value, below, above in (
        (-0.5, -0.1, 0.01, "confirmed", "rejected"),
        (0.1, 0.5, 0.01, "rejected", "confirmed"),
        (-0.5, -0.1, 0.2, "inconclusive", "inconclusive"),  # after adjustment
    ):
        effect = stats.Effect((low + high) / 2, low, high, p_value)
        assert stats.conclusion(effect, expected="below") == below
        assert stats.conclusion(effect, expected="above") == above


def test_unchanged_images_have_wilson_interval():
    n = 100
    unchanged = stats.effect(0.0, np.zeros(2000), units=n)
    # Wilson's upper limit of 0 in n: z^2 / (n + z^2).
    assert unchanged.high == -unchanged.low == pytest.approx(1.959964**2 / (n + 1.959964**2))
    assert (unchanged.value, unchanged.p_value) == (0, 1)
    assert stats.minimum_detectable(unchanged) > 0.05


@given(st.lists(st.floats(0, 1), max_size=12))
def test_benjamini_hochberg_matches_scipy_and_ignores_missing_tests(p_values):
    expected = scipy.stats.false_discovery_control(p_values) if p_values else []
    adjusted = stats.benjamini_hochberg([*p_values, np.nan])
    assert adjusted[:-1] == pytest.approx(expected)
    assert np.isnan(adjusted[-1])
