"""What `bias` measures of one plan's rankings: figures with chance levels and intervals, and differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from ccs.errors import InputError
from ccs.metrics import stats
from ccs.metrics.skew import INDIFFERENT, Fault, Floats, MetricName, ceiling
from ccs.metrics.stats import Effect, Estimate


@dataclass(frozen=True, kw_only=True, eq=False)
class Metric:
    """One metric over all prompts, in their order.

    `values`, `low`, `high`: float64 [prompts], with the interval from resampling images only. `mean`: over
    the prompts, resampling images and prompts. `chance`: of one random ranking; `chance_mean`: of the mean
    over as many independent random rankings as there are prompts. `draws`: float64 [draws, prompts], the
    resampled values; `mean_draws`: float64 [draws], their resampled mean.
    """

    values: Floats
    low: Floats
    high: Floats
    mean: Estimate
    chance: Estimate
    chance_mean: Estimate
    draws: Floats
    mean_draws: Floats


@dataclass(frozen=True)
class Figure(Estimate):
    """A metric's mean over the prompts, or its value for one of them, with its chance level.

    `ceiling`: the largest value that a MaxSkew could have; NaN for others, and with a fault.
    """

    chance: Estimate
    ceiling: float

    def times(self, factor: float) -> Self:
        """The figure scaled."""
        chance, ceiling = self.chance.times(factor), self.ceiling * factor
        return replace(super().times(factor), chance=chance, ceiling=ceiling)


@dataclass(frozen=True, kw_only=True, eq=False)
class BiasResult:
    """The figures of one plan's rankings, with every choice that they depend on.

    `metrics`: those asked for. `top`: int64 [prompts, groups], images of each group in the top K; `pool`:
    int64 [groups], images of each group; `pools`: int64 [prompts, groups], the same among those that the
    prompt ranks. `ties`: int64 [prompts], images outside the top K with the score of the last one inside.
    `mode`: "correct" or "as-published" (then `fault` names the fault that is reproduced).
    """

    metrics: Mapping[MetricName, Metric]
    groups: tuple[str, ...]
    pool: NDArray[np.int64]
    pools: NDArray[np.int64]
    top: NDArray[np.int64]
    ties: NDArray[np.int64]
    k: int
    n: int
    fault: Fault | None
    seed: int

    @property
    def mode(self) -> Literal["correct", "as-published"]:
        return "correct" if self.fault is None else "as-published"

    @property
    def max_skew(self) -> Metric:
        return self.metrics["MaxSkew"]

    @property
    def top_shares(self) -> Floats:
        """Each group's share of the top K, [prompts, groups]."""
        return np.asarray(self.top / self.k, dtype=np.float64)

    @property
    def pool_shares(self) -> Floats:
        """Each group's share of the images that a prompt ranks, [prompts, groups]."""
        return np.asarray(self.pools / self.pools.sum(axis=1, keepdims=True), dtype=np.float64)

    @property
    def ceilings(self) -> Floats:
        """The largest MaxSkew that each prompt's ranking can reach, [prompts]."""
        return ceiling(self.pools, self.k)

    def figure(self, name: MetricName, prompt: int | None = None) -> Figure:
        """The metric's mean, or its value for a prompt."""
        metric = self.metrics[name]
        most = self.ceilings if name == "MaxSkew" and self.fault is None else np.full(len(self.top), np.nan)
        if prompt is None:
            return Figure(**vars(metric.mean), chance=metric.chance_mean, ceiling=float(most.mean()))
        value, low, high = (float(column[prompt]) for column in (metric.values, metric.low, metric.high))
        return Figure(value, low, high, metric.chance, float(most[prompt]))

    def chance_shares(self, prompt: int = 0) -> dict[str, Estimate]:
        """Each group's share of the top K of a random ranking, with a hypergeometric 95% range."""
        pool = self.pools[prompt]
        tails, n = [(1 - stats.LEVEL) / 2, (1 + stats.LEVEL) / 2], int(pool.sum())
        ends = scipy.stats.hypergeom.ppf(np.array(tails)[:, None], n, pool, self.k) / self.k
        columns = zip(self.groups, (pool / n).tolist(), *ends.tolist(), strict=True)
        return {name: Estimate(*figures) for name, *figures in columns}


