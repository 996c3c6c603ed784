"""Skew metrics of several plans' image embeddings, with chance levels and intervals."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from ccs.errors import InputError
from ccs.measures import faults, ranking, resampling, stats
from ccs.measures.bias.chance import chance_levels
from ccs.measures.bias.result import METRICS, BiasResult, Metric, MetricName
from ccs.measures.bias.setup import Setup, drawn_occupations
from ccs.measures.bias.top import counts
from ccs.measures.skew import Empty, Floats, Target, check_choice, check_k, max_skew_of, min_skew_of, ndkl_of
from ccs.measures.stats import Estimate

SOME = 16  # rankings whose draws one turn of a thread takes
_ALONE = threading.RLock()  # the limit of a BLAS's threads is the whole process's


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
        plans: one array [n, d] a plan, such as a list, an array [plans, n, d] or a generator (then three
            plans are in memory, two in work and the next). Rows need not be of unit length.
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
    setup = Setup(
        names=tuple(str(name) for name in names),
        codes=codes.astype(np.uint8),
        k=check_k(k, len(codes)),
        target=target,
        empty=empty,
        fault=fault,
        metrics=("MaxSkew",) if fault else metrics,
        images=resampling.draw_images(codes.astype(np.uint8), len(names), draws, seed),
        occupations=drawn_occupations(len(texts), draws, seed, resample_occupations),
        seed=seed,
    )
    # Two plans at a time: while one is ranked, which a single thread does, the other's draws are counted. The
    # matrix products are small and have one thread each; those of a BLAS would wait busily for the next one.
    with (
        _ALONE,
        threadpool_limits(1, user_api="blas"),
        ThreadPoolExecutor(2) as turns,
        ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads,
    ):
        levels = turns.submit(chance_levels, setup, len(texts))
        found: list[BiasResult] = []
        waiting: deque[Future[BiasResult]] = deque()
        for embeddings in plans:
            if len(waiting) == 2:
                found.append(waiting.popleft().result())
            waiting.append(turns.submit(_measure, setup, levels, embeddings, texts, threads))
        return found + [turn.result() for turn in waiting]


def _measure(
    setup: Setup,
    levels: Future[Mapping[MetricName, tuple[Estimate, Estimate]]],
    embeddings: ArrayLike,
    texts: NDArray[np.float64],
    threads: ThreadPoolExecutor,
) -> BiasResult:
    scores = ranking.cosines(texts, embeddings)
    if scores.shape[1] != len(setup.codes):
        raise InputError(f"There are {scores.shape[1]} image embeddings for {len(setup.codes)} groups.")
    order = ranking.top(scores, resampling.window(scores.shape[1], setup.k)[1])
    top = counts(setup.codes[order[:, : setup.k]], len(setup.names))
    last = np.take_along_axis(scores, order[:, setup.k - 1 : setup.k], axis=1)
    ties = (scores == last).sum(axis=1) - (
        np.take_along_axis(scores, order[:, : setup.k], axis=1) == last
    ).sum(axis=1)
    if setup.fault == "aliased":
        top = faults.aliased_top(embeddings, texts, len(setup.names), setup.k)
    measured, chance = _values(setup, scores, order, top, threads), levels.result()
    return BiasResult(
        metrics={name: _metric(*measured[name], setup.occupations, *chance[name]) for name in setup.metrics},
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


def _values(
    setup: Setup,
    scores: NDArray[np.float32],
    order: NDArray[np.intp],
    top: NDArray[np.int64],
    threads: ThreadPoolExecutor,
) -> dict[MetricName, tuple[Floats, Floats]]:
    """Each metric [occupations], and with the images drawn again [draws, occupations]."""
    shares, drawn_shares = setup.shares(setup.pool), setup.shares(setup.images.pool)
    if setup.fault == "aliased":
        # Its figures are ties alone, and a drawn pool is full of ties: only occupations are drawn again.
        still = max_skew_of(top, shares)
        return {"MaxSkew": (still, np.tile(still, (len(drawn_shares), 1)))}
    # A few rankings at a time: enough to be worth waking a thread, few enough for the processor's cache.
    parts = [slice(i, i + SOME) for i in range(0, len(scores), SOME)]
    found: dict[MetricName, tuple[Floats, Floats]] = {}
    if set(setup.metrics) - {"NDKL"}:

        def redrawn_counts(rows: slice) -> Floats:
            return resampling.top_counts(setup.images, scores[rows], order[rows], setup.k)

        drawn = np.concatenate(list(threads.map(redrawn_counts, parts)))
        if "MaxSkew" in setup.metrics:
            found["MaxSkew"] = max_skew_of(top, shares), max_skew_of(drawn, drawn_shares).T
        if "MinSkew" in setup.metrics:
            smallest = min_skew_of(drawn, drawn_shares, setup.empty).T
            found["MinSkew"] = min_skew_of(top, shares, setup.empty), smallest
    if "NDKL" in setup.metrics:

        def redrawn_ndkl(rows: slice) -> Floats:
            tops = resampling.first_tops(setup.images, scores[rows], order[rows], setup.k)
            (some, few, k) = tops.shape
            return ndkl_of(tops.reshape(-1, k), np.tile(drawn_shares[:few], (some, 1))).reshape(some, few)

        redrawn = np.concatenate(list(threads.map(redrawn_ndkl, parts)))
        found["NDKL"] = ndkl_of(setup.codes[order[:, : setup.k]], shares), redrawn.T
    return found


def _metric(
    values: Floats, draws: Floats, occupations: Floats, chance: Estimate, chance_mean: Estimate
) -> Metric:
    n = len(values)
    around = stats.intervals(values, draws, center=True)
    weights = occupations[: len(draws)]
    mean_draws = (np.where(weights > 0, draws, 0.0) * weights).sum(axis=1)  # one not drawn may be infinite
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
