"""MaxSkew, MinSkew and NDKL of a model's rankings of people for occupations, beside what chance gives.

For each occupation the images are ranked by cosine with the occupation's text embedding; `skew` holds the
formulas and what an empty group counts as. Every figure comes with
- a chance level: rankings drawn at random, without regard to groups (mean, 2.5 and 97.5%);
- a 95% interval: images and occupations drawn again with replacement, the same draws for every plan and
  metric, so that differences between plans are paired (`compare`).
Equal scores are put in the images' order, and `BiasResult.ties` says where that decided who is in the top K.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs import faults, ranking, resampling, stats
from ccs.errors import InputError
from ccs.skew import (
    Empty,
    Floats,
    Target,
    check_choice,
    check_k,
    max_skew,
    max_skew_of,
    min_skew,
    min_skew_of,
    ndkl,
    ndkl_of,
    target_shares,
)
from ccs.stats import Effect, Estimate

__all__ = [
    "GENDERS",
    "METRICS",
    "RACES_SEVEN",
    "RACES_SIX",
    "BiasResult",
    "Metric",
    "above_chance",
    "alignment",
    "compare",
    "max_skew",
    "mean_max_skew",
    "measure",
    "measure_plans",
    "merge_groups",
    "min_skew",
    "ndkl",
]

MetricName = Literal["MaxSkew", "MinSkew", "NDKL"]
METRICS: tuple[MetricName, ...] = ("MaxSkew", "MinSkew", "NDKL")

# FairFace's own two genders and seven races, and the study's six races (East and Southeast Asian are one).
GENDERS: Mapping[str, str] = {"Male": "Male", "Female": "Female"}
RACES_SEVEN: Mapping[str, str] = {
    "Black": "Black",
    "East Asian": "East Asian",
    "Indian": "Indian",
    "Latino_Hispanic": "Latino",
    "Middle Eastern": "Middle Eastern",
    "Southeast Asian": "Southeast Asian",
    "White": "White",
}
RACES_SIX: Mapping[str, str] = {**RACES_SEVEN, "East Asian": "Asian", "Southeast Asian": "Asian"}

CHANCE_DRAWS = 1000


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


def merge_groups(groups: Iterable[str], definition: Mapping[str, str]) -> NDArray[np.str_]:
    """Groups renamed, and so merged, by a definition such as RACES_SIX; a group it lacks is an InputError."""
    names = [str(name) for name in groups]
    for name in names:
        if name not in definition:
            raise InputError(f"The group {name!r} is not defined; the groups are {', '.join(definition)}.")
    return np.array([definition[name] for name in names], dtype=np.str_)


def measure(
    image_embeddings: ArrayLike,
    occupation_embeddings: ArrayLike,
    groups: ArrayLike,
    k: int,
    target: Target = "pool",
    seed: int = 0,
    **settings: object,
) -> BiasResult:
    """`measure_plans` for one plan: image embeddings [n, d]. `settings` are its other keyword arguments."""
    return measure_plans(
        [image_embeddings],
        occupation_embeddings,
        groups,
        k,
        target=target,
        seed=seed,
        **settings,  # type: ignore[arg-type]
    )[0]


def measure_plans(
    plans: Iterable[ArrayLike],
    occupation_embeddings: ArrayLike,
    groups: ArrayLike,
    k: int,
    *,
    target: Target = "pool",
    empty: Empty = "smoothed",
    metrics: tuple[MetricName, ...] = METRICS,
    fault: faults.Fault | None = None,
    draws: int = 500,
    resample_occupations: bool = True,
    seed: int = 0,
) -> list[BiasResult]:
    """Skew metrics of several plans' image embeddings for the same images and occupations.

    Args:
        plans: one array [n, d] a plan, such as a list, an array [plans, n, d] or a generator (then only one
        plan
            is in memory). Rows need not be of unit length; cosines are taken.
        occupation_embeddings: [o, d], one row an occupation (templates already averaged).
        groups: [n] strings, one an image.
        k: cut-off of the ranking.
        target: "pool" or "uniform", what a fair share is.
        empty: what an empty group counts as in MinSkew, see `skew`.
        fault: reproduces a fault of the released code (`faults`), for MaxSkew alone.
        draws: resampled pools for the intervals. NDKL, which reads every rank, has the first 32 of them and,
            from their spread, a normal interval.
        resample_occupations: whether the interval of mean and sum is for occupations such as these too.

    The intervals are centered percentiles (`stats.interval`), as resampling by itself raises a MaxSkew.
    InputError: k below 1 or above n, fewer than two groups, embeddings that do not fit.
    """
    for name, value, allowed in (("target", target, Target), ("policy for empty groups", empty, Empty)):
        check_choice(value, allowed, name)
    texts = ranking.finite_rows(occupation_embeddings, "occupation embeddings")
    labels = np.asarray(groups, dtype=np.str_)
    names, codes = np.unique(labels, return_inverse=True)
    if labels.ndim != 1 or not 2 <= len(names) <= 255:
        raise InputError(f"A skew needs 2 to 255 groups, one an image, but the images have {len(names)}.")
    setup = _Setup(
        names=tuple(str(name) for name in names),
        codes=codes.astype(np.uint8),
        k=check_k(k, len(codes)),
        target=target,
        empty=empty,
        fault=fault,
        metrics=("MaxSkew",) if fault else metrics,
        images=resampling.draw_images(codes.astype(np.uint8), len(names), draws, seed),
        occupations=_drawn_occupations(len(texts), draws, seed, resample_occupations),
        seed=seed,
    )
    chance = _chance(setup, len(texts))
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
        return [_measure(setup, chance, embeddings, texts, threads) for embeddings in plans]


@dataclass(frozen=True, kw_only=True)
class _Setup:
    """What all plans share."""

    names: tuple[str, ...]
    codes: NDArray[np.uint8]
    k: int
    target: Target
    empty: Empty
    fault: faults.Fault | None
    metrics: tuple[MetricName, ...]
    images: resampling.Draws
    occupations: Floats  # [draws, occupations], weights that sum to 1
    seed: int

    @property
    def pool(self) -> NDArray[np.int64]:
        return np.bincount(self.codes, minlength=len(self.names))

    def shares(self, pool: ArrayLike) -> Floats:
        """Target shares [..., groups] for the pool's counts, faults included."""
        counts = np.asarray(pool, dtype=np.float64)
        if self.fault == "order":
            counts = counts[..., faults.first_appearance(self.codes)]
        if self.fault == "aliased":
            counts = np.ones_like(counts)
        return target_shares(counts, self.target)

    def values(self, name: MetricName, top: ArrayLike, ranked: NDArray[np.uint8], shares: Floats) -> Floats:
        """The metric from counts in the top k [..., groups] or, for NDKL, group codes in ranked order [...,
        k].
        """
        if name == "MaxSkew":
            return max_skew_of(top, shares)
        return min_skew_of(top, shares, self.empty) if name == "MinSkew" else ndkl_of(ranked, shares)


