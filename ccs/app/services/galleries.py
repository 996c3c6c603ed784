"""Galleries, images of people to be ranked, and the page's other sets; and what a model and its heads make of
them.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from cachetools import TTLCache
from PIL import Image

from ccs.app.html import describe_ablation, for_visitors
from ccs.app.services.cache import Cache, result
from ccs.app.services.model_cache import RETRY, saw_drawings_only
from ccs.app.state import NO_HEADS, OWN
from ccs.data import SOURCES, BiasSet, ImageSet, untrusted
from ccs.data.open import open_dataset, open_gallery, open_images
from ccs.errors import InputError
from ccs.heads import IMAGE, HeadSet
from ccs.model.encoder import Trunk
from ccs.model.model import Model

MOST_OWN = 8
MOST, STEP = 120, 10**11
TRUNK_BYTES = 128 * 2**20
PICTURES, SEED = 300, 4
EXTREMES, NEAREST = 6, 5
FIRST = 28  # images of a gallery, or a few more, whose figures are shown while the others are looked at


Extremes = tuple[list[tuple[int, float]], list[tuple[int, float]]]


@dataclass(frozen=True)
class World:
    """What a model is shown with: people to be ranked, things by which the cost of a set of heads in accuracy
    is told, and pictures among which is looked for what moves a head.
    """

    people: str
    things: str
    pictures: str


DRAWN = World("world/faces", "world/subjects", "world/images")
PHOTOGRAPHED = World("fairface-600", "cifar10-300", "open-images-300")
PAIRS = "world/counterfactuals"  # drawn faces that differ in their groups alone


def world(model: str) -> World:
    """Drawings for a model that has seen nothing else, photographs for any other."""
    return DRAWN if saw_drawings_only(model) else PHOTOGRAPHED


def _open(name: str) -> ImageSet:
    if name in (DRAWN.pictures, PHOTOGRAPHED.pictures):
        return open_images(name, PICTURES, seed=SEED)
    if name in (DRAWN.people, PHOTOGRAPHED.people, PAIRS):
        return open_gallery(name)
    found = open_dataset(name)
    assert isinstance(found, ImageSet)
    return found


@dataclass(frozen=True)
class Seen:
    """A gallery through one model: activations below the first prunable layer (None where too large), and
    embeddings with nothing off [n, d].
    """

    trunk: Trunk | None
    base: np.ndarray


class Written(NamedTuple):
    """Pictures through a model: its heads' contributions [n, heads, d], and the embeddings [n, d]."""

    direct: np.ndarray
    whole: np.ndarray


