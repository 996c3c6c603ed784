"""The top K of rankings of resampled pools of images.

A resampled ranking holds an image as often as it was drawn. The order of the images never changes, so a draw
is one weight per image, and its top K ends where the weights along the ranking sum to K.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ccs.metrics import ranking, stats

FEW = 32  # draws for metrics that read every rank of a top K
SIGMAS = 4.5  # standard deviations beyond K in which the end of a draw's top K is searched first


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


def rank_images(
    draws: Draws, scores: NDArray[np.float32], k: int, tie_seed: Sequence[int]
) -> NDArray[np.intp]:
    """Rank the best images of a prompt, to where the top k of every draw ends.

    Args:
        draws: resampled pools.
        scores: float32 [n].
        k: the cut-off.
        tie_seed: random seed for the order of equal scores.

    Returns:
        Indices of images, best first: enough for every draw, or all.
    """
    n = len(scores)
    depth = min(n, k + int(SIGMAS * np.sqrt(k)) + 4)
    while True:
        order: NDArray[np.intp] = ranking.top(scores[None], depth, [tie_seed])[0]
        if depth == n or draws.weights[order].sum(axis=0, dtype=np.intp).min() >= k:
            return order
        depth = min(n, 8 * depth)  # images of one unit lie close together, so a draw can lack the first ones


def top_counts(draws: Draws, order: NDArray[np.intp], k: int) -> NDArray[np.float64]:
    """Count images of each group in each draw's top k.

    Args:
        draws: resampled pools.
        order: images from `rank_images` [depth].
        k: the cut-off.

    Returns:
        Counts [draws, groups].
    """
    filled = np.minimum(np.cumsum(draws.weights[order], axis=0, dtype=np.int32), k)
    inside, codes = np.diff(filled, axis=0, prepend=0), draws.codes[order]
    counts = [inside[codes == group].sum(axis=0) for group in range(draws.n_groups)]
    return np.stack(counts, axis=-1).astype(np.float64)


def first_tops(draws: Draws, order: NDArray[np.intp], k: int) -> NDArray[np.uint8]:
    """List group codes of the top k in each of the first FEW draws.

    Args:
        draws: resampled pools.
        order: images from `rank_images` [depth].
        k: the cut-off.

    Returns:
        Codes [FEW, k]; a draw of units may hold fewer than k images, and ends with the last one's group.
    """
    codes = draws.codes[order]
    last_codes = np.full(k, codes[-1])
    return np.stack([np.append(np.repeat(codes, of), last_codes)[:k] for of in draws.weights[order, :FEW].T])
