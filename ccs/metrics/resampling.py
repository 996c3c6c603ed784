"""The top K of rankings of resampled pools of images.

An image drawn twice is in the resampled ranking twice; one not drawn is missing from it. The order of the
images never changes, so a draw is one weight per image, and its top K ends where the weights along the
ranking sum to K.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ccs.metrics import ranking, stats

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
    # Images of each unit and group; a draw's images are those of its units.
    of_units = np.bincount(unit * n_groups + codes, minlength=n * n_groups).reshape(n, n_groups)
    times = np.empty((draws, n), dtype=np.min_scalar_type(n * int(of_units.sum(axis=1).max())))
    pool = np.empty((draws, n_groups))
    for draw in range(draws):
        times[draw] = np.bincount(rng.integers(0, n, n), minlength=n)
        pool[draw] = times[draw] @ of_units
    return Draws(codes, n_groups, np.take(times.T, unit, axis=0), pool)


def window(n: int, k: int) -> tuple[int, int]:
    """(start, depth): nearly every draw's top k contains all ranks before start and none from depth on."""
    margin = int(SIGMAS * np.sqrt(k)) + 4
    return max(0, k - margin), min(n, k + margin)


def top_counts(
    draws: Draws, scores: NDArray[np.float32], order: NDArray[np.intp], k: int
) -> NDArray[np.float64]:
    """Images of each group in each draw's top k: [rankings, draws, groups].

    `scores` [rankings, n]; `order` [rankings, depth] ranks them to the depth from `window`. Ranks are taken
    in blocks: one up to the window, then blocks of BLOCK. Whole blocks are counted from their sums; only the
    block in which a draw's top k ends is read rank by rank. Counts are exact: a ranking is counted to a
    greater depth if the top k of any draw ends outside the window.
    """
    (rankings, depth), drawn = order.shape, draws.weights.shape[1]
    start, _ = window(len(draws.codes), k)
    block_of = np.maximum(0, 1 + (np.arange(depth) - start) // BLOCK)  # [depth]
    upto = _block_sums(draws, order, block_of)  # [rankings, blocks, groups, draws]
    np.add.accumulate(upto, axis=1, out=upto)  # now the images from the first rank to each block's end
    totals = upto.sum(axis=2, dtype=upto.dtype)  # [rankings, blocks, draws]

    row, draw = np.ogrid[:rankings, :drawn]
    whole = np.maximum((totals < k).sum(axis=1) - 1, 0)  # the last block inside [rankings, draws]
    counts = upto[row, whole, :, draw].astype(np.float64)  # [rankings, draws, groups]
    room = k - totals[row, whole, draw].astype(np.intp)  # images that are still missing [rankings, draws]

    # The ranks of the next block [rankings, BLOCK, draws], cut where they fill that room.
    ranks = np.minimum(start + whole[:, None] * BLOCK + np.arange(BLOCK)[:, None], depth - 1)
    images = order[row[:, None], ranks]
    filled = draws.weights[images, draw].astype(np.intp)
    np.add.accumulate(filled, axis=1, out=filled)
    inside = np.diff(np.minimum(filled, room[:, None]), axis=1, prepend=0)
    cells = np.arange(counts.size).reshape(counts.shape)[row[:, None], draw, draws.codes[images]]
    counts += np.bincount(cells.ravel(), inside.ravel(), counts.size).reshape(counts.shape)

    for short in np.flatnonzero((room < 0).any(axis=1) | (totals[:, -1] < k).any(axis=1)):
        counts[short] = _deep_counts(draws, scores[short], k, depth)
    return counts


def _block_sums(draws: Draws, order: NDArray[np.intp], block_of: NDArray[np.intp]) -> NDArray[Any]:
    """How often each draw has the images of each block of ranks, by group: [rankings, blocks, groups, draws].

    order: [rankings, depth]. block_of: [depth], the block of each rank. A product with a sparse matrix of
    ones, a row for each sum, reads the weights once and keeps their small type.
    """
    shape = (len(order), int(block_of[-1]) + 1, draws.n_groups)
    sums = np.arange(math.prod(shape)).reshape(shape)  # the row of each sum
    rows = sums[np.arange(len(order))[:, None], block_of, draws.codes[order]]  # [rankings, depth]
    ones = np.ones(rows.size, draws.weights.dtype)
    summing = scipy.sparse.csr_matrix((ones, (rows.ravel(), order.ravel())), (sums.size, len(draws.codes)))
    return np.asarray(summing @ draws.weights).reshape(*shape, -1)


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
    found = np.empty((len(order), few.shape[1], k), dtype=np.uint8)
    for row, ranks in enumerate(order):
        if few[ranks].sum(axis=0, dtype=np.intp).min() < k:
            ranks = _deeper(few, scores[row], k, len(ranks))
        codes, times = draws.codes[ranks], few[ranks].T.astype(np.intp, order="C")  # [depth], [draws, depth]
        for draw, own in enumerate(times):
            top = np.repeat(codes, own)[:k]
            found[row, draw, : len(top)] = top
            found[row, draw, len(top) :] = codes[-1]  # a draw of units may hold fewer than k images
    return found
