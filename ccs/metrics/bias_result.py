"""Bias metrics of one ablation set's rankings, and paired comparisons of two."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from ccs.errors import InputError
from ccs.metrics import stats
from ccs.metrics.skew import Floats, MetricName, ceiling
from ccs.metrics.stats import Effect, Estimate


@dataclass(frozen=True, eq=False)
class Metric:
    """One metric over all prompts, in their order.

    Attributes:
        values: Value for each prompt, float64 [prompts].
        low: Lower end of each value's interval [prompts], from resampling images only.
        high: Upper end of each value's interval [prompts].
        mean: Mean over the prompts, with an interval from resampling images and prompts.
        chance: Chance level of one random ranking.
        chance_mean: Chance level of the mean over as many independent random rankings as there are prompts.
        draws: Resampled values [draws, prompts].
        mean_draws: Resampled means over prompts [draws].
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
    """A metric's mean over the prompts, or its value for one of them.

    Attributes:
        chance: Chance level: the metric's value for random rankings.
        ceiling: Largest possible MaxSkew. NaN for other metrics, and if `as_published`.
    """

    chance: Estimate
    ceiling: float

    def times(self, factor: float) -> Self:
        """Scale the result."""
        chance, ceiling = self.chance.times(factor), self.ceiling * factor
        return replace(super().times(factor), chance=chance, ceiling=ceiling)


@dataclass(frozen=True, kw_only=True, eq=False)
class BiasResult:
    """The bias metrics of one ablation set's rankings, with all choices that they depend on.

    Attributes:
        metrics: Name -> result of each requested metric.
        preferred: Metric -> position in `groups` of each prompt's preferred group [prompts]: the most
            overrepresented in the top K, or the one with the highest mean logit or AUC. Only for metrics that
            prefer a group.
        groups: Names of the groups.
        pools: Number of images of each group among those that the prompt ranks [prompts, groups].
        top: Number of images of each group in the top K [prompts, groups].
        ties: Number of images outside the top K with the score of the last image inside [prompts].
        k: Length of the top list.
        n: Number of images.
        as_published: Whether the fault of the paper's code is reproduced. Then `mode` is "as-published".
        seed: Random seed for resampling.
        within_units: Mean MaxSkew over the prompts, with its 95% range, if groups are shuffled within each
            unit. None if it wasn't requested, or no unit has several groups.
    """

    metrics: Mapping[MetricName, Metric]
    preferred: Mapping[MetricName, NDArray[np.intp]]
    groups: tuple[str, ...]
    pools: NDArray[np.int64]
    top: NDArray[np.int64]
    ties: NDArray[np.int64]
    k: int
    n: int
    as_published: bool
    seed: int
    within_units: Estimate | None = None

    @property
    def mode(self) -> Literal["correct", "as-published"]:
        """How MaxSkew was computed: correctly, or as by the paper's code."""
        return "as-published" if self.as_published else "correct"

    @property
    def max_skew(self) -> Metric:
        """MaxSkew of each prompt."""
        return self.metrics["MaxSkew"]

    @property
    def top_shares(self) -> Floats:
        """Each group's share of the top K, [prompts, groups]."""
        return np.asarray(self.top / self.k, dtype=np.float64)

    def figure(self, name: MetricName, prompt: int | None = None) -> Figure:
        """Return a metric with its interval, chance level, and ceiling.

        Args:
            name: Name of the metric.
            prompt: Position of a prompt. By default the mean over prompts.
        """
        metric, highest = self.metrics[name], np.full(len(self.top), np.nan)
        if name == "MaxSkew" and not self.as_published:
            highest = ceiling(self.pools, self.k)
        if prompt is None:
            return Figure(**vars(metric.mean), chance=metric.chance_mean, ceiling=float(highest.mean()))
        value, low, high = (float(column[prompt]) for column in (metric.values, metric.low, metric.high))
        return Figure(value, low, high, metric.chance, float(highest[prompt]))

    def preferred_group(self, name: MetricName, prompt: int | None) -> tuple[str, float]:
        """Return the group that a prompt prefers.

        Args:
            name: Name of the metric that decides.
            prompt: Position of a prompt, or None for the mean.

        Returns:
            The group and its share of the top K; "" and NaN for a metric that compares no single group.
        """
        if prompt is None or name not in self.preferred:
            return "", float("nan")
        group = int(self.preferred[name][prompt])
        return self.groups[group], float(self.top_shares[prompt, group])

    def chance_shares(self, prompt: int = 0) -> dict[str, Estimate]:
        """Return each group's share of the top K of a random ranking, with a hypergeometric 95% range."""
        from scipy.stats import hypergeom  # takes half a second to import

        pool = self.pools[prompt]
        tails, n = [(1 - stats.LEVEL) / 2, (1 + stats.LEVEL) / 2], int(pool.sum())
        ends = hypergeom.ppf(np.array(tails)[:, None], n, pool, self.k) / self.k
        columns = zip(self.groups, (pool / n).tolist(), *ends.tolist(), strict=True)
        return {name: Estimate(*figures) for name, *figures in columns}


def compare_bias(
    result: BiasResult, baseline: BiasResult, metric: MetricName = "MaxSkew", prompt: int | None = None
) -> Effect:
    """Compare two ablation sets by paired resampling.

    Args:
        result: Result of one ablation set.
        baseline: Result of another, for the same images, prompts, seed, and number of draws. Draw i then has
            the same images in both.
        metric: Name of the metric to compare.
        prompt: Position of a prompt. By default the mean over prompts.

    Returns:
        The result minus the baseline; for the sum over prompts, multiply by their number.

    Raises:
        InputError: If the two were measured with different settings.
    """
    sides = [side.metrics[metric] for side in (result, baseline)]
    settings = [(side.seed, side.n, side.k, side.groups) for side in (result, baseline)]
    if settings[0] != settings[1] or sides[0].draws.shape != sides[1].draws.shape:
        raise InputError("Bias results can be compared only for the same images, groups, k, seed, and draws.")
    if prompt is None:
        values, draws = [side.mean.value for side in sides], [side.mean_draws for side in sides]
    else:
        values, draws = [side.values[prompt] for side in sides], [side.draws[:, prompt] for side in sides]
    return stats.effect(float(values[0] - values[1]), draws[0] - draws[1])