def repeated(result: BiasResult, rows: ArrayLike) -> BiasResult:
    """The result with these rows of its prompts, whose means stay: prompts that are one text, each named.

    rows: int [names], the prompt of the result that each name stands for.
    """
    each = np.asarray(rows)
    metrics = {
        name: replace(
            metric,
            draws=metric.draws[:, each],
            **{column: getattr(metric, column)[each] for column in ("values", "low", "high")},
        )
        for name, metric in result.metrics.items()
    }
    tables = {"top": result.top[each], "ties": result.ties[each], "pools": result.pools[each]}
    return replace(result, metrics=metrics, **tables)


def compare(
    result: BiasResult, baseline: BiasResult, metric: MetricName = "MaxSkew", prompt: int | None = None
) -> Effect:
    """The metric's mean over the prompts (or one prompt's value) less the baseline's, paired.

    Both results must come from the same images, prompts, seed and number of draws, so that draw i has the
    same images in both; otherwise InputError. For the sum, multiply by the number of prompts.
    """
    ours, theirs = result.metrics[metric], baseline.metrics[metric]
    settings = [(side.seed, side.n, side.k, side.groups) for side in (result, baseline)]
    if settings[0] != settings[1] or ours.draws.shape != theirs.draws.shape:
        raise InputError(
            "Two bias results can be compared only for the same images, groups, k, seed and draws."
        )
    if prompt is None:
        return stats.effect(ours.mean.value - theirs.mean.value, ours.mean_draws - theirs.mean_draws)
    drawn = ours.draws[:, prompt] - theirs.draws[:, prompt]
    return stats.effect(float(ours.values[prompt] - theirs.values[prompt]), drawn)


def metric_of(
    values: Floats,
    draws: Floats,
    prompts: Floats,
    limits: tuple[float, float | Floats],
    chance: Estimate,
    chance_mean: Estimate,
) -> Metric:
    """The figures of values [prompts] and their resampled values [draws, prompts].

    prompts: [draws, prompts], each prompt's weight in the mean. limits: the lowest and the highest value that
    the metric can have, which its intervals keep to.
    """
    low, high = stats.intervals(values, draws, center=True)
    mean_draws = (draws * prompts[: len(draws)]).sum(axis=1)
    mean = stats.interval(float(values.mean()), mean_draws, center=True)
    least, most = np.minimum(limits[0], values), np.maximum(limits[1], values)  # despite rounding
    return Metric(
        values=values,
        low=np.maximum(low, least),
        high=np.minimum(high, most),
        mean=replace(mean, low=max(mean.low, float(least.mean())), high=min(mean.high, float(most.mean()))),
        chance=chance,
        chance_mean=chance_mean,
        draws=draws,
        mean_draws=mean_draws,
    )


def chance_levels(
    values: Sequence[Mapping[MetricName, Floats]],
) -> Mapping[MetricName, tuple[Estimate, Estimate]]:
    """Metric -> levels of (one ranking, the mean over prompts).

    values: of random rankings [draws, prompts], for some of the prompts after others.
    """
    found: dict[MetricName, tuple[Estimate, Estimate]] = {}
    for name in values[0]:
        drawn = np.concatenate([part[name] for part in values], axis=1)
        mean = drawn.mean(axis=1)
        value = float(mean.mean())
        single, several = stats.interval(value, drawn.ravel()), stats.interval(value, mean)
        if name in INDIFFERENT:
            single, several = (replace(level, value=INDIFFERENT[name]) for level in (single, several))
        found[name] = single, several
    return found
