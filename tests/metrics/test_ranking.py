"""Rankings, direct effects, the group score gap; resampled pools against lists that repeat images."""

import numpy as np
import pytest

from ccs.metrics import ranking
from ccs.metrics.pools import FEW, make_pools
from ccs.metrics.ranking import Ranking
from tests.support.bias_sample import example


def test_ranking_equals_a_stable_sort():
    scores = np.round(np.random.default_rng(0).standard_normal((20, 300)), 1).astype(np.float32)
    slow = np.argsort(-scores, axis=1, kind="stable")
    for depth in (1, 17, 300):
        assert (ranking.top(scores, depth) == slow[:, :depth]).all()


def test_identical_images_score_the_same_wherever_they_stand_and_lengths_do_not_count():
    rng = np.random.default_rng(0)
    texts, images = rng.standard_normal((5, 70)), 7 * rng.standard_normal((1030, 70)).astype(np.float32)
    images[[0, 500, 1029]] = images[17]
    scores = ranking.products(ranking.unit(texts, "t"), ranking.unit(images, "i"))
    assert (scores[:, [0, 500, 1029]] == scores[:, [17]]).all()
    assert ranking.cosines(texts, images) == pytest.approx(scores, abs=1e-7)


def test_prompts_that_are_one_text_to_the_model_are_found():
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=(3, 64))
    nearly = a + 1e-7 * rng.normal(size=64)  # another place in the batch
    close = a + 0.01 * rng.normal(size=64)
    assert ranking.first_alike([a, b, 3 * a, nearly, c, close, b]).tolist() == [0, 1, 0, 0, 4, 5, 1]
    assert ranking.alike("abcdefg", [a, b, 3 * a, nearly, c, close, b]) == (("a", "c", "d"), ("b", "g"))


def plain_score_gap(images, prompts, groups, pools):
    """Prompt by prompt and group by group."""
    variances = []
    for p, prompt in enumerate(prompts):
        scores = images @ prompt
        means = [scores[(groups == g) & pools[p]].mean() for g in sorted(set(groups))]
        variances.append(np.mean([(mean - np.mean(means)) ** 2 for mean in means]))
    return np.sqrt(np.mean(variances))


@pytest.mark.parametrize("with_pools", [True, False])
def test_the_score_gap_is_its_definition_and_its_vectors_sum_to_it_and_are_half_its_slope(with_pools):
    rng = np.random.default_rng(0)
    groups = np.array(["a", "b", "c"])[rng.integers(0, 3, 30)]
    pools = rng.random((4, 30)) < 0.7
    images, prompts = (ranking.unit(rng.standard_normal((n, 5)), "x").astype(np.float32) for n in (30, 4))
    question = Ranking(prompts, groups, 2, pools if with_pools else None)
    whole = plain_score_gap(images, prompts, groups, pools if with_pools else np.ones_like(pools))
    assert question.score_gap(images) == pytest.approx(whole, rel=1e-4)
    vectors = question.toward(images)
    assert (vectors * images).sum() == pytest.approx(whole**2, rel=1e-4)
    rng = np.random.default_rng(1)
    moved = 1e-2 * rng.standard_normal(images.shape)
    moved -= (moved * images).sum(1, keepdims=True) * images  # along the sphere: cosines ignore lengths
    squares = [question.score_gap(images + side * moved) ** 2 for side in (1, -1)]
    assert (vectors * moved).sum() == pytest.approx((squares[0] - squares[1]) / 4, rel=2e-2)


def require_by_hand(pool, scores):
    """Each draw: repeat the images as often as drawn, rank them again, count."""
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
def test_resampled_top_equals_resampling_by_hand(n, k):
    images, texts, groups = example(n=n, o=3)
    (pool,) = make_pools(Ranking(texts, groups, k), 4, 150)
    assert (pool.drawn[0].sum(axis=0) == n).all()
    require_by_hand(pool, ranking.cosines(texts, images))


def test_units_that_lie_together_are_counted_as_deep_as_their_draws_go():
    """Twelve images of a unit score nearly the same: a draw without the first units goes on far below K."""
    rng = np.random.default_rng(2)
    units = np.repeat(np.arange(400), 12)
    images = np.repeat(rng.normal(size=(400, 8)), 12, axis=0) + 0.01 * rng.normal(size=(4800, 8))
    groups = np.tile(np.array(list("abcdef")), 800)
    (pool,) = make_pools(Ranking(rng.normal(size=(2, 8)), groups, 12, units=units), 5, 300)
    scores = ranking.cosines(pool.question.prompts, images)
    require_by_hand(pool, scores)
    assert len(pool.top_of_draws(scores[0], 0)) > 100  # a draw needs more


@pytest.mark.parametrize("with_pools", [True, False])
def test_a_gap_between_groups_is_significant_and_chance_is_not(with_pools):
    p_values = []
    for tilt, seeds in ((0.0, range(40)), (3.0, [0])):
        for seed in seeds:
            images, texts, groups = example(n=120, tilt=tilt, seed=seed)
            pools = np.random.default_rng(seed).random((len(texts), 120)) < 0.7 if with_pools else None
            question = Ranking(texts, groups, 10, pools)
            test = question.gap_test(images, draws=99)
            assert test.gap == pytest.approx(question.score_gap(images))
            p_values.append(test.p_value)
    assert np.mean(np.array(p_values[:-1]) <= 0.05) < 0.15
    assert p_values[-1] == 0.01
    assert test.gap > 2 * test.chance
