"""The top activating images of a head: the drawn images whose contribution lies farthest along a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from PIL import Image

from ccs.heads import Head
from ccs.model.model import Model
from ccs.model.tower import Trunk
from ccs.ui.service.cache import Cache
from ccs.ui.service.galleries import chunks, joined
from ccs.ui.service.uploads import data_url
from ccs.world import captions, drawn_sets

DRAWN = 300  # drawn images that are ranked
SEED = 4
SIDE = 96
EXTREMES = 6


Extremes = tuple[list[tuple[int, float]], list[tuple[int, float]]]


def extremes(direct: np.ndarray, text: np.ndarray, n: int = EXTREMES) -> Extremes:
    """Images whose contribution `direct` [images, d] lies farthest along `text` [d], and against it: their
    indices and scores.

    Contributions are centered, so the score is the deviation from the mean image, in standard deviations.
    """
    along = (direct - direct.mean(axis=0)) @ text
    scores = along / (float(along.std()) or 1.0)
    order = [(int(i), float(scores[i])) for i in np.argsort(-along, kind="stable")]
    return order[:n], order[::-1][:n]


@lru_cache(maxsize=1)
def drawn() -> tuple[tuple[str, ...], tuple[Image.Image, ...]]:
    """The drawn images with their captions, the same for every model and head."""
    whole = drawn_sets.image_set(DRAWN, seed=SEED)
    assert isinstance(whole.images, drawn_sets.Drawn)
    names = tuple(captions(scene)[0] for scene in whole.images.scenes)
    return names, tuple(whole.images[i] for i in range(DRAWN))


@lru_cache(maxsize=DRAWN)
def thumb(index: int) -> str:
    """One of the drawn images, small, as a `data:` URL."""
    return data_url(drawn()[1][index], SIDE)


def collect(kept: Cache, model: Model) -> Iterator[float]:
    """Keep the direct effects of the model's heads on the drawn images, where they are not kept yet.

    Yields the share that is done.
    """

    def direct(part: Sequence[Image.Image] | Trunk) -> np.ndarray:
        return model.contributions(part, model.heads).direct

    yield from kept.fill(model.weights_hash, lambda: joined(chunks(model, drawn()[1]), direct))


def top_activating(kept: Cache, model: Model, head: Head, text: str) -> Extremes | None:
    """The drawn images with the head's contribution farthest along the text, and against it; None before
    `collect`.
    """
    direct = kept.find(model.weights_hash)
    if direct is None:
        return None
    return extremes(direct[:, list(model.heads).index(head)], model.embed_texts([text])[0])
