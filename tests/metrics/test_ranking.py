"""Rankings, the group score gap, and resampled pools, against sorted lists with repeated images."""

import numpy as np
import pytest

from ccs.metrics import ranking
from ccs.metrics.pools import FEW, make_pools
from tests.support.bias_sample import draw_embeddings


def test_top_matches_stable_sort():
    scores = np.round(np.random.default_rng(0).standard_normal((20, 300)), 1).astype(np.float32)
    order = np.argsort(-scores, axis=1, kind="stable")
    for depth in (1, 17, 300):
        assert (ranking.top(scores, depth) == order[:, :depth]).all()


def test_scores_ignore_length_and_place_of_image():
    rng = np.random.default_rng(0)
    texts, images = rng.standard_normal((5, 70)), 7 * rng.standard_normal((1030, 70)).astype(np.float32)
    images[[0, 500, 1029]] = images[17]
    scores = ranking.products(ranking.unit(texts, "t"), ranking.unit(images, "i"))
    assert (scores[:, [0, 500, 1029]] == scores[:, [17]]).all()
    assert ranking.cosines(texts, images) == pytest.approx(scores, abs=1e-7)


def test_identically_encoded_prompts_are_grouped():
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=(3, 64))
    rounded = a + 1e-7 * rng.normal(size=64)  # a text's place in a batch changes its embedding by as little
    close = a + 0.01 * rng.normal(size=64)
    assert ranking.first_alike([a, b, 3 * a, rounded, c, close, b]).tolist() == [0, 1, 0, 0, 4, 5, 1]
    assert ranking.alike("abcdefg", [a, b, 3 * a, rounded, c, close, b]) == (("a", "c", "d"), ("b", "g"))


def plain_score_gap(images, prompts, groups, pools):
    variances = []
    for prompt, pool in zip(prompts, pools, strict=True):
        scores = images @ prompt
        means = [scores[(groups == group) & pool].mean() for group in sorted(set(groups))]
        variances.append(np.mean([(mean - np.mean(means)) ** 2 for mean in means]))
    return np.sqrt(np.mean(variances))


@pytest.mark.parametrize("with_pools", [True, False])
def test_score_gap_and_its_gradient_match_reference(with_pools):
    rng = np.random.default_rng(0)
    groups = np.array(["a", "b", "c"])[rng.integers(0, 3, 30)]
    pools = rng.random((4, 30)) < 0.7
    images, prompts = (ranking.unit(rng.standard_normal((n, 5)), "x").astype(np.float32) for n in (30, 4))
    question = ranking.Ranking(prompts, groups, 2, pools if with_pools else None)
    gap = plain_score_gap(images, prompts, groups, pools if with_pools else np.ones_like(pools))
    assert question.score_gap(images) == pytest.approx(gap, rel=1e-4)
    half_gradient = question.toward(images)
    assert (half_gradient * images).sum() == pytest.approx(gap**2, rel=1e-4)
    step = 1e-2 * np.random.default_rng(1).standard_normal(images.shape)
    step -= (step * images).sum(1, keepdims=True) * images  # along the sphere: cosines ignore lengths
    squares = [question.score_gap(images + sign * step) ** 2 for sign in (1, -1)]
    assert (half_gradient * step).sum() == pytest.approx((squares[0] - squares[1]) / 4, rel=2e-2)


def check_draws(pool, scores):
    """Compare each draw with a list that repeats images as often as they were drawn."""
    weights, counts = pool.drawn
    for prompt, prompt_scores in enumerate(scores):
        order = pool.top_of_draws(prompt_scores, prompt)
        drawn_counts, tops = pool.drawn_counts(order), pool.drawn_tops(order)
        for draw, times in enumerate(weights.T.astype(int)):
            drawn = np.repeat(np.arange(len(pool.codes)), times)
            ranked = pool.codes[drawn[np.argsort(-prompt_scores[drawn], kind="stable")]][: pool.question.k]
            assert drawn_counts[draw].tolist() == np.bincount(ranked, minlength=pool.n_groups).tolist()
            assert counts[draw].tolist() == np.bincount(pool.codes[drawn], minlength=pool.n_groups).tolist()
            if draw < FEW:
                assert tops[draw].tolist() == ranked.tolist()


@pytest.mark.parametrize(("n", "k"), [(60, 7), (400, 90), (400, 400), (30, 1)])
def test_resampled_top_matches_repeated_images(n, k):
    images, texts, groups = draw_embeddings(n=n, o=3)
    (pool,) = make_pools(ranking.Ranking(texts, groups, k), 4, 100)
    assert (pool.drawn[0].sum(axis=0) == n).all()
    check_draws(pool, ranking.cosines(texts, images))


def test_resampled_units_are_counted_to_sufficient_depth():
    """Twelve images of a unit score nearly the same, so some draws reach far below K."""
    rng = np.random.default_rng(2)
    units = np.repeat(np.arange(400), 12)
    images = np.repeat(rng.normal(size=(400, 8)), 12, axis=0) + 0.01 * rng.normal(size=(4800, 8))
    groups = np.tile(np.array(list("abcdef")), 800)
    (pool,) = make_pools(ranking.Ranking(rng.normal(size=(2, 8)), groups, 12, units=units), 5, 300)
    scores = ranking.cosines(pool.question.prompts, images)
    check_draws(pool, scores)
    assert len(pool.top_of_draws(scores[0], 0)) > 100


@pytest.mark.parametrize("with_pools", [True, False])
def test_gap_test_detects_gap_at_nominal_error_rate(with_pools):
    p_values = []
    for tilt, seeds in ((0.0, range(25)), (3.0, [0])):
        for seed in seeds:
            images, texts, groups = draw_embeddings(n=120, tilt=tilt, seed=seed)
            pools = np.random.default_rng(seed).random((len(texts), 120)) < 0.7 if with_pools else None
            question = ranking.Ranking(texts, groups, 10, pools)
            test = question.gap_test(images, draws=99)
            assert test.gap == pytest.approx(question.score_gap(images))
            p_values.append(test.p_value)
    assert np.mean(np.array(p_values[:-1]) <= 0.05) < 0.15
    assert p_values[-1] == 0.01
    assert test.gap > 2 * test.chance
