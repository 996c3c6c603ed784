"""The top K of rankings of resampled pools of images.

An image drawn twice is in the resampled ranking twice; one not drawn is missing from it. The order of the
images never changes, so a draw is one weight per image, and its top K ends where the weights along the
ranking sum to K.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ccs.measures import ranking, stats

FEW = 32  # draws for metrics that read every rank of a top K
SIGMAS = 4.5  # half width of the window around K in which the end of a draw's top K is searched


@dataclass(frozen=True)
class Draws:
    """Resampled pools of n images in g groups.

    `weights` [n, draws]: how often each image was drawn, in the smallest integer type that holds a draw's
    sum. `pool` [draws, g]: images per group.
    """

    codes: NDArray[np.uint8]
    n_groups: int
    weights: NDArray[np.unsignedinteger]
    pool: NDArray[np.float64]


def draw_images(
    codes: NDArray[np.uint8],
    n_groups: int,
    draws: int,
    seed: int | Sequence[int],
    units: NDArray[np.integer] | None = None,
) -> Draws:
    """Resample n images with replacement `draws` times; `codes` [n] are their groups.

    `units` [n]: images with the same number are drawn together; a draw has as many units as the pool.
    """
    stats.check_draws(draws)
    rng = np.random.default_rng(seed)
    unit = np.arange(len(codes)) if units is None else np.unique(units, return_inverse=True)[1]
    n = int(unit.max()) + 1
    most = n * int(np.bincount(unit).max())
    weights = np.empty((len(codes), draws), dtype=np.min_scalar_type(most))
    pool = np.empty((draws, n_groups))
    for draw in range(draws):
        weights[:, draw] = np.bincount(rng.integers(0, n, n), minlength=n)[unit]
        pool[draw] = np.bincount(codes, weights[:, draw], minlength=n_groups)
    return Draws(codes, n_groups, weights, pool)


def window(n: int, k: int) -> tuple[int, int]:
    """(start, depth): nearly every draw's top k contains all ranks before start and none from depth on."""
    margin = int(SIGMAS * np.sqrt(k)) + 4
    return max(0, k - margin), min(n, k + margin)


def top_counts(
    draws: Draws, scores: NDArray[np.float32], order: NDArray[np.intp], k: int
) -> NDArray[np.float64]:
    """Images of each group in each draw's top k: [rankings, draws, groups].

    `scores` [rankings, n]; `order` [rankings, depth] ranks them to the depth from `window`. Weights are
    summed rank by rank only inside the window. Counts are exact: a ranking is counted over all images if the
    top k of any draw ends outside it.
    """
    start, _ = window(scores.shape[1], k)
    counts = np.empty((len(order), draws.weights.shape[1], draws.n_groups))
    for row, ranks in enumerate(order):
        found = _counts(draws, ranks, start, k)
        if found is None:
            found = _counts(draws, ranking.top(scores[row : row + 1], scores.shape[1])[0], 0, k)
        counts[row] = found
    return counts


def _counts(draws: Draws, ranks: NDArray[np.intp], start: int, k: int) -> NDArray[np.float32] | None:
    """One ranking's counts [draws, groups]; None if a draw's top k ends outside the ranks from `start` on."""
    member = np.equal.outer(np.arange(draws.n_groups), draws.codes[ranks]).astype(np.float32)
    weights = draws.weights[ranks]
    counts = member[:, :start] @ weights[:start].astype(np.float32)
    room = k - counts.sum(axis=0)
    upto = weights[start:].cumsum(axis=0, dtype=np.float32)
    ended = len(ranks) == len(draws.codes) or (upto[-1] >= room).all()
    if not ended or (room < 0).any():
        return None
    inside = np.diff(np.minimum(upto, room), axis=0, prepend=np.float32(0))
    return np.asarray((counts + member[:, start:] @ inside).T)


def first_tops(
    draws: Draws, scores: NDArray[np.float32], order: NDArray[np.intp], k: int
) -> NDArray[np.uint8]:
    """Group codes of each ranking's top k in each of the first draws: [rankings, FEW, k].

    `scores` [rankings, n] and `order` [rankings, depth] are those of `top_counts`. A draw of units may hold
    fewer than k images; the group of the last one then fills the rest.
    """
    few = draws.weights[:, :FEW]
    tops = np.empty((len(order), few.shape[1], k), dtype=np.uint8)
    for row, ranks in enumerate(order):
        if few[ranks].sum(axis=0).min() < k:
            (ranks,) = ranking.top(scores[row : row + 1], scores.shape[1])
        codes = draws.codes[ranks]
        tops[row] = codes[-1]
        for draw, times in enumerate(few[ranks].T):
            top = np.repeat(codes, times)[:k]
            tops[row, draw, : len(top)] = top
    return tops
