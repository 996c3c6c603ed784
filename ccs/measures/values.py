"""Values of bias metrics, for images as they are (`means`) and resampled (`values_of`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.measures import ranking, resampling
from ccs.measures.chance import Question
from ccs.measures.skew import (
    PREFERENCE_OF,
    PREFERENCES,
    MetricName,
    Target,
    check_k,
    halves,
    max_skew_of,
    ndkl_of,
    target_shares,
)

HALVES = 3  # part of the seed of the halves of the images


def means(
    image_embeddings: ArrayLike,
    occupation_embeddings: ArrayLike,
    groups: ArrayLike,
    k: int,
    metrics: Sequence[MetricName] = ("MaxSkew",),
    *,
    target: Target = "pool",
    pools: NDArray[np.bool_] | None = None,
    units: ArrayLike | None = None,
    logit_scale: float = 1.0,
    seed: int | Sequence[int] = 0,
) -> dict[MetricName, float]:
    """Means over the occupations without intervals, for many sets of heads: "MaxSkew" and PREFERENCES.

    They equal those of `bias.measure` for the same pools, units and seed.
    """
    if pools is not None:
        images, texts, labels = map(np.asarray, (image_embeddings, occupation_embeddings, groups))
        marks = None if units is None else np.asarray(units)
        own = [
            means(
                images[pool], texts[o : o + 1], labels[pool], k, metrics, target=target,
                units=None if marks is None else marks[pool], logit_scale=logit_scale,
                seed=[*np.atleast_1d(seed).tolist(), 4, o],
            )
            for o, pool in enumerate(pools)
        ]  # fmt: skip
        return {name: float(np.mean([one[name] for one in own])) for name in metrics}
    scores = ranking.cosines(occupation_embeddings, image_embeddings)
    codes = np.unique(np.asarray(groups, dtype=np.str_), return_inverse=True)[1]
    pool, once = np.bincount(codes), np.ones((len(codes), 1))
    found: dict[MetricName, float] = {}
    for name in metrics:
        if name == "MaxSkew":
            top = counts(codes[ranking.top(scores, check_k(k, len(codes)))], len(pool))
            values = max_skew_of(top, target_shares(pool, target))
        else:
            half = halves(codes, [*np.atleast_1d(seed).tolist(), HALVES], units)
            values = PREFERENCE_OF[name](scores, codes, len(pool), half, once)
            values = values * (logit_scale if name == "logit gap" else 1)
        found[name] = float(values.mean())
    return found


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
    for name in PREFERENCES:
        if name in asked.metrics:
            some = images.weights[:, : resampling.FEW if name == "AUC" else None]
            weights = np.concatenate([np.ones((len(some), 1)), some], axis=1)
            both = PREFERENCE_OF[name](scores, asked.codes, groups, asked.half, weights)
            both *= asked.logit_scale if name == "logit gap" else 1
            found[name] = both[:, 0], both[:, 1:]
    return found


def counts(ranked: NDArray[np.integer], n_groups: int) -> NDArray[np.int64]:
    """The number of images of each group [rankings, groups] among ranked codes [rankings, k]."""
    return np.stack([(ranked == g).sum(axis=1) for g in range(n_groups)], axis=1)
