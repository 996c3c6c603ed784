"""Galleries, images of people to be ranked: which there are, and what a model makes of them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from PIL import Image

from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.image_sets import BiasSet, ClassificationSet
from ccs.model.model import Model
from ccs.model.tower import Trunk
from ccs.ui.service.cache import Cache, one
from ccs.ui.state import OWN
from ccs.world import drawn_sets

DRAWN = {"world/faces": "faces", "world/counterfactuals": "counterfactuals"}
THINGS = "world/subjects"  # by which the cost of a set of heads in accuracy is told
MOST_OWN = 8
MOST, STEP = 120, 10**11
TRUNK_BYTES = 128 * 2**20
PRUNED_BYTES = 128 * 2**20


@dataclass(frozen=True)
class Seen:
    """A gallery through one model: activations below the first prunable layer (None where too large), and
    embeddings with nothing off [n, d].
    """

    trunk: Trunk | None
    base: np.ndarray


def thing_names() -> tuple[str, ...]:
    """Drawn sets of classes, which are seen through a model like a gallery's people."""
    return tuple(f"world/{name}" for name in drawn_sets.classification_names())


@cache
def things(name: str) -> ClassificationSet:
    """One of the drawn sets of classes."""
    return drawn_sets.classification_set(name.removeprefix("world/"))


def chunks(
    model: Model, images: Sequence[Image.Image] | Trunk
) -> Iterator[tuple[float, Sequence[Image.Image] | Trunk]]:
    """Parts of about a second's work, so that Cancel takes effect soon: (share done after it, part)."""
    layers = model.n_layers - (images.layer if isinstance(images, Trunk) else 0)
    passes = 24 * layers * model.tower.n_tokens * model.tower.width**2  # floating point operations
    n, step = len(images), int(min(MOST, max(4, STEP // passes)))
    for start in range(0, n, step):
        stop = min(start + step, n)
        part = images[start:stop] if isinstance(images, Trunk) else [images[i] for i in range(start, stop)]
        yield stop / n, part


def joined(
    parts: Iterator[tuple[float, Sequence[Image.Image] | Trunk]],
    made: Callable[[Sequence[Image.Image] | Trunk], np.ndarray],
) -> Generator[float, None, np.ndarray]:
    """The rows made of each of the `chunks`, in order; yields the share that is done."""
    rows = []
    for share, part in parts:
        rows.append(made(part))
        yield share
    return np.concatenate(rows)


class Galleries:
    """All galleries, each read once. Drawn faces always; others are added. Threads may share it.

    specs: gallery -> what `ccs.open_gallery` opens it by, for programs that open it too.
    """

    def __init__(self, others: Sequence[BiasSet] = (), specs: Mapping[str, str] | None = None) -> None:
        self.specs = dict(specs or {})
        self._sets: dict[str, BiasSet] = {one.name: one for one in others}
        self.names = (*DRAWN, *self._sets)
        self._seen = Cache(4, one)
        self._pruned = Cache(PRUNED_BYTES)
        self._lock = threading.Lock()

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
        """True for a gallery that can be shown."""
        return name in self.names or name in self._sets

    def get(self, name: str) -> BiasSet:
        """The gallery; InputError for an unknown name."""
        with self._lock:
            if name not in self._sets:
                if name not in DRAWN:
                    raise InputError(f"There is no gallery {name!r}; there are {', '.join(self.names)}.")
                self._sets[name] = drawn_sets.bias_set(DRAWN[name])
            return self._sets[name]

    def images(self, name: str) -> Sequence[Image.Image]:
        """The images of a gallery, or of a drawn set of classes."""
        return things(name).images if name in thing_names() else self.get(name).images

    def image(self, name: str, index: int) -> Image.Image:
        return self.get(name).images[index]

    def seen(self, model: Model, name: str) -> Iterator[float]:
        """See the gallery through the model, if that was not done before: yields the share that is done."""

        def work() -> Generator[float, None, Seen]:
            images = self.images(name)
            size = len(images) * model.tower.n_tokens * model.tower.width * 4
            trunks, rows = [], []
            for share, part in chunks(model, images):
                trunk = model.trunk(part)
                rows.append(model.embed_images(trunk))
                if size <= TRUNK_BYTES:
                    trunks.append(trunk)
                yield share
            return Seen(Trunk.joined(trunks) if trunks else None, np.concatenate(rows))

        yield from self._seen.fill((model.weights_hash, name), work)

    def _of(self, model: Model, name: str) -> Seen:
        for _ in self.seen(model, name):
            pass
        found = self._seen.find((model.weights_hash, name))
        assert isinstance(found, Seen)
        return found

    def known(self, model: Model, name: str) -> Seen | None:
        """The gallery through the model, as far as that is known; None before `seen` has run."""
        found: Seen | None = self._seen.find((model.weights_hash, name))
        return found

    def base(self, model: Model, name: str) -> np.ndarray:
        """Embeddings [n, d] of the gallery with no head off."""
        return self._of(model, name).base

    def ready(self, model: Model, name: str, off: HeadSet) -> bool:
        """True if `embeddings` has the answer at once."""
        key = (model.weights_hash, name)
        return key in self._seen and (not off or (*key, off) in self._pruned)

    def pruned(self, model: Model, name: str, off: HeadSet) -> Iterator[float]:
        """Embed the gallery with the heads off, in the forward pass: yields the share that is done.

        `embeddings` then has the answer.
        """

        yield from self.seen(model, name)
        if off:
            embed = partial(model.embed_images, off=off)
            yield from self._pruned.fill(
                (model.weights_hash, name, off), lambda: joined(self._below(model, name), embed)
            )

    def _below(self, model: Model, name: str) -> Iterator[tuple[float, Sequence[Image.Image] | Trunk]]:
        """Parts of the gallery, from below the first prunable layer where that is kept: see `chunks`."""
        trunk = self._of(model, name).trunk
        return chunks(model, self.images(name) if trunk is None else trunk)

    def embeddings(self, model: Model, name: str, off: HeadSet) -> np.ndarray:
        """Embeddings [n, d] of the gallery with the heads off in the forward pass."""
        for _ in self.pruned(model, name, off):
            pass
        if not off:
            return self.base(model, name)
        found: np.ndarray = self._pruned.find((model.weights_hash, name, off))
        return found
