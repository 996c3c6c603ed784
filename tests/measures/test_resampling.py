"""Resampled pools against lists in which images are repeated as often as they were drawn."""

import numpy as np
import pytest

from ccs.measures import ranking, resampling
from tests.support.bias_sample import example


def require_by_hand(draws, scores, codes, k):
    """Each draw: repeat the images as often as drawn, rank them again, count."""
    order = ranking.top(scores, resampling.window(len(codes), k)[1])
    counts = resampling.top_counts(draws, scores, order, k)
    tops = resampling.first_tops(draws, scores, order, k)
    for row, own in enumerate(scores):
        for draw, weights in enumerate(draws.weights.T.astype(int)):
            drawn = np.repeat(np.arange(len(codes)), weights)
            ranked = codes[drawn[np.argsort(-own[drawn], kind="stable")]][:k]
            assert counts[row, draw].tolist() == np.bincount(ranked, minlength=draws.n_groups).tolist()
            assert draws.pool[draw].tolist() == np.bincount(codes[drawn], minlength=draws.n_groups).tolist()
            if draw < resampling.FEW:
                assert tops[row, draw].tolist() == ranked.tolist()
    return order


@pytest.mark.parametrize(("n", "k"), [(60, 7), (400, 90), (400, 400), (30, 1)])
def test_resampled_top_equals_resampling_by_hand(n, k):
    """Window and fall-back both."""
    images, texts, groups = example(n=n, o=3)
    codes = np.unique(groups, return_inverse=True)[1].astype(np.uint8)
    draws = resampling.draw_images(codes, 3, 150, seed=4)
    assert (draws.weights.sum(axis=0) == n).all()
    require_by_hand(draws, ranking.cosines(texts, images), codes, k)


def test_units_that_lie_together_are_counted_as_deep_as_their_draws_go():
    """Counterfactuals: twelve images of a unit have nearly the same score, so a draw without the first units
    goes on far below K.
    """
    rng, k = np.random.default_rng(2), 12
    units = np.repeat(np.arange(400), 12)
    images = np.repeat(rng.normal(size=(400, 8)), 12, axis=0) + 0.01 * rng.normal(size=(4800, 8))
    scores = ranking.cosines(rng.normal(size=(2, 8)), images)
    codes = np.tile(np.arange(6, dtype=np.uint8), 800)
    draws = resampling.draw_images(codes, 6, 300, 5, units)
    order = require_by_hand(draws, scores, codes, k)
    assert draws.weights[order[0]].sum(axis=0).min() < k  # some draw has fewer in the window
