"""Occupations with the images that they rank: values of the bias metrics, and their chance levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from ccs.measures import faults, ranking, resampling, stats
from ccs.measures.skew import (
    NO_PREFERENCE,
    PLAIN,
    PREFERENCES,
    Floats,
    MetricName,
    check_k,
    halves,
    max_skew_of,
    ndkl_of,
    preference,
    target_shares,
)
from ccs.measures.stats import Estimate

CHANCE_DRAWS = 1000
HALVES = 3  # part of the seed of the halves of the images
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
            # Group codes in the order in which they first appear in the images' order.
            counts = counts[..., np.argsort(np.unique(self.codes, return_index=True)[1])]
        if self.fault == "aliased":
            counts = np.ones_like(counts)
        return target_shares(counts)

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
            elif name.endswith("logit gap"):
                found[name] = np.full(size, np.nan)
            elif name.endswith("AUC"):
                scores, once = rng.random((_AUCS, len(self.codes))), np.ones((len(self.codes), 1))
                drawn = preference(name, scores, self.codes, groups, self.half, once)[:, 0]
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


def means(
    image_embeddings: ArrayLike,
    occupation_embeddings: ArrayLike,
    groups: ArrayLike,
    k: int,
    metrics: Sequence[MetricName] = ("MaxSkew",),
    *,
    pools: NDArray[np.bool_] | None = None,
    units: ArrayLike | None = None,
    logit_scale: float = 1.0,
    seed: int = 0,
) -> dict[MetricName, float]:
    """Means over the occupations without intervals, for many sets of heads: "MaxSkew" and PREFERENCES.

    They equal those of `bias.measure` for the same pools, units and seed.
    """
    images, texts = np.asarray(image_embeddings), np.asarray(occupation_embeddings)
    labels, marks = np.asarray(groups, dtype=np.str_), None if units is None else np.asarray(units)
    every: list[tuple[Any, Any, list[int]]] = [(slice(None), slice(None), [seed])]
    if pools is not None:
        every = [([o], pool, [seed, 4, o]) for o, pool in enumerate(pools)]
    found: dict[MetricName, list[Floats]] = {name: [] for name in metrics}
    for occupations, ranked, own_seed in every:
        scores = ranking.cosines(texts[occupations], images[ranked])
        codes = np.unique(labels[ranked], return_inverse=True)[1]
        pool, once = np.bincount(codes), np.ones((len(codes), 1))
        for name in metrics:
            if name == "MaxSkew":
                top = counts(codes[ranking.top(scores, check_k(k, len(codes)))], len(pool))
                values = max_skew_of(top, target_shares(pool))
            else:
                half = halves(codes, [*own_seed, HALVES], None if marks is None else marks[ranked])
                values = preference(name, scores, codes, len(pool), half, once)
                values = values * (logit_scale if name.endswith("logit gap") else 1)
            found[name].append(values)
    return {name: float(np.concatenate(values).mean()) for name, values in found.items()}


def values_of(asked: Question, scores: NDArray[np.float32]) -> dict[str, Any]:
    """The `top` [rankings, groups] and `ties` [rankings] of some rankings, and the values of each metric.

    These are pairs: values [rankings], resampled values [rankings, draws].
    """
    k, images, groups = asked.k, asked.draws, len(asked.names)
    order = ranking.top(scores, resampling.window(scores.shape[1], k)[1])
    inside = np.take_along_axis(scores, order[:, :k], axis=1)
    last = inside[:, -1:]
    top = counts(asked.codes[order[:, :k]], groups)
    found: dict[str, Any] = {"top": top, "ties": (scores == last).sum(axis=1) - (inside == last).sum(axis=1)}
    if asked.fault == "aliased":
        return found
    shares, drawn_shares = asked.shares(asked.pool), asked.shares(images.pool)
    if "MaxSkew" in asked.metrics:
        drawn = resampling.top_counts(images, scores, order, k)
        found["MaxSkew"] = max_skew_of(top, shares), max_skew_of(drawn, drawn_shares)
    if "NDKL" in asked.metrics:
        tops = resampling.first_tops(images, scores, order, k)
        rankings, few, _ = tops.shape
        redrawn = ndkl_of(tops.reshape(-1, k), np.tile(drawn_shares[:few], (rankings, 1)))
        found["NDKL"] = ndkl_of(asked.codes[order[:, :k]], shares), redrawn.reshape(rankings, few)
    for name in (*PLAIN, *PREFERENCES):
        if name in asked.metrics:
            some = images.weights[:, : resampling.FEW if name.endswith("AUC") else None]
            weights = np.concatenate([np.ones((len(some), 1)), some], axis=1)
            both = preference(name, scores, asked.codes, groups, asked.half, weights)
            both *= asked.logit_scale if name.endswith("logit gap") else 1
            found[name] = both[:, 0], both[:, 1:]
    return found


def counts(ranked: NDArray[np.integer], n_groups: int) -> NDArray[np.int64]:
    """The number of images of each group [rankings, groups] among ranked codes [rankings, k]."""
    return np.stack([(ranked == g).sum(axis=1) for g in range(n_groups)], axis=1)
