"""Skew metrics of ablation sets: chance levels, intervals, and comparisons."""

import numpy as np
import pytest

from ccs import InputError
from ccs.metrics import bias, bias_result, group_gaps, skew, stats
from ccs.metrics.ranking import Ranking, cosines
from tests.support.bias_sample import draw_embeddings

ALL = skew.METRICS + group_gaps.PREFERENCES


@pytest.mark.parametrize("tilt", [0.0, 6.0])  # near 0, and near the ceiling
def test_intervals_stay_within_range_of_metric(tilt):
    images, texts, groups = draw_embeddings(n=120, tilt=tilt)
    for draws in (40, 500):
        measured = bias.measure(images, Ranking(texts, groups, 40), metrics=ALL, draws=draws)
        skews, ceilings = measured.max_skew, skew.ceiling(measured.pools, 40)
        assert (skews.low >= 0).all()
        assert (skews.high <= ceilings + 1e-12).all()
        assert 0 <= skews.mean.low <= skews.mean.value <= skews.mean.high <= ceilings.mean() + 1e-12
        assert measured.metrics["NDKL"].low.min() >= 0
        assert measured.metrics["AUC"].high.max() <= 1


def test_chance_level_matches_random_rankings():
    _, texts, groups = draw_embeddings(n=300, o=4)
    rng = np.random.default_rng(5)
    random = [cosines(texts, rng.standard_normal((300, 6))) for _ in range(150)]
    results = bias.measure_ablations(random, Ranking(texts, groups, 30), draws=40)
    for name in skew.METRICS:
        chance = results[0].metrics[name]
        means = np.array([r.metrics[name].mean.value for r in results])
        values = np.concatenate([r.metrics[name].values for r in results])
        assert chance.chance_mean.value == pytest.approx(means.mean(), rel=0.06)
        inside = (values >= chance.chance.low) & (values <= chance.chance.high)
        assert 0.93 < inside.mean() < 0.995  # counts are whole numbers, so not exactly 0.95
        # Rankings by one set of embeddings correlate, so their mean varies more.
        inside = (means >= chance.chance_mean.low) & (means <= chance.chance_mean.high)
        assert 0.8 < inside.mean() < 0.99


@pytest.mark.parametrize("groups", [np.repeat(["a", "b"], 60), np.tile(["a", "b", "c"], 40)])
def test_identical_images_score_at_chance_with_ties_counted(groups):
    images, texts = np.ones((120, 6)), np.random.default_rng(0).standard_normal((20, 6))
    question = Ranking(texts, groups, 30)
    measured = bias.measure(images, question, metrics=ALL, draws=500)
    for name in ("MaxSkew", "NDKL"):
        metric = measured.metrics[name]
        assert metric.chance_mean.low < metric.mean.value < metric.chance_mean.high
    assert measured.metrics["AUC"].values == pytest.approx(0.5)
    assert (measured.ties == 90).all()
    assert bias.means(images, question)["MaxSkew"] == pytest.approx(measured.max_skew.mean.value)
    assert len({tuple(top) for top in measured.top.tolist()}) > 3  # prompts break ties in different orders


@pytest.mark.parametrize("with_pools", [False, True])
def test_chance_within_pairs_matches_shuffled_pairs(with_pools):
    """The chance level of random rankings is too high for pairs of images that rank next to each other."""
    rng = np.random.default_rng(0)
    scenes = np.repeat(rng.standard_normal((150, 6)), 2, axis=0)
    images, units = scenes + 0.02 * rng.standard_normal((300, 6)), np.repeat(np.arange(150), 2)
    texts, groups = rng.standard_normal((4, 6)), np.tile(["a", "b"], 150)
    pools = np.stack([units % 2 == prompt % 2 for prompt in range(4)]) if with_pools else None
    question = Ranking(texts, groups, 21, pools, units)
    scores = cosines(texts, images)
    result = bias.Measuring(question, draws=40)(scores, within_units=True)
    measured, chance = result.max_skew, result.within_units
    assert chance.low <= measured.mean.value <= chance.high < measured.chance_mean.low
    drawn = []
    for _ in range(150):
        groups = rng.permuted(groups.reshape(150, 2), axis=1).ravel()
        drawn.append(bias.means(images, Ranking(texts, groups, 21, pools, units))["MaxSkew"])
    assert chance.value == pytest.approx(np.mean(drawn), abs=0.01)
    assert (chance.low, chance.high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.02)
    unpaired = bias.Measuring(Ranking(texts, groups, 21, units=np.arange(300)), draws=40)
    assert unpaired(scores, within_units=True).within_units is None


