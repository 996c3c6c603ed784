"""Resampled pools against lists in which images are repeated as often as they were drawn."""

from __future__ import annotations

import numpy as np
import pytest

from ccs.measures import ranking, resampling
from tests.support.bias_sample import example


@pytest.mark.parametrize(("n", "k"), [(60, 7), (400, 90), (400, 400), (30, 1)])
def test_resampled_top_equals_resampling_by_hand(n, k):
    """Each draw: repeat the images as often as drawn, rank them again, count. Window and fall-back both."""
    images, texts, groups = example(n=n, o=3)
    codes = np.unique(groups, return_inverse=True)[1].astype(np.uint8)
    draws = resampling.draw_images(codes, 3, 150, seed=4)
    scores = ranking.products(ranking.unit(texts, "t"), ranking.unit(images, "i"))
    order = ranking.top(scores, resampling.window(n, k)[1])
    counts = resampling.top_counts(draws, scores, order, k)
    weights = draws.weights.astype(int)
    assert (weights.sum(axis=0) == n).all()
    for row in range(3):
        (tops,) = resampling.first_tops(draws, scores[row : row + 1], order[row : row + 1], k)
        for draw in range(150):
            drawn = np.repeat(np.arange(n), weights[:, draw])
            ranked = codes[drawn[np.argsort(-scores[row][drawn], kind="stable")]]
            assert counts[row, draw].tolist() == np.bincount(ranked[:k], minlength=3).tolist()
            assert draws.pool[draw].tolist() == np.bincount(codes[drawn], minlength=3).tolist()
            if draw < resampling.FEW:
                assert tops[draw].tolist() == ranked[:k].tolist()


def test_units_that_lie_together_are_counted_as_deep_as_their_draws_go():
    """Counterfactuals: twelve images of a unit have nearly the same score, so a draw without the first units
    goes on far below K. Against each draw's own ranking, written out.
    """
    rng, k = np.random.default_rng(2), 12
    units = np.repeat(np.arange(400), 12)
    images = np.repeat(rng.normal(size=(400, 8)), 12, axis=0) + 0.01 * rng.normal(size=(4800, 8))
    scores = ranking.cosines(rng.normal(size=(2, 8)), images)
    codes = np.tile(np.arange(6, dtype=np.uint8), 800)
    draws = resampling.draw_images(codes, 6, 300, 5, units)
    order = ranking.top(scores, resampling.window(4800, k)[1])
    assert draws.weights[order[0]].sum(axis=0).min() < k  # some draw has fewer in the window
    counts = resampling.top_counts(draws, scores, order, k)
    tops = resampling.first_tops(draws, scores, order, k)
    for row in range(2):
        for draw, weights in enumerate(draws.weights.T.astype(int)):
            drawn = np.repeat(np.arange(4800), weights)
            ranked = codes[drawn[np.argsort(-scores[row][drawn], kind="stable")]][:k]
            assert counts[row, draw].tolist() == np.bincount(ranked, minlength=6).tolist()
            if draw < resampling.FEW:
                assert tops[row, draw].tolist() == ranked.tolist()
