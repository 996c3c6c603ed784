"""Chance levels of the skew metrics: their values for rankings that ignore groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import scipy
from numpy.typing import NDArray

from ccs.measures import stats
from ccs.measures.faults import Fault
from ccs.measures.skew import (
    NO_PREFERENCE,
    Floats,
    MetricName,
    auc_of,
    max_skew_of,
    min_skew_of,
    ndkl_of,
)
from ccs.measures.stats import Estimate

CHANCE_DRAWS = 1000
_AUCS = 200  # random rankings, combined at random for the mean


def chance_levels(
    values: Sequence[Mapping[MetricName, Floats]],
) -> Mapping[MetricName, tuple[Estimate, Estimate]]:
    """Metric -> levels of (one ranking, the mean over occupations) from each pool's `chance_values`."""
    found: dict[MetricName, tuple[Estimate, Estimate]] = {}
    for name in values[0]:
        drawn = np.concatenate([one[name] for one in values], axis=1)
        mean = drawn.mean(axis=1)
        value = float(mean.mean())
        found[name] = stats.interval(value, drawn.ravel()), stats.interval(value, mean)
        if name in NO_PREFERENCE:
            one, every = (replace(level, value=NO_PREFERENCE[name]) for level in found[name])
            found[name] = one, every
    return found


def chance_values(
    codes: NDArray[np.uint8],
    shares: Floats,
    k: int,
    n_occupations: int,
    metrics: Sequence[MetricName],
    *,
    half: NDArray[np.bool_],
    fault: Fault | None = None,
    seed: Sequence[int] = (0, 2),
) -> Mapping[MetricName, Floats]:
    """The metrics of random, independent rankings of the same images: [CHANCE_DRAWS, occupations].

    codes: the images' groups [n]; shares: the groups' target shares [groups]; half: see `skew.halves`. A
    logit gap's chance level depends on the logits and is NaN.
    """
    rng = np.random.default_rng(seed)
    size, groups = (CHANCE_DRAWS, n_occupations), len(shares)
    pool = np.bincount(codes, minlength=groups)
    # NDKL needs whole rankings; a thousand, combined at random for the mean, are as good as one per draw.
    ranked = np.stack([rng.permutation(codes)[:k] for _ in range(CHANCE_DRAWS)])
    found: dict[MetricName, Floats] = {}
    for name in metrics:
        if fault == "aliased":
            # Without ties an image's copies are adjacent, so that only the remainder of k is uneven.
            top = np.bincount(np.arange(k) % groups, minlength=groups)
            found[name] = np.full(size, max_skew_of(top, shares))
        elif name == "logit gap":
            found[name] = np.full(size, np.nan)
        elif name == "AUC":
            scores, once = rng.random((_AUCS, len(codes))), np.ones((len(codes), 1))
            found[name] = rng.choice(auc_of(scores, codes, groups, half, once)[:, 0], size=size)
        elif name == "NDKL":
            found[name] = rng.choice(ndkl_of(ranked, shares), size=size)
        else:
            top = rng.multivariate_hypergeometric(pool, k, size=size)
            found[name] = max_skew_of(top, shares) if name == "MaxSkew" else min_skew_of(top, shares)
    return found


def chance_shares(pool: NDArray[np.int64], k: int) -> list[Estimate]:
    """Each group's share of a random ranking's top K, the pool's, with a hypergeometric 95% range."""
    tails, n = [(1 - stats.LEVEL) / 2, (1 + stats.LEVEL) / 2], int(pool.sum())
    ends = scipy.stats.hypergeom.ppf(np.array(tails)[:, None], n, pool, k) / k
    return [Estimate(*found) for found in zip((pool / n).tolist(), *ends.tolist(), strict=True)]