def chunks(
    model: Model, images: Sequence[Image.Image] | Trunk
) -> Iterator[tuple[float, Sequence[Image.Image] | Trunk]]:
    """Parts of about a second's work, so that Cancel takes effect soon: (share done after it, part)."""
    layers = model.n_layers - (images.layer if isinstance(images, Trunk) else 0)
    passes = 24 * layers * model.encoder.n_tokens * model.encoder.width**2  # floating point operations
    n, step = len(images), int(min(MOST, max(4, STEP // passes)))
    for start in range(0, n, step):
        stop = min(start + step, n)
        part = images[start:stop] if isinstance(images, Trunk) else [images[i] for i in range(start, stop)]
        yield stop / n, part


class Galleries:
    """All sets, each read once; a visitor's own galleries are added. Threads may share it.

    others: more galleries. cache: of what models make of them.
    """

    def __init__(self, others: Sequence[BiasSet], cache: Cache) -> None:
        self._sets: dict[str, ImageSet] = {one.name: one for one in others}
        self._others = tuple(self._sets)
        self._failed: TTLCache[str, str] = TTLCache(100, RETRY)
        self._cache = cache
        self._lock = threading.RLock()

    def names(self, model: str) -> tuple[str, ...]:
        """The galleries of a model, the one that it opens on first."""
        own = world(model)
        return (own.people, *([PAIRS] if own is DRAWN else []), *self._others)

    def add(self, gallery: BiasSet, owner: object) -> None:
        """Keep a visitor's own gallery, named `OWN` and something unguessable, as long as its owner is there.

        Where there are more than `MOST_OWN`, the oldest goes.
        """
        with self._lock:
            self._sets[gallery.name] = gallery
            own = [name for name in self._sets if name.startswith(OWN)]
            for name in own[: max(0, len(own) - MOST_OWN)]:
                del self._sets[name]
        weakref.finalize(owner, self._sets.pop, gallery.name, None)

    def has(self, name: str) -> bool:
        """True for a set that is here, or that needs no fetching."""
        return name in self._sets or name in (*vars(DRAWN).values(), PAIRS)

    def fetched(self, name: str) -> Iterator[float]:
        """Fetch a set of the Hub, unless it is here: yields the share that is done.

        InputError where it cannot be had, which is then not tried again for a minute.
        """
        if self.has(name) or name not in vars(PHOTOGRAPHED).values():
            return
        if name in self._failed:
            raise InputError(self._failed[name])

        def work() -> Generator[float, None, bool]:
            if not untrusted.excerpt_file(SOURCES[name]).exists():
                yield from untrusted.fetch_excerpt(SOURCES[name])
            self._sets[name] = _open(name)
            return True

        try:
            yield from self._cache.fill(("fetched", name), work)
        except InputError as error:
            self._failed[name] = for_visitors(error)
            raise InputError(self._failed[name]) from None

    def find(self, name: str) -> ImageSet:
        """The set; InputError for an unknown name, and for one that has not been `fetched`."""
        with self._lock:
            if name not in self._sets:
                if name in vars(PHOTOGRAPHED).values():
                    raise InputError(self._failed.get(name) or f"{SOURCES[name].title} is being fetched.")
                if not self.has(name):
                    raise InputError(f"There is no gallery {name!r} here.")
                self._sets[name] = _open(name)
            return self._sets[name]

    def get(self, name: str) -> BiasSet:
        """The gallery; InputError as `find`, and for a set of other images."""
        found = self.find(name)
        if not isinstance(found, BiasSet):
            raise InputError(f"{name} is no gallery of people.")
        return found

    def seen(self, model: Model, name: str) -> Generator[float, None, Seen]:
        """The gallery through the model, looked at if need be: yields the share that is done."""
        key = model.weights_hash, name

        def work() -> Generator[float, None, Seen]:
            images = self.find(name).images
            size = len(images) * model.encoder.n_tokens * model.encoder.width * 4
            trunks, rows = [], []
            for share, part in chunks(model, images):
                trunk = model.trunk(part)
                rows.append(model.embed_images(trunk))
                if size <= TRUNK_BYTES:
                    trunks.append(trunk)
                if name == PHOTOGRAPHED.people and trunks and sum(map(len, rows)) >= FIRST:
                    self._cache.get(("part", *key), lambda: Seen(Trunk.joined(trunks), np.concatenate(rows)))
                yield share
            return Seen(Trunk.joined(trunks) if trunks else None, np.concatenate(rows))

        yield from self.fetched(name)
        return (yield from self._cache.fill(("seen", *key), work))

    def part(self, model: Model, name: str) -> Seen | None:
        """The first images of a gallery through the model, while it is being looked at; else None."""
        key = model.weights_hash, name
        found: Seen | None = None if ("seen", *key) in self._cache else self._cache.find(("part", *key))
        return found

    def ready(self, model: Model, name: str, off: HeadSet) -> bool:
        """True if `embeddings` has the answer at once."""
        key, off = (model.weights_hash, name), off.of_encoder(IMAGE)
        return ("seen", *key) in self._cache and (not off or ("pruned", *key, off) in self._cache)

    def pruned(self, model: Model, name: str, off: HeadSet) -> Generator[float, None, np.ndarray]:
        """Embeddings [n, d] of the gallery with the image encoder's heads off in the forward pass: yields the
        share that is done. `embeddings` then has the answer.
        """
        seen = yield from self.seen(model, name)
        if not (off := off.of_encoder(IMAGE)):
            return seen.base
        below: Sequence[Image.Image] | Trunk = self.find(name).images if seen.trunk is None else seen.trunk

        def work() -> Generator[float, None, np.ndarray]:
            rows = []
            for share, part in chunks(model, below):
                rows.append(model.embed_images(part, off))
                yield share
            return np.concatenate(rows)

        return (yield from self._cache.fill(("pruned", model.weights_hash, name, off), work))

    def looking(self, model: Model, name: str, off: HeadSet) -> Iterator[tuple[float, str]]:
        """All that `embeddings` needs, with words: yields (share done, what is being done)."""
        for share in self.fetched(name):
            yield share, f"Fetching {SOURCES[name].title} from the Hub, once"
        n = len(self.get(name).images)
        for share in self.seen(model, name):
            part = self.part(model, name)
            first = f"; the first {len(part.base)} are shown" if part else ""
            yield share, f"{model.name} looks at {n} faces, once{first}"
        for share in self.pruned(model, name, off):
            yield share, f"{model.name} looks at {n} faces with {describe_ablation(off.of_encoder(IMAGE))}"

    def embeddings(self, model: Model, name: str, off: HeadSet = NO_HEADS) -> np.ndarray:
        """Embeddings [n, d] of the gallery with the heads off in the forward pass."""
        return result(self.pruned(model, name, off))

    def read(self, model: Model) -> Iterator[tuple[float, str]]:
        """Look at the pictures that may move a head, where that is not done yet: yields (share done, what is
        being done). `written` then has them. InputError where they cannot be had.
        """
        name = world(model.name).pictures

        def work() -> Generator[float, None, Written]:
            parts = []
            for share, part in chunks(model, self.find(name).images):
                whole, found = model.embed_with_contributions(part, HeadSet(), model.heads)
                parts.append((found.direct, whole))
                yield share
            return Written(*map(np.concatenate, zip(*parts, strict=True)))

        for share in self.fetched(name):
            yield share, f"Fetching {PICTURES} photographs from the Hub, once"
        for share in self._cache.fill(("pictures", model.weights_hash), work):
            yield share, f"Looking at {PICTURES} pictures"

    def written(self, model: Model) -> Written | None:
        """What the model's heads write of the pictures; None before they were `read`."""
        found: Written | None = self._cache.find(("pictures", model.weights_hash))
        return found


# -- what a head makes of pictures: those that move it most, and those nearest to an image by it -------------


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


def nearest(pictures: Written, direct: np.ndarray, whole: np.ndarray) -> Nearest:
    """direct [heads, d], whole [d]: of the image."""

    def cosines(every: np.ndarray, image: np.ndarray) -> np.ndarray:
        center = every.mean(axis=0)
        rows, one = every - center, image - center
        sizes = np.linalg.norm(rows, axis=-1) * np.linalg.norm(one, axis=-1)
        return np.asarray((rows * one).sum(axis=-1) / np.maximum(sizes, 1e-12))

    alone, by_whole = cosines(pictures.direct, direct).T, cosines(pictures.whole, whole)
    return Nearest(alone, by_whole, np.corrcoef(np.vstack([by_whole, alone]))[0, 1:])
