"""Retrieval between clips (or images) and their captions: R@k, both ways.

R@k is the share of queries with a correct item among the first k. A clip's embedding is the mean of its
frames' unit embeddings. By default it is scaled to unit length, and each caption of a clip is a separate
query; from clip to text any of the clip's captions is a hit. The paper's code (`as_published`) counts only
the first caption of a clip. It does not scale the mean, so clips whose frames agree have an advantage.
Ranks start at 1. Equal scores are ranked in the order of the items.

    >>> to_clip, to_text = measure_recall([[1, 0], [0, 1]], [[1, 0.1], [0.1, 1]], [0, 1])
    >>> to_clip.metrics["R@1"].value    # a share of 1
    1.0
"""

from collections.abc import Mapping, Sequence
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
METRICS = {f"R@{depth}": depth for depth in DEPTHS}


@dataclass(frozen=True, kw_only=True, eq=False)
class Retrieval:
    """Retrieval in one direction.

    Attributes:
        direction: "text-to-clip" or "clip-to-text"; the query comes first.
        metrics: Name in METRICS -> R@k, a share of 1.
        n: Number of queries.
        ranks: Best rank of a correct item for each query, from 1 [n].
        clips: Clip of each query [n]. Intervals resample clips with all their captions, since captions of one
            clip are not independent.
    """

    direction: Direction
    metrics: dict[str, Estimate]
    n: int
    ranks: NDArray[np.int64]
    clips: NDArray[np.int64]


def measure_recall(
    clip_embeddings: ArrayLike,
    caption_embeddings: ArrayLike,
    clip_of_caption: ArrayLike,
    *,
    as_published: bool = False,
    draws: int = 1000,
    seed: int = 0,
) -> tuple[Retrieval, Retrieval]:
    """Measure retrieval in both directions.

    Args:
        clip_embeddings: Mean of the frames' unit embeddings for each clip [c, d]. Its length matters only
            with `as_published`.
        caption_embeddings: Caption embeddings [m, d].
        clip_of_caption: Index of each caption's clip [m].
        as_published: Whether to measure as the paper's code does (see the top of this module).
        draws: Number of resamples.
        seed: Random seed for resampling.

    Returns:
        Text to clip, clip to text.

    Raises:
        InputError: If a clip has no caption, a caption's clip is unknown, or embeddings don't fit.
    """
    owner = np.asarray(clip_of_caption)
    clips = ranking.finite_rows(clip_embeddings, "clip embeddings")
    captions = ranking.unit(caption_embeddings, "caption embeddings")
    if owner.shape != (len(captions),) or owner.dtype.kind not in "iu":
        raise InputError(f"Each of the {len(captions)} captions needs the number of its clip.")
    if owner.min() < 0 or owner.max() >= len(clips):
        raise InputError(f"Captions of clips {owner.min()} to {owner.max()} do not fit {len(clips)} clips.")
    with_caption, first = np.unique(owner, return_index=True)
    if missing := sorted({*range(len(clips))}.difference(with_caption.tolist())):
        raise InputError(f"Clip {missing[0]} has no caption; leave it out.")
    if as_published:
        captions, owner = captions[first], np.arange(len(clips))
    else:
        clips = ranking.unit(clips, "clip embeddings")
    owner = owner.astype(np.int64)
    to_clip = _best_ranks(captions, clips, [np.array([clip]) for clip in owner])
    order = np.argsort(owner, kind="stable")
    own_captions = np.split(order, np.cumsum(np.bincount(owner))[:-1])
    to_text = _best_ranks(clips, captions, own_captions)
    return (
        _summary("text-to-clip", to_clip, owner, draws, seed),
        _summary("clip-to-text", to_text, np.arange(len(clips)), draws, seed),
    )


def compare_recall(ours: Retrieval, baseline: Retrieval, metric: str, *, seed: int = 0) -> Effect:
    """Compare two retrievals by paired bootstrap over clips.

    Args:
        ours: Retrieval to compare.
        baseline: Retrieval of the baseline, for the same queries in the same direction.
        metric: Name of a metric in METRICS.
        seed: Random seed for resampling.

    Returns:
        The metric minus the baseline's.

    Raises:
        InputError: If the metric is unknown, or the queries or directions differ.
    """
    if metric not in METRICS:
        raise InputError(f"The metric {metric!r} is not known; it is one of {', '.join(METRICS)}.")
    if ours.direction != baseline.direction or not np.array_equal(ours.clips, baseline.clips):
        raise InputError("Two retrievals can be compared only for the same queries in the same direction.")
    first, second = (_draws(side.ranks, ours.clips, 2000, seed)[metric] for side in (ours, baseline))
    change = ours.metrics[metric].value - baseline.metrics[metric].value
    return stats.effect(change, first - second, units=int(ours.clips.max()) + 1)


def _best_ranks(queries: Floats, items: Floats, right: Sequence[NDArray[np.integer]]) -> NDArray[np.int64]:
    """Rank [queries], from 1, of each query's best-ranked right item."""
    best = np.empty(len(queries), dtype=np.int64)
    for start in range(0, len(queries), BATCH):
        scores = ranking.products(queries[start : start + BATCH], items)
        # Of several right items the best has the largest score, then the lowest index.
        own_items = zip(scores, right[start:], strict=False)
        target = np.array([indices[np.argmax(row[indices])] for row, indices in own_items])
        score = np.take_along_axis(scores, target[:, None], axis=1)
        earlier = (scores == score) & (np.arange(scores.shape[1]) < target[:, None])
        best[start : start + BATCH] = ((scores > score) | earlier).sum(axis=1) + 1
    return best


def _summary(
    direction: Direction, ranks: NDArray[np.int64], clips: NDArray[np.int64], draws: int, seed: int
) -> Retrieval:
    drawn = _draws(ranks, clips, draws, seed)
    metrics = {name: stats.interval((ranks <= depth).mean(), drawn[name]) for name, depth in METRICS.items()}
    metrics = {name: stats.share_interval(estimate, clips.max() + 1) for name, estimate in metrics.items()}
    return Retrieval(direction=direction, metrics=metrics, n=len(ranks), ranks=ranks, clips=clips)


def _draws(ranks: NDArray[np.int64], clips: NDArray[np.int64], draws: int, seed: int) -> Mapping[str, Floats]:
    """Return each metric when clips are resampled with all their captions [draws]."""
    ones = np.ones(int(clips.max()) + 1, dtype=np.int64)
    times = stats.resampled_cells(ones, draws, np.random.default_rng(seed))[:, clips]
    return {name: (times @ (ranks <= depth)) / times.sum(axis=1) for name, depth in METRICS.items()}
