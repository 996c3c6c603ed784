"""Two models, head by head: which heads correspond, and which changed.

Heads correspond by what they write: each head's contributions to the same images, along the same texts (each
model's own embeddings of them), less their mean over the images. A head of one model goes with the head of
the other whose writing correlates most, one to one (the assignment with the largest sum).

Where one model was made from the other, heads correspond within a layer, and a head's change is its own: both
versions are given the tokens that enter the first model's layer, so a head whose weights are the same has
changed by nothing, whatever changed below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from ccs.errors import InputError
from ccs.heads import Head
from ccs.model.model import Images, Model

RELATED = 0.5
"""The least correlation, in the median of heads, of what both models' heads write given the same tokens, with
which one model counts as made from the other."""


@dataclass(frozen=True)
class Pair:
    """Heads that correspond. alike: the correlation of what they write, -1 to 1.

    changed: the variance of the difference of their contributions as a share of the mean of their variances,
    given the same tokens; 0 for the same, 2 for unrelated. None where neither model was made from the other.
    """

    first: Head
    second: Head
    alike: float
    changed: float | None = None


def compare(first: Model, second: Model, images: Images, texts: Sequence[str]) -> list[Pair]:
    """The scored heads of two models that correspond, those that changed most first, else those least alike.

    InputError for fewer than two images or texts.
    """
    if min(len(images), len(texts)) < 2:
        raise InputError("Two or more images and texts are needed to compare heads.")
    parts, along = [], []
    for model in (first, second):
        whole = model.contributions(images, model.heads).direct
        parts.append(whole - whole.mean(axis=0))
        along.append(model.embed_texts(texts))
    ours, theirs = map(_written, parts, along)
    alike = merit = ours @ theirs.T
    heads, others = list(first.heads), list(second.heads)
    alone = _given_the_tokens_of(first, second, images) if _built_alike(first, second) else None
    if alone is not None:
        same_layer = np.equal.outer([one.layer for one in heads], [one.layer for one in others])
        own = np.where(same_layer, ours @ _written(alone, along[0]).T, -1)
        if np.median(own.max(axis=1)) < RELATED:
            alone = None
        else:  # from the same tokens a head that was not trained writes the same
            merit = np.where(same_layer, alike + own, -2)
    pairs = []
    for row, column in zip(*linear_sum_assignment(-merit), strict=True):
        changed = None if alone is None else _changed(parts[0][:, row], alone[:, column])
        pairs.append(Pair(heads[row], others[column], float(alike[row, column]), changed))
    return sorted(pairs, key=lambda pair: pair.alike if pair.changed is None else -pair.changed)


def _given_the_tokens_of(first: Model, second: Model, images: Images) -> NDArray[np.float32]:
    """Contributions [images, heads, dim], centered, of the second model given the tokens of the first."""
    tower, heads = first.tower, first.heads
    read = (tower.embed_and_read(part, heads=heads, entering=True)[1] for _, part in first.batches(images))
    whole = np.concatenate([tower.contributions_of(second.tower, one, heads).cpu().numpy() for one in read])
    return np.asarray(whole - whole.mean(axis=0))


def _written(parts: NDArray[np.float32], along: NDArray[np.float32]) -> NDArray[np.float32]:
    """What heads write along vectors [texts, dim], as unit rows [heads, images x texts]; zeros stay zeros."""
    flat = (parts @ along.T).transpose(1, 0, 2).reshape(parts.shape[1], -1)
    lengths = np.linalg.norm(flat, axis=1, keepdims=True)
    return np.asarray(flat / np.where(lengths > 0, lengths, 1), np.float32)


def _changed(before: NDArray[np.float32], after: NDArray[np.float32]) -> float:
    spread = (np.square(before).sum() + np.square(after).sum()) / 2
    return float(np.square(before - after).sum() / spread) if spread > 0 else 0.0


def _built_alike(first: Model, second: Model) -> bool:
    """True where one image tower's layers can be put into the other."""
    visuals = (one.clip.visual.state_dict().items() for one in (first, second))
    ours, theirs = ({name: values.shape for name, values in each} for each in visuals)
    return ours == theirs and first.heads == second.heads
