"""Pictures of people to be ranked: which galleries there are, and what a model makes of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from PIL import Image

from ccs.datasets.sets import BiasSet
from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.models import Model
from ccs.tower import Trunk
from ccs.ui.session import Memory

DRAWN = {"world/faces": "faces", "world/counterfactuals": "counterfactuals"}
CHUNK = 120
ATTRIBUTES = ("gender", "race", "age", "skin_tone", "skin tone", "ethnicity")
TRUNK_BYTES = 300 * 2**20
DIRECT_BYTES = 80 * 2**20

Report = Callable[[float], None]


@dataclass
class Seen:
    """A gallery through one model: activations below the first prunable layer (None where too large),
    embeddings with nothing off [n, d], direct effects of each head [n, heads, d] once asked for."""

    trunk: Trunk | None
    base: np.ndarray
    direct: np.ndarray | None = None
    pruned: Memory = field(default_factory=lambda: Memory(16))


def open_gallery(spec: str) -> BiasSet:
    """A gallery from a parquet file of labelled faces, or one of the sets that `ccs.datasets` knows by name.

    A file has a column of pictures and one or more of `ATTRIBUTES`; occupations and templates are the
    study's, K a tenth of the pictures. InputError for anything else.
    """
    from ccs import datasets, paper
    from ccs.datasets import folder, table

    path = Path(spec).expanduser()
    if path.suffix != ".parquet":
        found = datasets.open_set(spec)
        if not isinstance(found, BiasSet):
            raise InputError(f"{spec} is not a set of people with labelled groups.")
        return found
    present = table.open_parquet(path).columns if path.is_file() else ()
    attributes = {name.replace("_", " "): name for name in ATTRIBUTES if name in present}
    if not attributes:
        raise InputError(f"{spec} is not there, or has none of the columns {', '.join(ATTRIBUTES)}.")
    opened = folder.bias_set(
        path,
        name=path.stem,
        attributes=attributes,
        k={},
        occupations=paper.occupations(),
        templates=paper.templates(),
    )
    return replace(opened, k=dict.fromkeys(opened.groups, max(1, len(opened.images) // 10)))


class Galleries:
    """All galleries, each read once. Drawn faces always; others are added by name. Threads may share it."""

    def __init__(self, others: Sequence[BiasSet] = ()) -> None:
        self._sets: dict[str, BiasSet] = {one.name: one for one in others}
        self._names = (*DRAWN, *self._sets)
        self._images: dict[str, tuple[Image.Image, ...]] = {}
        self._seen = Memory(3)
        self._lock = threading.Lock()

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    def get(self, name: str) -> BiasSet:
        """The gallery; InputError for an unknown name."""
        with self._lock:
            if name not in self._sets:
                if name not in DRAWN:
                    raise InputError(f"There is no gallery {name!r}; there are {', '.join(self._names)}.")
                from ccs.world import sets

                self._sets[name] = sets.bias_set(DRAWN[name])
            return self._sets[name]

    def image(self, name: str, index: int) -> Image.Image:
        return self.get(name).images[index]

    def seen(self, model: Model, name: str) -> Iterator[float]:
        """See the gallery through the model, where that has not been done: yields the share that is done."""
        key = (model.weights_hash, name)
        if key in self._seen:
            return
        images = self.get(name).images
        size = len(images) * model.tower.n_tokens * model.tower.width * 4
        trunks, rows = [], []
        for start in range(0, len(images), CHUNK):
            part = [images[i] for i in range(start, min(start + CHUNK, len(images)))]
            trunk = model.trunk(part)
            rows.append(model.embed_trunk(trunk))
            if size <= TRUNK_BYTES:
                trunks.append(trunk)
            yield min(1.0, (start + CHUNK) / len(images))
        whole = _joined(trunks) if trunks else None
        self._seen.get(key, lambda: Seen(whole, np.concatenate(rows)))

    def _of(self, model: Model, name: str) -> Seen:
        for _ in self.seen(model, name):
            pass
        found = self._seen.find((model.weights_hash, name))
        assert isinstance(found, Seen)
        return found

    def known(self, model: Model, name: str) -> Seen | None:
        """What the model has made of the gallery so far; None before `seen` has run."""
        key = (model.weights_hash, name)
        return self._of(model, name) if key in self._seen else None

    def base(self, model: Model, name: str) -> np.ndarray:
        """Embeddings [n, d] of the gallery with no head off."""
        return self._of(model, name).base

    def ready(self, model: Model, name: str, off: HeadSet) -> bool:
        """Whether `pruned` is an instant away."""
        key = (model.weights_hash, name)
        return key in self._seen and (not off or off in self._of(model, name).pruned)

    def estimate(self, model: Model, name: str, off: HeadSet) -> np.ndarray | None:
        """Embeddings [n, d] with the direct effects of the heads subtracted: instant once they are known.

        Later layers do not react, unlike in `pruned`. None where the effects were never collected.
        """
        seen = self._of(model, name)
        if seen.direct is None:
            return None
        order = list(model.heads)
        rows = [order.index(head) for head in off]
        out = seen.base - seen.direct[:, rows].sum(axis=1)
        unit: np.ndarray = out / np.linalg.norm(out, axis=1, keepdims=True)
        return unit

    def collect(self, model: Model, name: str) -> Iterator[float]:
        """Collect the direct effects that `estimate` needs, where they fit the memory set aside for them."""
        seen, images = self._of(model, name), self.get(name).images
        heads = list(model.heads)
        if seen.direct is not None or len(images) * len(heads) * model.dim * 4 > DIRECT_BYTES:
            return
        layers, numbers = [h.layer for h in heads], [h.head for h in heads]
        direct = np.empty((len(images), len(heads), model.dim), np.float32)
        for start in range(0, len(images), CHUNK):
            part = [images[i] for i in range(start, min(start + CHUNK, len(images)))]
            direct[start : start + len(part)] = model.contributions(part).direct[:, layers, numbers]
            yield min(1.0, (start + CHUNK) / len(images))
        seen.direct = direct

    def pruned(self, model: Model, name: str, off: HeadSet) -> Iterator[float]:
        """Embed the gallery with the heads off, in the forward pass: yields the share that is done.

        `embeddings` then has the answer.
        """
        yield from self.seen(model, name)
        seen = self._of(model, name)
        if not off or off in seen.pruned:
            return
        images, rows = self.get(name).images, []
        for start in range(0, len(images), CHUNK):
            stop = min(start + CHUNK, len(images))
            if seen.trunk is not None:
                part = Trunk(seen.trunk.tokens[start:stop], seen.trunk.layer)
                rows.append(model.embed_trunk(part, off))
            else:
                rows.append(model.embed_images([images[i] for i in range(start, stop)], off))
            yield stop / len(images)
        seen.pruned.get(off, lambda: np.concatenate(rows))

    def embeddings(self, model: Model, name: str, off: HeadSet) -> np.ndarray:
        """Embeddings [n, d] of the gallery with the heads at zero in the forward pass."""
        for _ in self.pruned(model, name, off):
            pass
        seen = self._of(model, name)
        return seen.base if not off else seen.pruned.get(off, lambda: seen.base)


def _joined(trunks: Sequence[Trunk]) -> Trunk:
    import torch

    return Trunk(torch.cat([trunk.tokens for trunk in trunks]), trunks[0].layer)
