"""The top K of rankings of resampled pools of images.

An image drawn twice is in the resampled ranking twice; one not drawn is missing from it. The order of the
images never changes, so a draw is one weight per image, and its top K ends where the weights along the
ranking sum to K.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ccs.measures import ranking, stats

FEW = 32  # draws for metrics that read every rank of a top K
BLOCK = 16  # ranks summed together
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
    summed in blocks of ranks: one up to the window, then blocks of BLOCK. Only the block in which a draw's
    top k ends is read rank by rank. Counts are exact: a ranking is counted to a greater depth if the top k of
    any draw ends outside the window.
    """
    (rankings, depth), (n, drawn), groups = order.shape, draws.weights.shape, draws.n_groups
    start, _ = window(n, k)
    block = np.maximum(0, 1 + (np.arange(depth) - start) // BLOCK)  # [depth]
    axes = (rankings, int(block[-1]) + 1, groups)
    # A row for each ranking, block and group; its ones are the images whose weights it sums.
    rows = np.ravel_multi_index((np.arange(rankings)[:, None], block, draws.codes[order]), axes)
    ones = np.ones(rows.size, dtype=draws.weights.dtype)
    summing = scipy.sparse.csr_matrix((ones, (rows.ravel(), order.ravel())), shape=(math.prod(axes), n))
    upto = np.asarray(summing @ draws.weights).reshape(*axes, drawn)
    np.add.accumulate(upto, axis=1, out=upto)
    totals = upto.sum(axis=2, dtype=upto.dtype)  # [rankings, blocks, draws]

    ranking_of, draw_of = np.ogrid[:rankings, :drawn]
    whole = np.clip(
        (totals < k).sum(axis=1) - 1, 0, None
    )  # [rankings, draws], the last block wholly in the top k
    counts = upto[ranking_of, whole, :, draw_of].astype(np.float64)  # [rankings, draws, groups]
    room = k - totals[ranking_of, whole, draw_of].astype(np.intp)  # [rankings, draws]
    # The next block [rankings, BLOCK, draws], cut where its weights fill the room that is left.
    ranks = np.minimum(start + whole[:, None] * BLOCK + np.arange(BLOCK)[:, None], depth - 1)
    images = order[ranking_of[:, None], ranks]
    filled = draws.weights[images, draw_of].astype(np.intp)
    np.add.accumulate(filled, axis=1, out=filled)
    inside = np.diff(np.minimum(filled, room[:, None]), axis=1, prepend=0)
    cells = np.ravel_multi_index((ranking_of[:, None], draw_of, draws.codes[images]), counts.shape)
    counts += np.bincount(cells.ravel(), inside.ravel(), minlength=counts.size).reshape(counts.shape)

    for row in np.flatnonzero((room < 0).any(axis=1) | (totals[:, -1] < k).any(axis=1)):
        counts[row] = _deep_counts(draws, scores[row], k, depth)
    return counts


def _deep_counts(draws: Draws, scores: NDArray[np.float32], k: int, depth: int) -> NDArray[np.float64]:
    """Counts [draws, groups] of one ranking, to where the top k of every draw ends, below `depth`."""
    order = _deeper(draws.weights, scores, k, depth)
    upto = np.minimum(np.cumsum(draws.weights[order], axis=0, dtype=np.float64), k)
    member = np.equal.outer(np.arange(draws.n_groups), draws.codes[order])
    counts: NDArray[np.float64] = (member @ np.diff(upto, axis=0, prepend=0)).T
    return counts


def _deeper(
    weights: NDArray[np.unsignedinteger], scores: NDArray[np.float32], k: int, depth: int
) -> NDArray[np.intp]:
    """The best images of one ranking, as many as hold the top k of every draw, or all.

    Images of one unit lie close together, and a draw without the first units goes on far below: a few
    hundred of 171,000 images mostly.
    """
    depth = min(8 * depth, len(scores))
    order: NDArray[np.intp] = ranking.top(scores[None], depth)[0]
    if depth == len(scores) or weights[order].sum(axis=0, dtype=np.intp).min() >= k:
        return order
    return _deeper(weights, scores, k, depth)


def first_tops(
    draws: Draws, scores: NDArray[np.float32], order: NDArray[np.intp], k: int
) -> NDArray[np.uint8]:
    """Group codes of each ranking's top k in each of the first draws: [rankings, FEW, k].

    `scores` [rankings, n] and `order` [rankings, depth] are those of `top_counts`.
    """
    few = draws.weights[:, :FEW]

    def sums(ranks: NDArray[np.intp]) -> NDArray[np.intp]:
        return np.ascontiguousarray(few[ranks].T).cumsum(axis=1, dtype=np.intp)

    found = np.empty((len(order), few.shape[1], k), dtype=np.uint8)
    # Each draw has k positions, and one more for everything below its top k.
    offsets = np.arange(0, few.shape[1] * (k + 1), k + 1)
    for row, ranks in enumerate(order):
        ends = sums(ranks)
        if ends[:, -1].min() < k:
            ranks = _deeper(few, scores[row], k, len(ranks))
            ends = sums(ranks)
        # The rank at a position is the number of ranks whose copies all end at or before it.
        ended = np.bincount(
            (np.minimum(ends, k) + offsets[:, None]).ravel(), minlength=found[row].size + len(offsets)
        )
        rank = ended.reshape(-1, k + 1)[:, :k].cumsum(axis=1)
        np.minimum(rank, len(ranks) - 1, out=rank)  # a draw of units may hold fewer than k images
        found[row] = draws.codes[ranks][rank]
    return found
