"""The top K of rankings when the pool of images is drawn again with replacement.

An image drawn twice stands twice in the ranking, one not drawn is not there. The ranking itself stays, so
that a draw is a weight for each image, and its top K ends where the weights along the ranking reach K.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import scipy.sparse
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ccs import ranking, stats

CHUNK = 512  # draws at a time: a step is worth waking a thread, and what it works on stays in the cache
FEW = 32  # draws for what reads every rank of a top K
SIGMAS = 4.5  # how far from K the end of a draw's top K is looked for; further off, it is done the long way


@dataclass(frozen=True)
class Draws:
    """Draws of n images in g groups: weights in chunks [n, draws of the chunk], those of the first draws once
    more [FEW, n], the pool [draws, g].
    """

    codes: NDArray[np.uint8]
    n_groups: int
    weights: tuple[NDArray[np.float32], ...]
    few: NDArray[np.intp]
    pool: NDArray[np.float64]


def draw_images(codes: NDArray[np.uint8], n_groups: int, draws: int, seed: int) -> Draws:
    """`draws` times n images with replacement; `codes` [n] are their groups."""
    stats.check_draws(draws)
    n, rng = len(codes), np.random.default_rng(seed)
    chunks = []
    pool = np.empty((draws, n_groups))
    for start in range(0, draws, CHUNK):
        chunk = np.empty((n, min(CHUNK, draws - start)), dtype=np.float32)
        for column in range(chunk.shape[1]):
            picked = rng.integers(0, n, n)
            chunk[:, column] = np.bincount(picked, minlength=n)
            pool[start + column] = np.bincount(codes[picked], minlength=n_groups)
        chunks.append(chunk)
    return Draws(codes, n_groups, tuple(chunks), chunks[0][:, :FEW].T.astype(np.intp, order="C"), pool)


def _member(codes: NDArray[np.uint8], n_groups: int) -> NDArray[np.float32]:
    """1 where an image is of the group: [groups, images]."""
    return np.asarray(codes[None, :] == np.arange(n_groups)[:, None], dtype=np.float32)


def window(n: int, k: int) -> tuple[int, int]:
    """(start, depth): ranks before start are in nearly every draw's top k, those from depth on in none."""
    margin = int(SIGMAS * np.sqrt(k)) + 4
    return max(0, k - margin), min(n, k + margin)


def top_counts(
    draws: Draws, scores: NDArray[np.float32], order: NDArray[np.intp], k: int, threads: ThreadPoolExecutor
) -> NDArray[np.float64]:
    """Images of each group in each draw's top k: [rankings, draws, groups].

    `scores` [rankings, n]; `order` [rankings, depth] ranks them to the depth that `window` gives. Counts are
    exact: where a draw's top k ends outside of the window, its chunk is counted over the whole ranking.
    """
    rankings, groups = len(order), draws.n_groups
    start, _ = window(scores.shape[1], k)
    # Ranks before the window only add up, a row of the sum for each ranking and group.
    rows = np.arange(rankings)[:, None] * groups + draws.codes[order[:, :start]]
    ones = np.ones(rows.size, dtype=np.float32)
    shape = (rankings * groups, scores.shape[1])
    inside = scipy.sparse.csr_matrix((ones, (rows.ravel(), order[:, :start].ravel())), shape=shape)
    zones = order[:, start:]
    members = [_member(draws.codes[zone], groups) for zone in zones]

    def count(chunk: NDArray[np.float32]) -> NDArray[np.float32]:
        counts = np.asarray(inside @ chunk).reshape(rankings, groups, -1)
        for row, zone in enumerate(zones):
            taken = _cut(chunk[zone], k - counts[row].sum(axis=0))
            if taken is None:
                counts[row] = _slow_counts(draws, chunk, scores[row], k)
            else:
                counts[row] += members[row] @ taken
        return counts

    found = list(threads.map(count, draws.weights))
    return np.concatenate(found, axis=2).transpose(0, 2, 1).astype(np.float64)


def _cut(weights: NDArray[np.float32], room: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """The weights [ranks, draws], cut where their sums along the ranks reach what there is room for [draws].

    None where that is less than nothing, or is not reached.
    """
    sums = ranking.running(weights)
    if room.min() < 0 or (sums[-1] < room).any():
        return None
    np.minimum(sums, room, out=sums)
    sums[1:] -= sums[:-1].copy()
    return sums


def _slow_counts(
    draws: Draws, chunk: NDArray[np.float32], scores: NDArray[np.float32], k: int
) -> NDArray[np.float32]:
    """Counts [groups, draws] of one ranking, over all its images."""
    (order,) = ranking.top(scores[None], len(scores))
    taken = _cut(chunk[order], np.full(chunk.shape[1], k, dtype=np.float32))
    assert taken is not None  # a draw has n images, and k is at most n
    counts: NDArray[np.float32] = _member(draws.codes[order], draws.n_groups) @ taken
    return counts


def first_tops(
    draws: Draws, scores: NDArray[np.float32], order: NDArray[np.intp], k: int
) -> NDArray[np.uint8]:
    """Group codes of the top k of rankings in each of the first draws: [rankings, FEW, k].

    `scores` [rankings, n], and `order` [rankings, depth] as for `top_counts`.
    """
    found = np.empty((len(order), len(draws.few), k), dtype=np.uint8)
    for row, ranks in enumerate(order):
        times = draws.few[:, ranks]
        if times.sum(axis=1).min() < k:
            (ranks,) = ranking.top(scores[row : row + 1], scores.shape[1])
            times = draws.few[:, ranks]
        written = np.repeat(np.tile(draws.codes[ranks], len(times)), times.ravel())
        lengths = times.sum(axis=1)
        found[row] = sliding_window_view(written, k)[np.cumsum(lengths) - lengths]
    return found
