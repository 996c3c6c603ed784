"""The level that rankings reach which know nothing of groups."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy.stats
from numpy.typing import ArrayLike, NDArray

from ccs.measures import stats
from ccs.measures.bias.result import BiasResult, MetricName
from ccs.measures.bias.setup import Setup
from ccs.measures.bias.top import counts, ranked
from ccs.measures.skew import Target, max_skew_of, min_skew_of, ndkl_of
from ccs.measures.stats import Effect, Estimate

CHANCE_DRAWS = 1000


def chance_levels(setup: Setup, n_occupations: int) -> Mapping[MetricName, tuple[Estimate, Estimate]]:
    """(one ranking, mean over the occupations' rankings) where each ranking is random and independent."""
    rng = np.random.default_rng([setup.seed, 2])
    shares = setup.shares(setup.pool)
    size = (CHANCE_DRAWS, n_occupations)
    # NDKL needs whole rankings; a thousand, put together at random for the mean, are as good as all of them.
    ranked = np.stack([rng.permutation(setup.codes)[: setup.k] for _ in range(CHANCE_DRAWS)])
    found: dict[MetricName, tuple[Estimate, Estimate]] = {}
    for name in setup.metrics:
        if setup.fault == "aliased":
            # Without ties each image's copies stand together, so that only the remainder of k is uneven.
            groups = np.arange(setup.k) % len(setup.names)
            values = np.full(size, max_skew_of(np.bincount(groups, minlength=len(setup.names)), shares))
        elif name == "NDKL":
            values = rng.choice(ndkl_of(ranked, shares), size=size)
        else:
            top = rng.multivariate_hypergeometric(setup.pool, setup.k, size=size)
            values = max_skew_of(top, shares) if name == "MaxSkew" else min_skew_of(top, shares, setup.empty)
        single, mean = values.ravel(), values.mean(axis=1)
        found[name] = stats.interval(float(mean.mean()), single), stats.interval(float(mean.mean()), mean)
    return found


def above_chance(
    image_embeddings: ArrayLike,
    occupation_embeddings: ArrayLike,
    groups: ArrayLike,
    k: int,
    *,
    target: Target = "pool",
    permutations: int = 1000,
    seed: int = 0,
) -> Effect:
    """Mean MaxSkew less its chance level, where chance gives the images' groups to the images at random.

    The rankings stay as they are, so that occupations which rank the same images high stay alike; independent
    random rankings (`Metric.chance_mean`) have the same mean but too narrow a spread for a test. The interval
    is that of chance around the value; p is one-sided: the share of permutations that reach the value.
    """
    order, codes, shares = ranked(image_embeddings, occupation_embeddings, groups, k, target)

    def mean(labels: NDArray[np.intp]) -> float:
        return float(max_skew_of(counts(labels[order], shares.size), shares).mean())

    rng = np.random.default_rng(seed)
    value = mean(codes)
    null = np.array([mean(rng.permutation(codes)) for _ in range(permutations)])
    low, high = np.quantile(null, [0.025, 0.975])
    p_value = (1 + int((null >= value - 1e-12).sum())) / (1 + permutations)
    return Effect(value - float(null.mean()), value - float(high), value - float(low), p_value)


def chance_shares(result: BiasResult) -> dict[str, Estimate]:
    """Each group's share of a random ranking's top K: the pool's, with the 95% range (hypergeometric)."""
    tails = (1 - stats.LEVEL) / 2
    found = {}
    for group, count in zip(result.groups, result.pool.tolist(), strict=True):
        low, high = scipy.stats.hypergeom.ppf([tails, 1 - tails], result.n, count, result.k) / result.k
        found[group] = Estimate(count / result.n, float(low), float(high))
    return found
