"""The stages that run the model: text embeddings, moments of heads, and images under every plan.

Work is cut into shards that do not depend on the number of processes or the batch size, and what the shards
hold is put together in their order, so that the same figures come out however the work was divided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from batch.compute.inputs import count
from batch.compute.loading import Batch, Clock, Fitting, Shards, batch_size, load
from batch.compute.settings import Settings
from batch.compute.stages import Stage, Store
from ccs.datasets.sets import ImageSet, RetrievalSet
from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.model.model import Model
from ccs.model.moments import Moments, collect_moments
from ccs.texts.pools import Pool

_TEXTS = 1024


class Embedder:
    """Runs one model over texts and images, each stage once."""

    def __init__(self, model: Model, store: Store, settings: Settings) -> None:
        self.model, self.store, self.settings = model, store, settings
        self.fitting = Fitting(batch_size(model, settings.batch_size))

    @property
    def weights(self) -> str:
        """What every stage of this model depends on."""
        return self.model.weights_hash

    def texts(self, pool: Pool) -> Stage:
        """Unit embeddings of the pool: `texts` [n, D] in shards."""
        shards = Shards(len(pool.texts), _TEXTS)
        inputs = {"weights": self.weights, "texts": pool.fingerprint}
        stage = self.store.stage("texts", inputs, shards=len(shards), suffix="safetensors")
        if stage.done:
            return stage

        def work() -> None:
            for shard in self._progress(stage, "texts"):
                rows = shards.range(shard)
                stage.write_arrays(
                    shard, {"texts": self.model.embed_texts(pool.texts[rows.start : rows.stop])}
                )

        self.store.processes.together(work)
        stage.finish()
        return stage

    def moments(self, images: ImageSet) -> Stage:
        """Moments of the model's heads over the images, sums of each shard."""
        shards = Shards.of(len(images.images), self.settings.shard)
        inputs = {"weights": self.weights, "images": images.fingerprint, "count": len(images.images)}
        stage = self.store.stage("moments", inputs, shards=len(shards), suffix="safetensors")
        if stage.done:
            return stage
        clock = Clock()

        def work() -> None:
            shard_sum = Moments.empty(self.model)
            for batch in self._batches(stage, images.images, shards, clock, "moments"):
                for part in self.fitting.run(
                    lambda piece: collect_moments(self.model, [piece]), batch.pixels
                ):
                    shard_sum = shard_sum + part
                if batch.ends_shard:
                    if not (np.isfinite(shard_sum.total).all() and np.isfinite(shard_sum.products).all()):
                        raise InputError(
                            f"{self.model.name} gives values that are not finite for {images.name}."
                        )
                    arrays = {"total": shard_sum.total, "products": shard_sum.products}
                    stage.write_arrays(batch.shard, arrays | {"count": np.array([shard_sum.count])})
                    shard_sum = Moments.empty(self.model)

        self.store.processes.together(work)
        stage.finish()
        self._note(stage, clock)
        return stage

    def read_moments(self, stage: Stage) -> Moments:
        """The shards' moments, added up in their order."""
        empty = Moments.empty(self.model)
        total, products, seen = empty.total, empty.products, 0
        for shard in range(stage.shards):
            arrays = stage.read_arrays(shard)
            total, products = total + arrays["total"], products + arrays["products"]
            seen += int(arrays["count"][0])
        return replace(empty, total=total, products=products, count=seen)

    def plans(self, data: ImageSet | RetrievalSet, offs: Sequence[HeadSet], direct: HeadSet) -> Stage:
        """A set's embeddings under every plan: `plans` [plans, n, D] in shards; a clip's is its frames' mean.

        direct: heads whose contributions are kept as well, `direct` [heads, n, D].
        """
        clips = isinstance(data, RetrievalSet)
        items: Sequence[Any] = data.clips if isinstance(data, RetrievalSet) else data.images
        shards = Shards.of(count(data), self.settings.shard)
        inputs = self.plans_inputs(data, offs, direct)
        stage = self.store.stage(f"embed/{data.name}", inputs, shards=len(shards), suffix="safetensors")
        if stage.done:
            return stage
        clock = Clock()

        def work() -> None:
            parts: list[dict[str, np.ndarray]] = []
            for batch in self._batches(stage, items, shards, clock, data.name, clips):
                parts.append(self._embed(batch, offs, direct))
                if batch.ends_shard:
                    whole = {
                        name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]
                    }
                    if not np.isfinite(whole["plans"]).all():
                        raise InputError(
                            f"{self.model.name} gives values that are not finite for {data.name}."
                        )
                    stage.write_arrays(batch.shard, whole)
                    parts = []

        self.store.processes.together(work)
        stage.finish()
        self._note(stage, clock)
        return stage

    def plans_inputs(
        self, data: ImageSet | RetrievalSet, offs: Sequence[HeadSet], direct: HeadSet
    ) -> dict[str, Any]:
        """What the embeddings of a set depend on."""
        return {
            "weights": self.weights,
            "images": data.fingerprint,
            "count": count(data),
            "plans": [str(off) for off in offs],
            "direct": str(direct),
            "precision": self.settings.precision,
        }

    def _embed(self, batch: Batch, offs: Sequence[HeadSet], direct: HeadSet) -> dict[str, np.ndarray]:
        def run(pixels: Tensor) -> tuple[np.ndarray, np.ndarray]:
            size = len(pixels)
            if not direct:
                embedded = self.model.embed_images(pixels, list(offs), batch_size=size)
                return embedded, np.empty((0, size, self.model.dim), np.float32)
            embedded, parts = self.model.embed_with_contributions(pixels, list(offs), direct, size)
            return embedded, parts.direct.transpose(1, 0, 2)

        pieces = self.fitting.run(run, batch.pixels)
        found = {"plans": np.concatenate([plans for plans, _ in pieces], axis=1)}
        if direct:
            found["direct"] = np.concatenate([heads for _, heads in pieces], axis=1)
        if any(size != 1 for size in batch.sizes):
            ends = np.cumsum(batch.sizes)[:-1]
            found = {
                name: np.stack([part.mean(axis=1) for part in np.split(array, ends, axis=1)], axis=1)
                for name, array in found.items()
            }
        return found

    def _batches(
        self, stage: Stage, items: Sequence[Any], shards: Shards, clock: Clock, what: str, clips: bool = False
    ) -> Any:
        """This process's batches of a stage, with its progress shown."""
        mine = stage.mine()
        size = self.fitting.largest
        total = sum(len(shards.range(shard)) for shard in mine)
        if clips and total:
            size = max(1, size // max(1, len(items[0])))
        # The first process speaks for all: shards are dealt out evenly.
        with tqdm(total=total, desc=what, unit="item", disable=not self.store.processes.first or None) as bar:
            batches = load(
                self.model,
                items,
                shards,
                mine,
                batch=size,
                workers=self.settings.workers,
                clock=clock,
                clips=clips,
            )
            for batch in batches:
                yield batch
                bar.update(batch.last - batch.first)

    def _progress(self, stage: Stage, what: str) -> Any:
        return tqdm(stage.mine(), desc=what, unit="shard", disable=not self.store.processes.first or None)

    def _note(self, stage: Stage, clock: Clock) -> None:
        everyone = self.store.processes.gather((clock.waiting, clock.total, clock.images))
        waiting, total = sum(w for w, _, _ in everyone), sum(t for _, t, _ in everyone)
        stage.note(
            waiting_share=round(waiting / total, 4) if total else 0.0,
            images=sum(images for _, _, images in everyone),
            processes=len(everyone),
            batch_size=self.fitting.largest,
        )


def distinct(offs: Sequence[HeadSet]) -> tuple[list[HeadSet], list[int]]:
    """Each set of heads once, and where each of the given ones is among them."""
    place: dict[HeadSet, int] = {}
    where = [place.setdefault(off, len(place)) for off in offs]
    return list(place), where


def read_plan(stage: Stage, index: int, name: str = "plans") -> np.ndarray:
    """One plan's embeddings [n, D] over all shards, without reading the others'."""
    from safetensors import safe_open

    parts = []
    for shard in range(stage.shards):
        with safe_open(stage.paths[shard], "np") as file:
            parts.append(np.asarray(file.get_slice(name)[index : index + 1])[0])
    return np.concatenate(parts)


def peak_memory() -> int:
    """The most memory this process has held, in bytes, and its largest worker's."""
    import resource
    import sys

    unit = 1 if sys.platform == "darwin" else 1024
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return int((own + workers) * unit)


def device_memory() -> int:
    """The most memory of the GPU that tensors have held, in bytes; 0 without one."""
    return int(torch.cuda.max_memory_allocated()) if torch.cuda.is_available() else 0
