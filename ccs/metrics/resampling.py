"""The top K of rankings of resampled pools of images.

A resampled ranking holds an image as often as it was drawn. The order of the images never changes, so a draw
is one weight per image, and its top K ends where the weights along the ranking sum to K.
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
TieSeeds = Sequence[Sequence[int]]
SIGMAS = 4.5  # half width of the window around K in which the end of a draw's top K is searched


@dataclass(frozen=True)
class Draws:
    """Resampled pools of n images in g groups.

    Attributes:
        codes: the images' groups [n].
        n_groups: g.
        weights: how often each image was drawn [n, draws], in the smallest integer type that holds a draw's
            sum.
        pool: images per group [draws, g].
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
    """Resample images with replacement.

    Args:
        codes: the images' groups [n].
        n_groups: number of groups.
        draws: number of resamples, at least 40.
        seed: random seed.
        units: numbers [n]; images with the same number are drawn together, and a draw has as many units as
            the pool. By default each image is a unit.

    Returns:
        The resampled pools.
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
    """Find the ranks between which nearly every draw's top k ends.

    Args:
        n: number of images.
        k: the cut-off.

    Returns:
        start, depth: nearly every draw's top k contains all ranks before start and none from depth on.
    """
    margin = int(SIGMAS * np.sqrt(k)) + 4
    return max(0, k - margin), min(n, k + margin)


def top_counts(
    draws: Draws,
    scores: NDArray[np.float32],
    order: NDArray[np.intp],
    k: int,
    tie_seeds: TieSeeds | None = None,
) -> NDArray[np.float64]:
    """Count images of each group in each draw's top k.

    Ranks are taken in blocks: one up to the window, then blocks of BLOCK. Whole blocks are counted from their
    sums; only the block in which a draw's top k ends is read rank by rank. Counts are exact: a ranking is
    counted to a greater depth if the top k of any draw ends outside the window.

    Args:
        draws: resampled pools.
        scores: float32 [rankings, n].
        order: the images ranked to the depth from `window` [rankings, depth].
        k: the cut-off.
        tie_seeds: those that `order` was made with (`ranking.top`).

    Returns:
        Counts [rankings, draws, groups].
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
        counts[short] = _deep_counts(draws, scores[[short]], k, depth, _of_row(tie_seeds, int(short)))
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


def _of_row(tie_seeds: TieSeeds | None, row: int) -> TieSeeds | None:
    return None if tie_seeds is None else tie_seeds[row : row + 1]


def _deep_counts(
    draws: Draws, scores: NDArray[np.float32], k: int, depth: int, tie_seeds: TieSeeds | None
) -> NDArray[np.float64]:
    """Counts [draws, groups] of one ranking, scores [1, n], to where the top k of each draw ends."""
    order = _deeper(draws.weights, scores, k, depth, tie_seeds)
    upto = np.minimum(np.cumsum(draws.weights[order], axis=0, dtype=np.float64), k)
    member = np.equal.outer(np.arange(draws.n_groups), draws.codes[order])
    counts: NDArray[np.float64] = (member @ np.diff(upto, axis=0, prepend=0)).T
    return counts


def _deeper(
    weights: NDArray[np.unsignedinteger],
    scores: NDArray[np.float32],
    k: int,
    depth: int,
    tie_seeds: TieSeeds | None,
) -> NDArray[np.intp]:
    """The best images of one ranking, scores [1, n]: enough to hold the top k of each draw, or all.

    Images of one unit lie close together, and a draw without the first units goes on far below: a few
    hundred of 171,000 images mostly.
    """
    n = scores.shape[1]
    depth = min(8 * depth, n)
    order: NDArray[np.intp] = ranking.top(scores, depth, tie_seeds)[0]
    if depth == n or weights[order].sum(axis=0, dtype=np.intp).min() >= k:
        return order
    return _deeper(weights, scores, k, depth, tie_seeds)


def first_tops(
    draws: Draws,
    scores: NDArray[np.float32],
    order: NDArray[np.intp],
    k: int,
    tie_seeds: TieSeeds | None = None,
) -> NDArray[np.uint8]:
    """Group codes of each ranking's top k in each of the first FEW draws.

    Args:
        draws: resampled pools.
        scores: as in `top_counts`.
        order: as in `top_counts`.
        k: the cut-off.
        tie_seeds: as in `top_counts`.

    Returns:
        Codes [rankings, FEW, k].
    """
    weights = draws.weights[:, :FEW]
    tops = np.empty((len(order), weights.shape[1], k), dtype=np.uint8)
    for row, ranks in enumerate(order):
        if weights[ranks].sum(axis=0, dtype=np.intp).min() < k:
            ranks = _deeper(weights, scores[[row]], k, len(ranks), _of_row(tie_seeds, row))
        codes, times = draws.codes[ranks], weights[ranks].T.astype(np.intp, order="C")
        for draw, repeats in enumerate(times):  # of the draw's images [depth]
            top = np.repeat(codes, repeats)[:k]
            tops[row, draw, : len(top)] = top
            tops[row, draw, len(top) :] = codes[-1]  # a draw of units may hold fewer than k images
    return tops