def _drawn_occupations(n: int, draws: int, seed: int, resample: bool) -> Floats:
    even = np.full((draws, n), 1 / n)
    if not resample:
        return even
    drawn: Floats = np.random.default_rng([seed, 1]).multinomial(n, even[0], size=draws) / n
    return drawn


def _chance(setup: _Setup, n_occupations: int) -> dict[MetricName, tuple[Estimate, Estimate]]:
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
            values = setup.values(name, top, ranked, shares)
        single, mean = values.ravel(), values.mean(axis=1)
        found[name] = stats.interval(float(mean.mean()), single), stats.interval(float(mean.mean()), mean)
    return found


def _measure(
    setup: _Setup,
    chance: Mapping[MetricName, tuple[Estimate, Estimate]],
    embeddings: ArrayLike,
    texts: NDArray[np.float64],
    threads: ThreadPoolExecutor,
) -> BiasResult:
    scores = ranking.cosines(texts, embeddings)
    if scores.shape[1] != len(setup.codes):
        raise InputError(f"There are {scores.shape[1]} image embeddings for {len(setup.codes)} groups.")
    order = ranking.top(scores, resampling.window(scores.shape[1], setup.k)[1])
    ranked = setup.codes[order[:, : setup.k]]
    top = _counts(ranked, len(setup.names))
    last = np.take_along_axis(scores, order[:, setup.k - 1 : setup.k], axis=1)
    ties = (scores == last).sum(axis=1) - (
        np.take_along_axis(scores, order[:, : setup.k], axis=1) == last
    ).sum(axis=1)
    if setup.fault == "aliased":
        top = faults.aliased_top(embeddings, texts, len(setup.names), setup.k)
    redrawn = _redrawn(setup, scores, order, top, threads)
    metrics = {}
    for name in setup.metrics:
        values = setup.values(name, top, ranked, setup.shares(setup.pool))
        metrics[name] = _metric(values, redrawn[name], setup.occupations, *chance[name])
    return BiasResult(
        metrics=metrics,
        groups=setup.names,
        pool=setup.pool,
        top=top,
        ties=ties,
        k=setup.k,
        n=scores.shape[1],
        target=setup.target,
        empty=setup.empty,
        fault=setup.fault,
        seed=setup.seed,
    )


