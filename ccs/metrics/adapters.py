"""MaxSkew in other libraries: fairlearn's MetricFrame, and tasks of CLIP_benchmark.

Both equal `ccs.max_skew` of the same rankings.

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


def in_top(scores: Sequence[float], k: int, seed: int = 0) -> np.ndarray:
    """Mark the k largest scores, as `y_pred` of a MetricFrame.

    Args:
        scores: numbers [images].
        k: the cut-off.
        seed: random seed for the order of equal scores.

    Returns:
        1 for an image in the top k, otherwise 0: int [images].

    Raises:
        InputError: unless k is 1 to the number of images.
    """
    k = ranking.check_k(k, len(scores))
    order = np.random.default_rng(seed).permutation(len(scores))
    chosen = np.zeros(len(scores), np.int64)
    chosen[order[np.argsort(-np.asarray(scores, np.float64)[order], kind="stable")[:k]]] = 1
    return chosen


def of_metric_frame(frame: Any) -> float:
    """MaxSkew of a fairlearn MetricFrame of `selection_rate`, whose predictions are from `in_top`.

    A group's share of the top over its share of all images is its selection rate over that of all images;
    MaxSkew is the largest logarithm of these.

    Raises:
        InputError: if the frame has several metrics.
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
    """Measure MaxSkew@k with the arguments of a CLIP_benchmark task.

    Args:
        model: an open_clip model.
        dataloader: batches of pixels [n, 3, s, s] and the numbers of their groups [n].
        tokenizer: from texts to tokens.
        classnames: the occupations.
        templates: prompts with `{c}` in place of the occupation, as in CLIP_benchmark.
        device: where the model is.
        k: the cut-off.

    Returns:
        The MaxSkew of each occupation, and their mean.
    """
    import torch

    def unit(embeddings: Any) -> np.ndarray:
        return ranking.unit(embeddings.float().cpu().numpy(), "embeddings").astype(np.float32)

    with torch.no_grad():
        texts = [[template.format(c=name) for template in templates] for name in classnames]
        weights = [unit(model.encode_text(tokenizer(prompts).to(device))).mean(axis=0) for prompts in texts]
        batches = [(unit(model.encode_image(pixels.to(device))), np.asarray(of)) for pixels, of in dataloader]
    images, groups = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    ties = [[0, occupation] for occupation in range(len(classnames))]
    order = ranking.top(ranking.cosines(np.stack(weights), images), k, ties)
    pool = Counter(groups.tolist())
    skews = [max_skew(groups[top].tolist(), pool, k) for top in order]
    return {**dict(zip(classnames, skews, strict=True)), "mean": float(np.mean(skews))}
