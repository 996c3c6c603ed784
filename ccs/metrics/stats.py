"""Statistics shared by all measures: bootstrap, paired differences, adjusted p-values.

The resampling unit is the image (or whatever a value belongs to). Random results are reproducible by their
seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal, Self

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from ccs.errors import InputError

Floats = NDArray[np.float64]
Answer = Literal["yes", "no, the reverse", "not shown"]
LEVEL = 0.95
POWER = 0.8
DEVIATIONS = NormalDist().inv_cdf((1 + LEVEL) / 2)  # standard deviations to each end of a normal interval
FEW = 200  # with fewer draws an interval is the normal one


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95% interval."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Self:
        """The estimate scaled: in another unit, or a mean as the sum of `factor` values."""
        return replace(self, value=self.value * factor, low=self.low * factor, high=self.high * factor)


def signed(value: float, digits: int) -> str:
    """The number with its sign; what would round to zero, and is not zero, keeps its first digit.

    So the end of an interval that excludes 0 never looks like 0, nor like "-0.00".
    """
    text = f"{value:+.{digits}f}"
    return text if float(text) or value != value else f"{value:+.1g}" if value else f"{0:+.{digits}f}"


UNKNOWN = Estimate(float("nan"), float("nan"), float("nan"))


@dataclass(frozen=True)
class Effect(Estimate):
    """A difference, its 95% interval, and the two-sided p-value of "there is none"."""

    p_value: float


@dataclass(frozen=True)
class Ranked(Effect):
    """A chosen set's value less the mean of random sets, and its rank among them.

    The interval is the value less the middle 95% of the random sets. `rank`: from 1, the lowest, to `of`, all
    sets counted. `adjusted`: p for the family of tests on the same random sets. `detectable`: the smallest
    difference that would have had an adjusted p of 5% in 80% of cases; NaN if there is none.
    """

    adjusted: float
    rank: int
    of: int
    detectable: float

    def times(self, factor: float) -> Self:
        """The result in another unit."""
        return replace(super().times(factor), detectable=self.detectable * factor)


def normal_detectable(found: Estimate) -> float:
    """The smallest difference that a normal test with this interval's width detects in 80% of cases."""
    error = (found.high - found.low) / (2 * DEVIATIONS)
    return error * (DEVIATIONS + NormalDist().inv_cdf(POWER))


def vector(values: ArrayLike, name: str, *, least: int = 1) -> Floats:
    """The values as float64 [n]; InputError unless there are at least `least` of them, all finite."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) < least:
        raise InputError(f"The {name} must be a list of {least} or more numbers, not of shape {array.shape}.")
    if not np.isfinite(array).all():
        raise InputError(f"The {name} must be finite numbers; {int((~np.isfinite(array)).sum())} are not.")
    return array


def check_draws(draws: int) -> None:
    """InputError for fewer draws than an interval needs."""
    if draws < 40:
        raise InputError(f"{draws} draws are too few for a 95% interval; at least 40 are needed.")


def interval(value: float, draws: Floats, *, center: bool = False) -> Estimate:
    """The percentile interval of bootstrap draws [draws], at 2.5 and 97.5%.

    center: shift the draws first so that their mean equals the value, for statistics that resampling itself
    raises: a largest skew grows with noise, and a resampled ranking holds images twice, so plain percentiles
    can lie wholly above the value. Shifted draws that are nearly all one number (a MaxSkew at its ceiling)
    can leave the value outside their percentiles; the interval then ends at the value. With fewer than 200
    draws the interval is the value -+ 1.96 standard deviations of the draws.
    """
    low, high = intervals(np.array([value]), draws[:, None], center=center)
    return Estimate(float(value), float(low[0]), float(high[0]))


def intervals(values: Floats, draws: Floats, *, center: bool = False) -> tuple[Floats, Floats]:
    """Both ends [n] of the `interval` of each value [n], from its column of the draws [draws, n]."""
    if len(draws) < FEW:
        half = DEVIATIONS * draws.std(axis=0, ddof=1)
        return values - half, values + half
    low, high = np.quantile(draws, ((1 - LEVEL) / 2, (1 + LEVEL) / 2), axis=0)
    if not center:
        return low, high
    shift = values - draws.mean(axis=0)
    return np.minimum(low + shift, values), np.maximum(high + shift, values)


def effect(value: float, draws: Floats) -> Effect:
    """A difference with its 95% interval and p-value, both from its bootstrap draws [draws].

    The draws are shifted so that their mean equals the value, as in `interval`; a draw in which nothing
    differed stays at 0. With m = 2.5% of draws + 1, the interval goes from the m-th lowest draw to the m-th
    highest, and p is twice the share of draws at 0 or beyond it, one more in both counts. So 0 lies outside
    the interval exactly if p is at most 5%. With fewer than 200 draws both are the normal ones.
    """
    if len(draws) < FEW:
        return _normal(value, float(draws.std(ddof=1)))
    same = np.abs(draws) < 1e-12  # despite rounding
    shifted = np.sort(np.where(same, 0.0, draws + (value - draws.mean())))
    beyond = int((shifted * np.sign(value) <= 0).sum())
    p_value = min(1.0, 2 * (1 + beyond) / (1 + len(draws)))
    m = int((1 - LEVEL) / 2 * (1 + len(draws)) + 1e-9)
    return Effect(value, min(value, float(shifted[m - 1])), max(value, float(shifted[-m])), p_value)


def resampled_cells(counts: ArrayLike, draws: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Bootstrap counts [draws, cells] of n images that fall into a few cells.

    Drawing n images with replacement and counting cells is exactly a multinomial draw over the cells, whose
    cost does not grow with n.
    """
    check_draws(draws)
    cells = np.asarray(counts, dtype=np.int64)
    return rng.multinomial(int(cells.sum()), cells / cells.sum(), size=draws)