def _redrawn(
    setup: _Setup,
    scores: NDArray[np.float32],
    order: NDArray[np.intp],
    top: NDArray[np.int64],
    threads: ThreadPoolExecutor,
) -> dict[MetricName, Floats]:
    """Each metric [draws, occupations] when the images are drawn again."""
    shares = setup.shares(setup.images.pool)
    if setup.fault == "aliased":
        # Its figures are ties alone, and a drawn pool is full of ties: only occupations are drawn again.
        still = max_skew_of(top, setup.shares(setup.pool))
        return {"MaxSkew": np.tile(still, (len(shares), 1))}
    found: dict[MetricName, Floats] = {}
    if set(setup.metrics) - {"NDKL"}:
        counts = resampling.top_counts(setup.images, scores, order, setup.k, threads)
        if "MaxSkew" in setup.metrics:
            found["MaxSkew"] = max_skew_of(counts, shares).T
        if "MinSkew" in setup.metrics:
            found["MinSkew"] = min_skew_of(counts, shares, setup.empty).T
    if "NDKL" in setup.metrics:

        def some(rows: range) -> Floats:
            codes = [resampling.top_codes(setup.images, scores[i], order[i], setup.k) for i in rows]
            drawn = np.tile(shares[: len(codes[0])], (len(rows), 1))
            return ndkl_of(np.concatenate(codes), drawn).reshape(len(rows), -1)

        # A few rankings at a time: enough to be worth a call, few enough for the processor's cache.
        n = len(scores)
        parts = threads.map(some, (range(i, min(i + 4, n)) for i in range(0, n, 4)))
        found["NDKL"] = np.concatenate(list(parts)).T
    return found


def _metric(
    values: Floats, draws: Floats, occupations: Floats, chance: Estimate, chance_mean: Estimate
) -> Metric:
    n = len(values)
    around = [
        stats.interval(value, column, center=True) for value, column in zip(values, draws.T, strict=True)
    ]
    mean_draws = (draws * occupations[: len(draws)]).sum(axis=1)
    mean = stats.interval(float(values.mean()), mean_draws, center=True)
    return Metric(
        values=values,
        low=np.array([one.low for one in around]),
        high=np.array([one.high for one in around]),
        mean=mean,
        sum=_times(mean, n),
        chance=chance,
        chance_mean=chance_mean,
        chance_sum=_times(chance_mean, n),
        draws=draws,
        mean_draws=mean_draws,
    )


def _times(estimate: Estimate, factor: int) -> Estimate:
    return Estimate(estimate.value * factor, estimate.low * factor, estimate.high * factor)


def compare(
    result: BiasResult, baseline: BiasResult, metric: MetricName = "MaxSkew", occupation: int | None = None
) -> Effect:
    """The metric's mean over the occupations (or one occupation's value) less the baseline's: paired
    bootstrap.

    Both results must come from the same images, occupations, seed and number of draws, so that draw i drew
    the same images for both; otherwise InputError. For the sum multiply by the number of occupations.
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
        return stats.effect(ours.mean.value - theirs.mean.value, ours.mean_draws - theirs.mean_draws)
    difference = float(ours.values[occupation] - theirs.values[occupation])
    return stats.effect(difference, ours.draws[:, occupation] - theirs.draws[:, occupation])


def alignment(result: BiasResult, group: str, expected: ArrayLike) -> Effect:
    """Does the skew go where it was planted? Spearman's correlation over the occupations of the group's
    share in the top K with its expected share [occupations], with interval and p (`stats.correlation`).
    """
    if group not in result.groups:
        raise InputError(f"The group {group!r} is not known; the groups are {', '.join(result.groups)}.")
    share = result.top[:, result.groups.index(group)] / result.k
    return stats.correlation(share, expected, seed=result.seed)


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
    order, codes, shares = _ranked(image_embeddings, occupation_embeddings, groups, k, target)

    def mean(labels: NDArray[np.intp]) -> float:
        return float(max_skew_of(_counts(labels[order], shares.size), shares).mean())

    rng = np.random.default_rng(seed)
    value = mean(codes)
    null = np.array([mean(rng.permutation(codes)) for _ in range(permutations)])
    low, high = np.quantile(null, [0.025, 0.975])
    p_value = (1 + int((null >= value - 1e-12).sum())) / (1 + permutations)
    return Effect(value - float(null.mean()), value - float(high), value - float(low), p_value)


def mean_max_skew(
    image_embeddings: ArrayLike,
    occupation_embeddings: ArrayLike,
    groups: ArrayLike,
    k: int,
    *,
    target: Target = "pool",
) -> float:
    """The mean MaxSkew over the occupations and nothing else: for a search, which asks for it often."""
    order, codes, shares = _ranked(image_embeddings, occupation_embeddings, groups, k, target)
    return float(max_skew_of(_counts(codes[order], shares.size), shares).mean())


def _ranked(
    image_embeddings: ArrayLike, occupation_embeddings: ArrayLike, groups: ArrayLike, k: int, target: Target
) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
    """(top k images [occupations, k], group codes [images], target shares [groups])."""
    scores = ranking.cosines(occupation_embeddings, image_embeddings)
    codes = np.unique(np.asarray(groups, dtype=np.str_), return_inverse=True)[1]
    order = ranking.top(scores, check_k(k, len(codes)))
    return order, codes, target_shares(np.bincount(codes), target)


def _counts(ranked: NDArray[np.integer], n_groups: int) -> NDArray[np.int64]:
    """Images of each group [rankings, groups] among ranked codes [rankings, k]."""
    return np.stack([(ranked == g).sum(axis=1) for g in range(n_groups)], axis=1)
