"""Intervals and tests that all metrics share: bootstrap, paired differences, adjusted p-values.

The resampling unit is the image, or another unit that a value belongs to. Equal seeds give equal results.
"""

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.errors import InputError

Floats = NDArray[np.float64]
Conclusion = Literal["confirmed", "inconclusive", "rejected"]
LEVEL = 0.95
POWER = 0.8
DEVIATIONS = NormalDist().inv_cdf((1 + LEVEL) / 2)  # standard deviations to each end of a normal interval
DETECTABLE = DEVIATIONS + NormalDist().inv_cdf(POWER)
"""The minimum detectable effect of a two-sided test, in standard errors."""
FEW = 200  # with fewer draws, intervals assume a normal distribution
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Estimate:
    """A value and its 95% interval."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Self:
        """Scale the estimate: to another unit, or from a mean to the sum of `factor` values."""
        return replace(self, value=self.value * factor, low=self.low * factor, high=self.high * factor)

    def clipped(self) -> Self:
        """Return the estimate with its value and interval limited to 0 to 1."""
        value, low, high = (min(max(end, 0.0), 1.0) for end in (self.value, self.low, self.high))
        return replace(self, value=value, low=low, high=high)


def signed(value: float, digits: int) -> str:
    """Format a number with its sign, such as "+0.12"; NaN is a dash.

    A number that isn't 0 but would round to 0 keeps its first digit, so the end of an interval that excludes
    0 never looks like 0.

    Args:
        value: Number to format.
        digits: Number of digits after the decimal point.
    """
    if not np.isfinite(value):
        return "–"
    text = f"{value + 0.0:+.{digits}f}"  # -0.0 becomes 0.0
    return text if float(text) or not value else f"{value:+.1g}"


UNKNOWN = Estimate(float("nan"), float("nan"), float("nan"))


@dataclass(frozen=True)
class Effect(Estimate):
    """A difference with its 95% interval and the two-sided p-value of "no difference"."""

    p_value: float

    @property
    def is_significant(self) -> bool:
        """Return whether p is at most 5%."""
        return self.p_value <= 1 - LEVEL + _ROUNDING


@dataclass(frozen=True)
class Ranked(Effect):
    """A chosen set's value minus the mean of random sets, and its rank among them.

    The interval is the value minus the middle 95% of the random sets.

    Attributes:
        adjusted: P-value adjusted for the family of tests on the same random sets.
        rank: Rank of the chosen set, from 1 (lowest) to `of`.
        of: Number of sets, including the chosen one.
        detectable: Minimum detectable effect: the smallest difference that would have had an adjusted p of 5%
            in 80% of cases. NaN if there is none.
    """

    adjusted: float
    rank: int
    of: int
    detectable: float

    def times(self, factor: float) -> Self:
        """Scale the result to another unit."""
        return replace(super().times(factor), detectable=self.detectable * factor)


def minimum_detectable(estimate: Estimate) -> float:
    """Return the smallest true difference that a test with this interval's width detects in 80% of cases.

    A `Ranked` result stores it; otherwise it is computed for a normal test.
    """
    if (detectable := getattr(estimate, "detectable", None)) is not None:
        return float(detectable)
    return (estimate.high - estimate.low) / (2 * DEVIATIONS) * DETECTABLE


def conclusion(effect: Effect, *, expected: Literal["above", "below"]) -> Conclusion:
    """Decide whether an effect confirms or rejects a claim about its sign.

    Args:
        effect: Difference with its interval and p-value.
        expected: Side of 0 on which the claim puts the effect.

    Returns:
        "confirmed" if the whole interval lies on the expected side (and p is at most 5%), "rejected" if it
        lies on the other side, otherwise "inconclusive".
    """
    if effect.low <= 0 <= effect.high or not effect.is_significant:
        return "inconclusive"
    return "confirmed" if (effect.value > 0) == (expected == "above") else "rejected"


def vector(values: ArrayLike, name: str, *, fewest: int = 1) -> Floats:
    """Return the values as float64 [n].

    Args:
        values: Numbers [n].
        name: Name of the values in an error message.
        fewest: Smallest number of values allowed.

    Raises:
        InputError: If the values aren't a list, are too few, or aren't all finite.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) < fewest:
        raise InputError(f"The {name} must be a list of {fewest} or more numbers, not {array.shape}.")
    if not np.isfinite(array).all():
        raise InputError(f"The {name} must be finite numbers; {int((~np.isfinite(array)).sum())} are not.")
    return array


def check_draws(draws: int) -> None:
    """Raise InputError for fewer draws than an interval needs."""
    if draws < 40:
        raise InputError(f"{draws} draws are too few for a 95% interval; at least 40 are needed.")


