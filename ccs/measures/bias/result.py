"""What the measures of one plan are, and how two plans are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.errors import InputError
from ccs.measures import faults, stats
from ccs.measures.skew import Empty, Floats, Target
from ccs.measures.stats import Effect, Estimate

MetricName = Literal["MaxSkew", "MinSkew", "NDKL"]
METRICS: tuple[MetricName, ...] = ("MaxSkew", "MinSkew", "NDKL")


@dataclass(frozen=True, kw_only=True, eq=False)
class Metric:
    """One metric over all occupations, in their order.

    `values`, `low`, `high`: float64 [occupations], the interval by resampling images alone. `mean`, `sum`:
    over the occupations, by resampling images and (unless asked not to) occupations. `chance`: one random
    ranking;
    `chance_mean`, `chance_sum`: as many independent random rankings as there are occupations. `draws`:
    float64 [draws, occupations], the resampled values; `mean_draws`: float64 [draws], their resampled mean.
    """

    values: Floats
    low: Floats
    high: Floats
    mean: Estimate
    sum: Estimate
    chance: Estimate
    chance_mean: Estimate
    chance_sum: Estimate
    draws: Floats
    mean_draws: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class BiasResult:
    """What one plan's rankings come to, with every choice that the figures depend on.

    `metrics`: those asked for. `top`: int64 [occupations, groups], images of each group in the top K; `pool`:
    int64 [groups]. `ties`: int64 [occupations], images outside of the top K with the score of the last one
    inside. `mode`: "correct" or "as-published" (then `fault` names what is reproduced).
    """

    metrics: Mapping[MetricName, Metric]
    groups: tuple[str, ...]
    pool: NDArray[np.int64]
    top: NDArray[np.int64]
    ties: NDArray[np.int64]
    k: int
    n: int
    target: Target
    empty: Empty
    fault: faults.Fault | None
    seed: int

    @property
    def mode(self) -> Literal["correct", "as-published"]:
        return "correct" if self.fault is None else "as-published"

    @property
    def max_skew(self) -> Metric:
        return self.metrics["MaxSkew"]

    @property
    def top_shares(self) -> Floats:
        """Each group's share of the top K, [occupations, groups]."""
        return np.asarray(self.top / self.k, dtype=np.float64)


def compare(
    result: BiasResult, baseline: BiasResult, metric: MetricName = "MaxSkew", occupation: int | None = None
) -> Effect:
    """The metric's mean over the occupations (or one occupation's value) less the baseline's: paired
    bootstrap.

    Both results must come from the same images, occupations, seed and number of draws, so that draw i drew
    the same images for both; otherwise InputError. For the sum multiply by the number of occupations. Where a
    draw is infinite (an empty group, if it counts so) there is no difference: NaN.
    """
    ours, theirs = result.metrics[metric], baseline.metrics[metric]
    same = (result.seed, result.n, result.k, result.groups) == (
        baseline.seed,
        baseline.n,
        baseline.k,
        baseline.groups,
    )
    if not same or ours.draws.shape != theirs.draws.shape:
        raise InputError(
            "Two bias results can be compared only for the same images, groups, k, seed and draws."
        )
    if occupation is None:
        value, drawn, before = ours.mean.value - theirs.mean.value, ours.mean_draws, theirs.mean_draws
    else:
        value = float(ours.values[occupation] - theirs.values[occupation])
        drawn, before = ours.draws[:, occupation], theirs.draws[:, occupation]
    if np.isinf(drawn).any() or np.isinf(before).any():
        return Effect(*[float("nan")] * 4)
    return stats.effect(value, drawn - before)


def alignment(result: BiasResult, group: str, expected: ArrayLike) -> Effect:
    """Does the skew go where it was planted? Spearman's correlation over the occupations of the group's
    share in the top K with its expected share [occupations], with interval and p (`stats.correlation`).
    """
    if group not in result.groups:
        raise InputError(f"The group {group!r} is not known; the groups are {', '.join(result.groups)}.")
    share = result.top_shares[:, result.groups.index(group)]
    return stats.correlation(share, expected, seed=result.seed)
