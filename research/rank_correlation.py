"""Spearman's correlation with a bootstrap interval and a permutation p-value."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import ArrayLike

from ccs.errors import InputError
from ccs.metrics.stats import Effect, Floats, interval, vector

DRAWS = 4000


def correlation(x: ArrayLike, y: ArrayLike, *, seed: int = 0) -> Effect:
    """Compute Spearman's correlation: bootstrap over the pairs, p by permutation.

    Args:
        x: Values [n], n >= 4.
        y: Values [n].
        seed: Random seed for resampling.

    Returns:
        The effect, NaN if x or y doesn't vary.
    """
    left, right = vector(x, "x values", fewest=4), vector(y, "y values", fewest=4)
    if len(left) != len(right):
        raise InputError(f"Expected as many x as y values; got {len(left)} and {len(right)}.")
    if np.ptp(left) == 0 or np.ptp(right) == 0:
        return Effect(*[float("nan")] * 4)
    rng, n = np.random.default_rng(seed), len(left)

    def measured(a: Floats, b: Floats) -> Floats:
        """Correlate each row of a with the same row of b: [rows]; 0 if a row is constant.

        Args:
            a: Values [rows, columns].
            b: Values of the same shape.
        """
        a, b = (scipy.stats.rankdata(side, axis=-1) - (n + 1) / 2 for side in (a, b))
        product, scale = (a * b).sum(axis=-1), np.sqrt((a * a).sum(axis=-1) * (b * b).sum(axis=-1))
        return np.asarray(np.divide(product, scale, out=np.zeros_like(product), where=scale > 0))

    value = float(measured(left[None], right[None])[0])
    picked = rng.integers(0, n, size=(DRAWS, n))
    around = interval(value, measured(left[picked], right[picked]))
    permuted = rng.permuted(np.tile(left, (DRAWS, 1)), axis=1)
    reached = int((np.abs(measured(permuted, right[None])) >= abs(value) - 1e-12).sum())
    return Effect(value, around.low, around.high, (1 + reached) / (1 + DRAWS))