def interval(value: float, draws: Floats, *, center: bool = False) -> Estimate:
    """Return the percentile interval of bootstrap draws, from 2.5 to 97.5%.

    Args:
        value: Estimate of the statistic.
        draws: Resampled values of the estimate [draws]. With fewer than 200 draws, the interval is the value
            ± 1.96 standard deviations of the draws.
        center: Whether to shift the draws first so that their mean equals the value. Use it for statistics
            that resampling itself raises. A largest skew grows with noise, and a resampled ranking holds
            images twice, so plain percentiles can lie wholly above the value. If the shifted draws are nearly
            all equal (such as a MaxSkew at its ceiling), the value can lie outside; the interval then ends at
            the value.

    Returns:
        The value with its interval.
    """
    low, high = intervals(np.array([value]), draws[:, None], center=center)
    return Estimate(float(value), float(low[0]), float(high[0]))


def intervals(values: Floats, draws: Floats, *, center: bool = False) -> tuple[Floats, Floats]:
    """Return the `interval` of each of several values.

    Args:
        values: Estimates [n].
        draws: Resampled values of each estimate [draws, n].
        center: As in `interval`.

    Returns:
        Lower ends [n] and upper ends [n].
    """
    if len(draws) < FEW:
        half = DEVIATIONS * draws.std(axis=0, ddof=1)
        return values - half, values + half
    low, high = np.quantile(draws, ((1 - LEVEL) / 2, (1 + LEVEL) / 2), axis=0)
    if not center:
        return low, high
    shift = values - draws.mean(axis=0)
    return np.minimum(low + shift, values), np.maximum(high + shift, values)


def effect(value: float, draws: Floats, *, units: int = 0) -> Effect:
    """Return a difference with its 95% interval and mid-p value, both from its bootstrap draws.

    The draws are shifted so that their mean equals the value, as in `interval`; a draw in which nothing
    differed stays at 0. p is twice the share of draws beyond 0, where draws at 0 count half (Lancaster 1961,
    "Significance tests in discrete distributions") and one draw is added to both counts. With m = 2.5% of
    draws + 1, the interval goes from the m-th lowest draw to the m-th highest. So 0 lies outside the interval
    exactly if p is at most 5%, except that an interval with an end at 0 may have a smaller p.

    Args:
        value: Observed difference.
        draws: Resampled values of the difference [draws]. With fewer than 200 draws, the interval and p
            assume a normal distribution.
        units: Number of resampling units of a difference between shares. If none of them changes, resampling
            can't vary, and the interval ends at Wilson's limit for a share of 0.

    Returns:
        The effect.
    """
    if units and not draws.any():
        reach = float(wilson(0.0, units)[1])
        return Effect(0.0, -reach, reach, 1.0)
    if len(draws) < FEW:
        return effect_of(value, float(draws.std(ddof=1)))
    unchanged = np.abs(draws) < _ROUNDING
    shifted = np.sort(np.where(unchanged, 0.0, draws + (value - draws.mean())))
    beyond = float((shifted * np.sign(value) < 0).sum() + (shifted * np.sign(value) == 0).sum() / 2)
    p_value = min(1.0, 2 * (1 + beyond) / (1 + len(draws)))
    m = int((1 - LEVEL) / 2 * (1 + len(draws)) + 1e-9)
    return Effect(value, min(value, float(shifted[m - 1])), max(value, float(shifted[-m])), p_value)


