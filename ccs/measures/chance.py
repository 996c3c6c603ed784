"""Questions (occupations with the images they rank), and the chance levels of the skew metrics for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from ccs.measures import faults, resampling, stats
from ccs.measures.skew import (
    NO_PREFERENCE,
    Floats,
    MetricName,
    Target,
    auc_of,
    max_skew_of,
    ndkl_of,
    target_shares,
)
from ccs.measures.stats import Estimate

CHANCE_DRAWS = 1000
_AUCS = 200  # random rankings, combined at random for the mean


@dataclass(frozen=True, kw_only=True)
class Question:
    """Occupations that rank the same images, with everything that is the same for all plans."""

    names: tuple[str, ...]
    occupations: NDArray[np.intp]
    images: NDArray[np.intp]
    codes: NDArray[np.uint8]
    pool: NDArray[np.int64]
    k: int
    target: Target
    fault: faults.Fault | None
    metrics: tuple[MetricName, ...]
    draws: resampling.Draws
    half: NDArray[np.bool_]
    logit_scale: float
    seed: list[int]

    def shares(self, pool: ArrayLike) -> Floats:
        """Target shares [..., groups] for the pool's counts, with the fault, if any."""
        counts = np.asarray(pool, dtype=np.float64)
        if self.fault == "order":
            counts = counts[..., faults.first_appearance(self.codes)]
        if self.fault == "aliased":
            counts = np.ones_like(counts)
        return target_shares(counts, self.target)

    def random(self) -> dict[MetricName, Floats]:
        """The metrics of random, independent rankings of the images: [CHANCE_DRAWS, occupations].

        A logit gap's chance level depends on the logits and is NaN.
        """
        rng = np.random.default_rng([*self.seed, 2])
        size, groups, shares = (CHANCE_DRAWS, len(self.occupations)), len(self.names), self.shares(self.pool)
        # NDKL needs whole rankings; a thousand, combined at random for the mean, are as good as one per draw.
        ranked = np.stack([rng.permutation(self.codes)[: self.k] for _ in range(CHANCE_DRAWS)])
        found: dict[MetricName, Floats] = {}
        for name in self.metrics:
            if self.fault == "aliased":
                # Without ties an image's copies are adjacent, so that only the remainder of k is uneven.
                top = np.bincount(np.arange(self.k) % groups, minlength=groups)
                found[name] = np.full(size, max_skew_of(top, shares))
            elif name == "logit gap":
                found[name] = np.full(size, np.nan)
            elif name == "AUC":
                scores, once = rng.random((_AUCS, len(self.codes))), np.ones((len(self.codes), 1))
                drawn = auc_of(scores, self.codes, groups, self.half, once)[:, 0]
                found[name] = rng.choice(drawn, size=size)
            elif name == "NDKL":
                found[name] = rng.choice(ndkl_of(ranked, shares), size=size)
            else:
                top = rng.multivariate_hypergeometric(self.pool, self.k, size=size)
                found[name] = max_skew_of(top, shares)
        return found


def chance_levels(
    values: Sequence[Mapping[MetricName, Floats]],
) -> Mapping[MetricName, tuple[Estimate, Estimate]]:
    """Metric -> levels of (one ranking, the mean over occupations) from each pool's `Question.random`."""
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


def chance_shares(pool: NDArray[np.int64], k: int) -> list[Estimate]:
    """Each group's share of a random ranking's top K, the pool's, with a hypergeometric 95% range."""
    tails, n = [(1 - stats.LEVEL) / 2, (1 + stats.LEVEL) / 2], int(pool.sum())
    ends = scipy.stats.hypergeom.ppf(np.array(tails)[:, None], n, pool, k) / k
    return [Estimate(*found) for found in zip((pool / n).tolist(), *ends.tolist(), strict=True)]
