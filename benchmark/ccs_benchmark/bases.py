"""Means over base models, with intervals and tests that generalize to new base models.

>>> across_bases([0.1, 0.3, 0.2]).n
3
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import scipy
from numpy.typing import ArrayLike

from ccs.errors import InputError
from ccs.metrics.stats import LEVEL, POWER, Effect, Floats, vector

_EXACT_FLIPS = 14  # maximum number of bases for which all sign flips are enumerated
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Replicated(Effect):
    """A mean over base models, its t interval, and the p-value of an exact sign-flip test.

    Attributes:
        n: Number of base models.
        detectable: Minimum detectable effect of a t test at 5% with 80% power; NaN with one base model.
    """

    n: int
    detectable: float

    @property
    def is_significant(self) -> bool:
        """Return whether p is at most 5%; with fewer than six bases it can't be, and the interval decides."""
        return super().is_significant or 2 / 2**self.n > 1 - LEVEL

    def times(self, factor: float) -> Self:
        """Scale the result to another unit."""
        return replace(super().times(factor), detectable=self.detectable * factor)


def across_bases(values: ArrayLike, bases: ArrayLike | None = None) -> Replicated:
    """Average a value or difference over base models, with an interval that generalizes to new ones.

    Models of one base share its layers and heads, so only means of bases are independent. The
    interval is Student's over these means; bootstrapping five or fewer bases covers 51 to 88% instead of 95%
    (`benchmarks/interval_coverage.py`). p is of the exact sign-flip test, which never falls below 2 / 2^n
    with n bases.

    Args:
        values: Numbers [models].
        bases: Base of each model [models]. Default: each model is its own base.

    Returns:
        The mean with its interval, infinite for a single base.

    Raises:
        InputError: If there are no values, or not one base for each.
    """
    array = vector(values, "values")
    names = np.arange(len(array)) if bases is None else np.asarray(bases)
    if names.shape != array.shape:
        raise InputError(f"Expected {len(array)} bases, one per value; got the shape {names.shape}.")
    means = np.array([array[names == name].mean() for name in np.unique(names)])
    value, n = float(means.mean()), len(means)
    if n == 1:
        return Replicated(value, -np.inf, np.inf, 1.0, n, float("nan"))
    error = float(means.std(ddof=1) / n**0.5)
    half = error * t_quantile(n)
    return Replicated(value, value - half, value + half, _sign_flip_p(means), n, error * _t_detectable(n))


def t_quantile(n: int) -> float:
    """Return the half-width of Student's 95% interval for the mean of n values, in standard errors."""
    return float(scipy.stats.t.ppf((1 + LEVEL) / 2, n - 1))


def _sign_flip_p(means: Floats) -> float:
    """Return the share of sign flips of the means [n] whose sum is at least as far from 0 as theirs."""
    n = len(means)
    if n <= _EXACT_FLIPS:
        signs = np.array(list(itertools.product((1.0, -1.0), repeat=n)))
    else:
        signs = np.vstack([np.ones(n), np.random.default_rng(0).choice((-1.0, 1.0), (10_000, n))])
    sums = np.abs(signs @ means)
    return float((sums >= sums[0] * (1 - 1e-9) - _ROUNDING).mean())


def _t_detectable(n: int) -> float:
    """Return the minimum detectable effect of a one-sample t test of n values, in standard errors."""
    critical = t_quantile(n)

    def excess(shift: float) -> float:
        return float(scipy.stats.nct.sf(critical, n - 1, shift) - POWER)

    return float(scipy.optimize.brentq(excess, 0.0, 40.0 * critical))