def mean_draws(values: ArrayLike, draws: int, seed: int) -> Floats:
    """Bootstrap draws [draws] of the mean of the values [n]."""
    array = vector(values, "values")
    distinct, counts = np.unique(array, return_counts=True)
    cells = resampled_cells(counts, draws, np.random.default_rng(seed))
    return np.asarray(cells @ distinct / len(array), dtype=np.float64)


def bootstrap(values: ArrayLike, *, draws: int = 2000, seed: int = 0) -> Estimate:
    """The mean of the values [n] with its percentile bootstrap interval."""
    return interval(float(np.mean(vector(values, "values"))), mean_draws(values, draws, seed))


def paired(values: ArrayLike, baseline: ArrayLike, *, draws: int = 10_000, seed: int = 0) -> Effect:
    """Mean of `values` less mean of `baseline`, both [n] for the same images, with a paired bootstrap."""
    left, right = vector(values, "values"), vector(baseline, "baseline's values")
    if len(left) != len(right):
        raise InputError(f"A pair needs a value on both sides, but there are {len(left)} and {len(right)}.")
    return effect(float((left - right).mean()), mean_draws(left - right, draws, seed))


def against_random(values: ArrayLike, random_values: ArrayLike, *, tests: int = 1) -> list[Ranked]:
    """The values [tests] of a chosen set of heads against those of random sets [sets, tests].

    If the chosen set were one more random set, each of the sets + 1 would be equally likely to lie furthest
    out: p is the share of sets, the chosen one included, at least as far from the median of all, and is
    exact. Distances below and above it are in units of that side's own spread, so that the long tail of one
    side does not hide the end of the other. The adjusted p (Westfall and Young's single step) is the share of
    sets whose furthest value in any test is at least as far as this one. `tests`: the number of such families
    to adjust for (Bonferroni). A test whose values are all equal has no p (NaN) and is left out of the
    family.
    """
    chosen, drawn = vector(values, "values"), np.asarray(random_values, dtype=np.float64)
    if drawn.ndim != 2 or drawn.shape[1:] != chosen.shape or not len(drawn):
        raise InputError(f"Random sets' values of shape {drawn.shape} do not go with {len(chosen)} values.")
    every = np.vstack([chosen, drawn])
    n, middle = len(every), np.median(every, axis=0)
    varies = every.std(axis=0) > 1e-12 * np.abs(every).max(axis=0)
    off = every - middle
    down, up = (
        np.sqrt((off**2 * side).sum(axis=0) / np.maximum(side.sum(axis=0), 1)) for side in (off < 0, off > 0)
    )
    far, spread = np.zeros_like(every), np.where(off < 0, down, up)
    np.divide(np.abs(off), spread, out=far, where=varies & (spread > 0))
    far = far.round(9)  # equal values must stay equal despite rounding
    furthest = far.max(axis=1)
    # At a p of 5% this many sets may lie further; the next one gives the distance to exceed.
    beyond = int(np.floor((1 - LEVEL) / tests * n + 1e-9)) - 1
    passed = np.sort(furthest[1:])[::-1][beyond] if 0 <= beyond < n - 1 else np.nan
    found = []
    for test, value in enumerate(chosen):
        column = drawn[:, test]
        mean, (low, high) = float(column.mean()), np.quantile(column, [(1 + LEVEL) / 2, (1 - LEVEL) / 2])
        fifth, rest = np.quantile(column - middle[test], [1 - POWER, POWER])
        needed = max(passed * down[test] + rest, passed * up[test] - fifth)
        p_value = float((far[:, test] >= far[0, test]).mean()) if varies[test] else float("nan")
        adjusted = min(1.0, tests * float((furthest >= far[0, test]).mean()))
        found.append(
            Ranked(
                value=float(value - mean),
                low=float(value - low),
                high=float(value - high),
                p_value=p_value,
                adjusted=adjusted if varies[test] else float("nan"),
                rank=1 + int((column < value).sum()),
                of=n,
                detectable=float(needed),
            )
        )
    return found


