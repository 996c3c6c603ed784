"""What a head makes of the page's pictures: those that move it most, and those nearest to an image by it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple

import numpy as np

from ccs.heads import HeadSet
from ccs.model.model import Model
from ccs.sets import ImageSet
from ccs.ui.service.cache import Cache
from ccs.ui.service.galleries import chunks

EXTREMES = 6
NEAREST = 5

Extremes = tuple[list[tuple[int, float]], list[tuple[int, float]]]


class Seen(NamedTuple):
    """Pictures through a model: its heads' contributions [n, heads, d], and the embeddings [n, d]."""

    direct: np.ndarray
    whole: np.ndarray


def collect(kept: Cache, model: Model, pictures: ImageSet) -> Iterator[float]:
    """Keep what the model makes of the pictures, where it is not kept yet: yields the share that is done."""

    def work() -> Generator[float, None, Seen]:
        parts = []
        for share, part in chunks(model, pictures.images):
            whole, found = model.embed_with_contributions(part, HeadSet(), model.heads)
            parts.append((found.direct, whole))
            yield share
        return Seen(*map(np.concatenate, zip(*parts, strict=True)))

    yield from kept.fill(_key(model), work)


def find(kept: Cache, model: Model) -> Seen | None:
    """What `collect` keeps, None before it has run."""
    found: Seen | None = kept.find(_key(model))
    return found


def _key(model: Model) -> tuple[str, str]:
    return "pictures", model.weights_hash


def extremes(direct: np.ndarray, along: np.ndarray | None, n: int = EXTREMES) -> Extremes:
    """Pictures whose contribution `direct` [n, d] lies farthest along a direction [d], and against it: their
    indices and scores.

    Contributions are centered, so the score is the deviation from the mean picture, in standard deviations.
    along: None for the direction in which the contributions differ most, its sign that of the farthest.
    """
    centered = direct - direct.mean(axis=0)
    if along is None:
        along = np.linalg.svd(centered, full_matrices=False)[2][0]
        far = centered @ along
        along = along * np.sign(far[np.abs(far).argmax()])
    scores = centered @ along
    scores = scores / (float(scores.std()) or 1.0)
    order = [(int(i), float(scores[i])) for i in np.argsort(-scores, kind="stable")]
    return order[:n], order[::-1][:n]


class Nearest(NamedTuple):
    """Cosines of an image with the pictures, each as it differs from the mean picture: by every head's
    contribution alone [heads, n], and by the whole embedding [n]; and the correlation [heads] of the two.
    """

    alone: np.ndarray
    whole: np.ndarray
    agreement: np.ndarray


def nearest(seen: Seen, direct: np.ndarray, whole: np.ndarray) -> Nearest:
    """direct [heads, d], whole [d]: of the image."""

    def cosines(pictures: np.ndarray, image: np.ndarray) -> np.ndarray:
        center = pictures.mean(axis=0)
        rows, one = pictures - center, image - center
        sizes = np.linalg.norm(rows, axis=-1) * np.linalg.norm(one, axis=-1)
        return np.asarray((rows * one).sum(axis=-1) / np.maximum(sizes, 1e-12))

    alone, by_whole = cosines(seen.direct, direct).T, cosines(seen.whole, whole)
    return Nearest(alone, by_whole, np.corrcoef(np.vstack([by_whole, alone]))[0, 1:])