def test_preferred_group_depends_on_metric():
    """Group a leads the top; group b has the highest mean."""
    groups = np.repeat(["a", "b", "c"], 40)
    scores = np.concatenate([[0.9] * 10 + [0.0] * 30, [0.5] * 40, [0.1] * 40])
    images = np.column_stack([scores, np.sqrt(1 - scores**2)])
    measured = bias.measure(images, Ranking([[1.0, 0.0]], groups, 10), metrics=ALL, draws=40)
    preferred = {name: measured.preferred_group(name, 0)[0] for name in ALL}
    assert preferred == {"MaxSkew": "a", "NDKL": ""} | dict.fromkeys(group_gaps.PREFERENCES, "b")


def test_ablations_are_compared_on_same_draws():
    images, texts, groups = draw_embeddings(n=600, o=12, tilt=1.5)
    noise = np.random.default_rng(3).standard_normal(images.shape).astype(np.float32)
    fair = images.copy()
    fair[groups == "g0", 0] -= 1.5
    scores = [cosines(texts, of) for of in (images, images, images + 0.05 * noise, fair)]
    base, same, noisy, fairer = bias.measure_ablations(scores, Ranking(texts, groups, 90))
    assert bias_result.compare_bias(same, base) == stats.Effect(0.0, 0.0, 0.0, 1.0)
    paired = bias_result.compare_bias(noisy, base)
    single = base.max_skew.mean
    assert paired.high - paired.low < 0.5 * (single.high - single.low)
    lowered = bias_result.compare_bias(fairer, base)
    assert lowered.high < 0
    assert lowered.p_value < 0.01
    third = fairer.max_skew.values[2] - base.max_skew.values[2]
    assert bias_result.compare_bias(fairer, base, prompt=2).value == pytest.approx(third)
    with pytest.raises(InputError, match="same images"):
        bias_result.compare_bias(bias.measure(images, Ranking(texts, groups, 90), seed=1), base)


def test_occupation_pools_are_ranked_separately():
    images, texts, groups = draw_embeddings(n=120, o=4)
    pools = np.arange(120) % 4 == np.arange(4)[:, None]
    measured = bias.measure(images, Ranking(texts, groups, 10, pools), draws=40)
    for row, pool in enumerate(pools):
        alone = bias.measure(images[pool], Ranking(texts[row : row + 1], groups[pool], 10), draws=40)
        assert measured.max_skew.values[row] == alone.max_skew.values[0]
        assert measured.top[row].tolist() == alone.top[0].tolist()
        assert measured.pools[row].tolist() == alone.pools[0].tolist()
        chances = [result.chance_shares(at)[groups[0]].high for result, at in ((measured, row), (alone, 0))]
        assert chances[0] == chances[1]
    assert measured.max_skew.mean.value == pytest.approx(measured.max_skew.values.mean())
    # Pools are resampled independently of each other.
    assert abs(np.corrcoef(measured.max_skew.draws[:, :2].T)[0, 1]) < 0.6


def test_chance_shares_match_random_rankings():
    groups = np.array(["many"] * 150 + ["few"] * 50)
    rng = np.random.default_rng(4)
    drawn = np.array([(rng.permutation(groups)[:40] == "few").mean() for _ in range(4000)])
    images, texts, _ = draw_embeddings(n=200)
    measured = bias.measure(images, Ranking(texts, groups, 40), draws=40)
    share = measured.chance_shares()["few"]
    assert share.value == 0.25 == pytest.approx(drawn.mean(), abs=0.005)
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert (share.low, share.high) == pytest.approx((low, high), abs=1e-9)  # both are fortieths


def test_means_match_full_measurement():
    images, texts, groups = draw_embeddings(tilt=0.5)
    question, options = Ranking(texts, groups, 40), {"seed": 2, "logit_scale": 20.0}
    measured = bias.measure(images, question, draws=40, metrics=ALL, **options)
    names = ("MaxSkew", *group_gaps.PREFERENCES)
    means = bias.means(images, question, names, **options)
    assert means == pytest.approx({name: measured.metrics[name].mean.value for name in names})
    assert measured.metrics["logit gap (cross-fitted)"].chance_mean.value == 0
    assert measured.metrics["AUC"].chance_mean.low > 0.5
    auc = measured.metrics["AUC (cross-fitted)"]
    assert auc.chance_mean.low < auc.chance_mean.value == 0.5 < auc.chance_mean.high
