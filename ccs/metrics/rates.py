"""Rates at which people of each group are assigned to a category of classes, with intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binomtest

from ccs.errors import InputError
from ccs.metrics.stats import Estimate

DRAWS = 2_000
POWER = 1.959964 + 0.841621
"""Standard errors of a two-sided 5% test that has 80% power."""


@dataclass(frozen=True)
class Rate(Estimate):
    """The rate of a group of `n` people, with its 95% Wilson interval."""

    group: str
    n: int


@dataclass(frozen=True)
class RateGap:
    """The largest difference of two groups' rates.

    Attributes:
        value: highest rate minus lowest rate.
        highest: the group with the highest rate.
        lowest: the group with the lowest rate.
        chance: mean gap when groups are shuffled among the people.
        p_value: share of shuffles with a gap at least as large, the observed one included.
        detectable: the difference between two groups of these sizes that a test finds with 80% power.
    """

    value: float
    highest: str
    lowest: str
    chance: float
    p_value: float
    detectable: float


def group_rates(assigned: ArrayLike, groups: ArrayLike) -> tuple[Rate, ...]:
    """Compute the rate of each group.

    Args:
        assigned: bool [people], True for people assigned to the category.
        groups: group of each person [people].

    Returns:
        One `Rate` per group, in alphabetical order.

    Raises:
        InputError: If the two differ in length or there are no people.
    """
    hits, names = np.asarray(assigned, dtype=bool), np.asarray(groups).astype(str)
    if hits.shape != names.shape or hits.ndim != 1 or not len(hits):
        raise InputError(
            f"Expected one group and one assignment for each person; got {hits.shape} and {names.shape}."
        )
    rates = []
    for group in np.unique(names):
        members = hits[names == group]
        test = binomtest(int(members.sum()), len(members))
        low, high = test.proportion_ci(method="wilson")
        rates.append(Rate(float(test.statistic), low, high, str(group), len(members)))
    return tuple(rates)


def rate_gap(assigned: ArrayLike, groups: ArrayLike, *, draws: int = DRAWS, seed: int = 0) -> RateGap:
    """Test whether the groups' rates differ, by shuffling groups among people.

    Args:
        assigned: bool [people].
        groups: group of each person [people].
        draws: number of shuffles.
        seed: random seed of the shuffles.

    Returns:
        The largest difference of two rates, with its chance level and p-value.

    Raises:
        InputError: As `group_rates`, and if there is only one group.
    """
    rates = group_rates(assigned, groups)
    if len(rates) < 2:
        raise InputError(f"A gap needs two groups or more; everyone is in {rates[0].group!r}.")
    hits = np.asarray(assigned, dtype=float)
    codes = np.unique(np.asarray(groups).astype(str), return_inverse=True)[1]
    sizes = np.bincount(codes)
    highest, lowest = max(rates, key=lambda rate: rate.value), min(rates, key=lambda rate: rate.value)
    observed = highest.value - lowest.value
    rng = np.random.default_rng(seed)
    shuffled = np.array([_gap(rng.permutation(hits), codes, sizes) for _ in range(draws)])
    variance = hits.mean() * (1 - hits.mean()) * (1 / highest.n + 1 / lowest.n)
    return RateGap(
        value=observed,
        highest=highest.group,
        lowest=lowest.group,
        chance=float(shuffled.mean()),
        p_value=float((1 + (shuffled >= observed - 1e-12).sum()) / (1 + draws)),
        detectable=float(POWER * np.sqrt(variance)),
    )


def _gap(hits: NDArray[np.float64], codes: NDArray[np.int64], sizes: NDArray[np.int64]) -> float:
    rates = np.bincount(codes, weights=hits) / sizes
    return float(rates.max() - rates.min())