def of_one_sample(effects: Sequence[Effect]) -> Effect:
    """The mean of effects that share their images or models, such as those of one model on several sets.

    The correlation of their errors is unknown and assumed to be 1: the interval is as wide as theirs are on
    average, and p is the normal one for that width. InputError without effects.
    """
    if not effects:
        raise InputError("There are no effects to take the mean of.")
    if len(effects) == 1:
        return effects[0]
    value = float(np.mean([one.value for one in effects]))
    half = float(np.mean([one.high - one.low for one in effects])) / 2
    return _normal(value, half / DEVIATIONS)


def _normal(value: float, error: float) -> Effect:
    """A difference with the normal interval and p-value of this standard error."""
    p_value = float(2 * scipy.special.ndtr(-abs(value) / error)) if error else float(value == 0)
    return Effect(value, value - DEVIATIONS * error, value + DEVIATIONS * error, p_value)


def answer(found: Effect, *, expected: Literal["above", "below"]) -> Answer:
    """Compare an effect with what is expected; "not shown" if p > 5% or the interval contains zero."""
    if not found.p_value <= 0.05 or found.low <= 0 <= found.high:
        return "not shown"
    return "yes" if (found.value > 0) == (expected == "above") else "no, the reverse"


def holm(p_values: ArrayLike) -> Floats:
    """Holm's adjusted p-values [tests], for the family-wise error; NaN (no test) stays NaN, uncounted."""

    def adjust(known: Floats) -> Floats:
        order = np.argsort(known, kind="stable")
        adjusted = np.empty(len(known))
        adjusted[order] = np.maximum.accumulate(known[order] * np.arange(len(known), 0, -1))
        return np.minimum(adjusted, 1.0)

    return _adjusted(p_values, adjust)


def benjamini_hochberg(p_values: ArrayLike) -> Floats:
    """Benjamini and Hochberg's adjusted p-values [tests], for the false discovery rate; NaN stays NaN."""
    return _adjusted(p_values, scipy.stats.false_discovery_control)


def _adjusted(p_values: ArrayLike, adjust: Callable[[Floats], Floats]) -> Floats:
    array = np.array(p_values, dtype=np.float64)
    if array.ndim != 1 or bool(((array < 0) | (array > 1)).any()):
        raise InputError("p-values must be a list of numbers between 0 and 1 (NaN where there was no test).")
    known = np.isfinite(array)
    if known.any():
        array[known] = adjust(array[known])
    return array
