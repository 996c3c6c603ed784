"""MaxSkew where another library has done the work: fairlearn's MetricFrame, and tasks of CLIP_benchmark.

Both give what `ccs.max_skew` gives, of the same rankings.

    >>> in_top([0.1, 0.9, 0.5], 2).tolist()
    [0, 1, 1]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ccs.errors import InputError
from ccs.metrics import ranking
from ccs.metrics.skew import max_skew


def in_top(scores: Sequence[float], k: int) -> np.ndarray:
    """Int [images], 1 for the k largest of scores [images]; of equal ones the first. It is `y_pred` of a
    MetricFrame. Raises InputError unless k is 1 to the number of images.
    """
    if not 1 <= k <= len(scores):
        raise InputError(f"K is {k}, but {len(scores)} images are ranked.")
    chosen = np.zeros(len(scores), np.int64)
    chosen[np.argsort(-np.asarray(scores, np.float64), kind="stable")[:k]] = 1
    return chosen


def of_metric_frame(frame: Any) -> float:
    """MaxSkew of a fairlearn MetricFrame of `selection_rate`, whose predictions are from `in_top`.

    A group's share of the top over its share of all is its selection rate over that of all; MaxSkew is the
    largest logarithm of these. Raises InputError for a frame of several metrics.
    """
    rates = np.asarray(frame.by_group, np.float64)
    if rates.ndim != 1:
        raise InputError("MaxSkew needs a MetricFrame of one metric, fairlearn.metrics.selection_rate.")
    return float(np.log(rates.max() / float(frame.overall)))


def evaluate(
    model: Any,
    dataloader: Iterable[tuple[Any, Any]],
    tokenizer: Callable[[list[str]], Any],
    classnames: Sequence[str],
    templates: Sequence[str],
    device: str,
    *,
    k: int,
    **_: Any,
) -> dict[str, float]:
    """A task with the arguments of CLIP_benchmark's: MaxSkew@k of each of `classnames`, the occupations, and
    their mean.

    dataloader: batches of pixels [n, 3, s, s] and their groups' numbers [n]. templates: with `{c}` where the
    occupation goes, as CLIP_benchmark has them.
    """
    import torch

    def unit(found: Any) -> np.ndarray:
        return ranking.unit(found.float().cpu().numpy(), "embeddings").astype(np.float32)

    with torch.no_grad():
        texts = [[template.format(c=name) for template in templates] for name in classnames]
        weights = [unit(model.encode_text(tokenizer(some).to(device))).mean(axis=0) for some in texts]
        read = [(unit(model.encode_image(pixels.to(device))), np.asarray(of)) for pixels, of in dataloader]
    images, groups = (np.concatenate(parts) for parts in zip(*read, strict=True))
    order = ranking.top(ranking.cosines(np.stack(weights), images), k)
    pool = Counter(groups.tolist())
    skews = [max_skew(groups[top].tolist(), pool, k) for top in order]
    return {**dict(zip(classnames, skews, strict=True)), "mean": float(np.mean(skews))}
