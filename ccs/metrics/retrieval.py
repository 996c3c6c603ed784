"""Retrieval between clips (or images) and their captions: R@k, both ways.

A clip's embedding is the mean of its frames' unit embeddings. By default it is made unit again, and every
caption of a clip is a separate query; from clip to text any of the clip's captions is a hit. As published,
in the study, only the first caption of a clip counts, and the mean is not made unit again,
so that clips whose frames agree have an advantage. Ranks start at 1; equal scores rank in the order of the
items.

    >>> to_clip, to_text = measure([[1, 0], [0, 1]], [[1, 0.1], [0.1, 1]], [0, 1])
    >>> to_clip.metrics["R@1"].value    # a share of 1
    1.0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.errors import InputError
from ccs.metrics import ranking, stats
from ccs.metrics.stats import Effect, Estimate, Floats

Direction = Literal["text-to-clip", "clip-to-text"]
DEPTHS = (1, 5, 10, 50)
BATCH = 1024  # queries scored at a time, which bounds memory
METRICS = tuple(f"R@{depth}" for depth in DEPTHS)


@dataclass(frozen=True, kw_only=True, eq=False)
class Retrieval:
    """One direction's figures. `metrics`: name in METRICS -> estimate, R@k as shares of 1, over `n` queries.

    `ranks`: int64 [n], each query's best rank of a right answer, from 1. `clips`: int64 [n], the clip of each
    query; intervals resample clips with all their captions, since captions of one clip are not independent.
    """

    direction: Direction
    metrics: dict[str, Estimate]
    n: int
    ranks: NDArray[np.int64]
    clips: NDArray[np.int64]


def measure(
    clip_embeddings: ArrayLike,
    caption_embeddings: ArrayLike,
    clip_of_caption: ArrayLike,
    *,
    as_published: bool = False,
    draws: int = 1000,
    seed: int = 0,
) -> tuple[Retrieval, Retrieval]:
    """Both directions (text to clip, clip to text) from clips [c, d] and captions [m, d].

    `clip_of_caption` [m]: the index of each caption's clip.

    Clips are the means of their frames' unit embeddings: as published their length counts.
    InputError: a clip without a caption, a caption of an unknown clip, embeddings that do not fit.
    """
    owner = np.asarray(clip_of_caption)
    clips = ranking.finite_rows(clip_embeddings, "clip embeddings")
    captions = ranking.unit(caption_embeddings, "caption embeddings")
    if owner.shape != (len(captions),) or owner.dtype.kind not in "iu":
        raise InputError(f"Each of the {len(captions)} captions needs the number of its clip.")
    if owner.min() < 0 or owner.max() >= len(clips):
        raise InputError(
            f"Captions are of clips {owner.min()} to {owner.max()}, but there are {len(clips)} clips."
        )
    first = np.full(len(clips), -1)
    first[owner[::-1]] = np.arange(len(owner))[::-1]
    if (first < 0).any():
        raise InputError(f"Clip {int(np.argmin(first))} has no caption; leave it out.")
    if as_published:
        captions, owner = captions[first], np.arange(len(clips))
    else:
        clips = ranking.unit(clips, "clip embeddings")
    owner = owner.astype(np.int64)
    to_clip = _best_ranks(captions, clips, [np.array([clip]) for clip in owner])
    order = np.argsort(owner, kind="stable")
    own_captions = np.split(order, np.flatnonzero(np.diff(owner[order])) + 1)
    to_text = _best_ranks(clips, captions, own_captions)
    return (
        _summary("text-to-clip", to_clip, owner, draws, seed),
        _summary("clip-to-text", to_text, np.arange(len(clips)), draws, seed),
    )


def compare(ours: Retrieval, baseline: Retrieval, metric: str, *, draws: int = 2000, seed: int = 0) -> Effect:
    """The metric less the baseline's for the same queries, by paired bootstrap over clips. Raises InputError
    for an unknown metric, and for other queries or another direction.
    """
    if metric not in METRICS:
        raise InputError(f"The metric {metric!r} is not known; it is one of {', '.join(METRICS)}.")
    if ours.direction != baseline.direction or not np.array_equal(ours.clips, baseline.clips):
        raise InputError("Two retrievals can be compared only for the same queries in the same direction.")
    weights = _drawn_clips(ours.clips, draws, seed)
    first, second = (_draws(metric, one.ranks, weights) for one in (ours, baseline))
    return stats.effect(ours.metrics[metric].value - baseline.metrics[metric].value, first - second)


def _best_ranks(queries: Floats, items: Floats, right: Sequence[NDArray[np.integer]]) -> NDArray[np.int64]:
    """Rank [queries], from 1, of each query's best-ranked right item."""
    best = np.empty(len(queries), dtype=np.int64)
    for start in range(0, len(queries), BATCH):
        scores = ranking.products(queries[start : start + BATCH], items)
        # Of several right items the best has the largest score, then the lowest index.
        own = [right[start + row] for row in range(len(scores))]
        target = np.array([mine[np.argmax(scores[row, mine])] for row, mine in enumerate(own)])
        best[start : start + BATCH] = ranking.positions(scores, target) + 1
    return best


def _summary(
    direction: Direction, ranks: NDArray[np.int64], clips: NDArray[np.int64], draws: int, seed: int
) -> Retrieval:
    weights = _drawn_clips(clips, draws, seed)
    metrics = {
        name: stats.interval(float(_draws(name, ranks, np.ones((1, len(ranks)), dtype=np.int64))[0]), found)
        for name, found in ((name, _draws(name, ranks, weights)) for name in METRICS)
    }
    return Retrieval(direction=direction, metrics=metrics, n=len(ranks), ranks=ranks, clips=clips)


def _drawn_clips(clips: NDArray[np.int64], draws: int, seed: int) -> NDArray[np.int64]:
    """The count of each query [draws, n] when clips are resampled with all their captions."""
    n = int(clips.max()) + 1
    counts = stats.resampled_cells(np.ones(n, dtype=np.int64), draws, np.random.default_rng(seed))
    return counts[:, clips]


def _draws(metric: str, ranks: NDArray[np.int64], weights: NDArray[np.int64]) -> Floats:
    """The metric [draws] where query i counts weights[:, i] times."""
    hits = weights @ (ranks <= int(metric.removeprefix("R@")))
    return np.asarray(hits / weights.sum(axis=1), dtype=np.float64)