def resampled_cells(counts: ArrayLike, draws: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Bootstrap counts of images that fall into a few cells.

    Drawing n images with replacement and counting cells is exactly a multinomial draw over the cells, whose
    cost does not grow with n.

    Args:
        counts: Number of images in each cell [cells].
        draws: Number of resamples, at least 40.
        rng: NumPy random generator.

    Returns:
        Counts [draws, cells].
    """
    check_draws(draws)
    cells = np.asarray(counts, dtype=np.int64)
    return rng.multinomial(int(cells.sum()), cells / cells.sum(), size=draws)


def mean_draws(values: Floats, draws: int, seed: int) -> Floats:
    """Bootstrap the mean of values [n], and return the draws [draws]."""
    distinct, counts = np.unique(values, return_counts=True)
    cells = resampled_cells(counts, draws, np.random.default_rng(seed))
    return np.asarray(cells @ distinct / len(values), dtype=np.float64)


def bootstrap(values: ArrayLike, *, draws: int = 2000, seed: int = 0) -> Estimate:
    """Return the mean of values with its percentile bootstrap interval.

    Args:
        values: Numbers [n], one per resampling unit.
        draws: Number of resamples.
        seed: Random seed for resampling.

    Returns:
        The mean with its interval.
    """
    array = vector(values, "values")
    return interval(float(array.mean()), mean_draws(array, draws, seed))


def wilson(share: ArrayLike, n: ArrayLike) -> tuple[Floats, Floats]:
    """Compute the 95% intervals of shares (Wilson 1927, "Probable inference").

    Args:
        share: Shares, 0 to 1.
        n: Number of independent units of each share.

    Returns:
        Lower ends and upper ends.
    """
    p, total, square = np.asarray(share, float), np.asarray(n, float), DEVIATIONS**2
    middle = (2 * total * p + square) / (2 * (total + square))
    reach = DEVIATIONS / (2 * (total + square)) * np.sqrt(4 * total * p * (1 - p) + square)
    return np.where(p > 0, middle - reach, 0.0), np.where(p < 1, middle + reach, 1.0)


def share_interval(estimate: Estimate, n: int) -> Estimate:
    """Replace the interval of a share of 0 or 1 by Wilson's, because its resampled values never vary.

    Args:
        estimate: Share with the interval of its draws.
        n: Number of resampling units.
    """
    low, high = map(float, wilson(estimate.value, n))
    return estimate if 0 < estimate.value < 1 else Estimate(estimate.value, low, high)


def against_random(values: ArrayLike, random_values: ArrayLike, *, tests: int = 1) -> list[Ranked]:
    """Rank a chosen set of heads among random sets, in each of several tests.

    If the chosen set were just another random set, each set would be equally likely to lie furthest from the
    median. So p is exact: it is the share of sets, including the chosen one, that lie at least as far from
    the median of all sets. Distances on each side of the median are in units of that side's spread, so that a
    long tail on one side does not hide the end of the other. The adjusted p (Westfall and Young's single
    step) is the share of sets whose furthest value in any test is at least as far as the chosen set's.

    Args:
        values: Values of the chosen set [tests].
        random_values: Values of the random sets [sets, tests].
        tests: Number of such families of tests to adjust for (Bonferroni).

    Returns:
        A result per test. A test whose values are all equal has no p (NaN) and is left out of the family.

    Raises:
        InputError: If the shapes don't match.
    """
    chosen, drawn = vector(values, "values"), np.asarray(random_values, dtype=np.float64)
    if drawn.ndim != 2 or drawn.shape[1:] != chosen.shape or not len(drawn):
        raise InputError(f"Random sets' values of shape {drawn.shape} do not fit {len(chosen)} values.")
    stacked = np.vstack([chosen, drawn])
    n, middle = len(stacked), np.median(stacked, axis=0)
    varies = stacked.std(axis=0) > _ROUNDING * np.abs(stacked).max(axis=0)
    offset = stacked - middle
    down, up = (
        np.sqrt((offset**2 * side).sum(axis=0) / np.maximum(side.sum(axis=0), 1))
        for side in (offset < 0, offset > 0)
    )
    far, spread = np.zeros_like(stacked), np.where(offset < 0, down, up)
    np.divide(np.abs(offset), spread, out=far, where=varies & (spread > 0))
    far = far.round(9)  # equal values must stay equal despite rounding
    furthest = far.max(axis=1)
    # At a p of 5% this many sets may lie further; the next one gives the distance to exceed.
    beyond = int(np.floor((1 - LEVEL) / tests * n + 1e-9)) - 1
    passed = np.sort(furthest[1:])[::-1][beyond] if 0 <= beyond < n - 1 else np.nan
    high, low = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    lower_fifth, upper_fifth = np.quantile(drawn - middle, [1 - POWER, POWER], axis=0)
    needed = np.maximum(passed * down + upper_fifth, passed * up - lower_fifth)
    p_values = np.where(varies, (far >= far[0]).mean(axis=0), np.nan)
    shares = (furthest[:, None] >= far[0]).mean(axis=0)
    adjusted = np.where(varies, np.minimum(1.0, tests * shares), np.nan)
    columns = (chosen - drawn.mean(axis=0), chosen - low, chosen - high, p_values, adjusted, needed)
    ranks = (1 + (drawn < chosen).sum(axis=0)).tolist()
    return [
        Ranked(value, left, right, p_value, family, rank, n, detectable)
        for value, left, right, p_value, family, detectable, rank in zip(
            *(column.tolist() for column in columns), ranks, strict=True
        )
    ]


def effect_of(value: float, error: float) -> Effect:
    """Return a difference with the normal interval and p-value of its standard error.

    Args:
        value: Observed difference.
        error: Standard error of the difference.
    """
    p_value = 2 * NormalDist().cdf(-abs(value) / error) if error else float(value == 0)
    return Effect(value, value - DEVIATIONS * error, value + DEVIATIONS * error, p_value)


def benjamini_hochberg(p_values: ArrayLike) -> Floats:
    """Adjust p-values [tests] for the false discovery rate (Benjamini and Hochberg 1995); NaN stays NaN."""
    adjusted = np.array(p_values, dtype=np.float64)
    if adjusted.ndim != 1 or bool(((adjusted < 0) | (adjusted > 1)).any()):
        raise InputError("p-values must be a list of numbers between 0 and 1 (NaN where there was no test).")
    known = np.flatnonzero(np.isfinite(adjusted))
    falling = known[np.argsort(-adjusted[known], kind="stable")]
    factors = len(known) / np.arange(len(known), 0, -1)
    adjusted[falling] = np.minimum.accumulate(adjusted[falling] * factors)
    return adjusted
