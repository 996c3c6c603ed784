"""The stages that run the model: text embeddings, head statistics, and images under every ablation set.

Work is cut into shards that do not depend on the number of processes or the batch size, and the shards'
contents are joined in order, so the results are the same however the work was divided.
"""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors import safe_open
from torch import Tensor

from ccs.batch.compute import Settings
from ccs.batch.compute.inputs import Batch, items, load, shards_of
from ccs.batch.compute.stages import Stage, Store
from ccs.data import ImageSet, RetrievalSet
from ccs.errors import InputError
from ccs.heads import Head, HeadSet
from ccs.model.encoders.decomposition import without_tf32
from ccs.model.export import ablated_weights
from ccs.model.head_statistics import Moments, collect_moments
from ccs.model.model import Model
from ccs.texts.pools import Pool

_TEXTS = 1024
_CHECKED_IMAGES = 4
_BLOCK = 2**29
"""Bytes of embeddings that are in memory while metrics are computed."""


@dataclass
class Backoff:
    """Runs work on batches of at most `largest` images, fewer once memory has run out."""

    largest: int

    def run(self, work: Callable[[Tensor], Any], pixels: Tensor) -> list[Any]:
        """Do `work` on pieces of the pixels that fit into memory.

        Args:
            work: Gets pixels [n, 3, s, s]. An error on a single image is raised.
            pixels: All pixels.

        Returns:
            The results, in order.
        """
        out: list[Any] = []
        start = 0
        while start < len(pixels):
            piece = pixels[start : start + self.largest]
            try:
                out.append(work(piece))
                start += len(piece)
                continue
            except (RuntimeError, MemoryError) as error:
                if not _out_of_memory(error) or len(piece) == 1:
                    raise
            # Only now: as long as the error is at hand, its frames hold the tensors that filled the memory.
            self.largest = len(piece) // 2
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        return out


_FULL = ("can't allocate memory", "not enough memory", "out of memory", "_STATUS_ALLOC_FAILED")
"""In the errors of the allocators of CPU and GPU, of cuBLAS, and of cuDNN when memory is full."""


def _out_of_memory(error: BaseException) -> bool:
    full = any(words in str(error) for words in _FULL)
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or full


class Embedder:
    """Runs one model over texts and images, each stage once."""

    def __init__(self, model: Model, store: Store, settings: Settings) -> None:
        """Choose the batch size.

        Args:
            model: The model.
            store: The stages that keep the embeddings.
            settings: The run's settings.
        """
        self.model, self.store, self.settings = model, store, settings
        # As many as keep the arithmetic units busy and memory small.
        tokens = 8_192 if model.encoder.device.type == "cpu" else 131_072
        fitting = int(np.clip(tokens // model.encoder.n_tokens, 1, 1024))
        self.backoff = Backoff(settings.batch_size or fitting)

    def texts(self, pool: Pool) -> Stage:
        """Embed the pool: unit vectors `texts` [n, D] in shards."""
        shards = shards_of(len(pool.texts), _TEXTS)
        inputs = {"weights": self.model.weights_hash, "texts": pool.fingerprint}
        stage = self.store.stage("texts", inputs, shards=len(shards), suffix="safetensors")

        def work() -> None:
            mine = stage.mine()
            with self.store.bar(desc="texts", total=sum(len(shards[shard]) for shard in mine)) as bar:
                for shard in mine:
                    rows = shards[shard]
                    embedded = self.model.embed_texts(pool.texts[rows.start : rows.stop])
                    stage.write_arrays(shard, {"texts": embedded})
                    bar.update(len(rows))

        if not stage.done:
            self.store.processes.together(work)
            stage.finish()
        return stage

    def moments(self, images: ImageSet) -> Stage:
        """Collect the statistics of the model's heads over the images, as sums of each shard."""
        inputs: dict[str, Any] = {"weights": self.model.weights_hash, "images": images.fingerprint}
        inputs |= {"heads": str(self.model.heads), "count": len(images.images)}

        def work(batch: Batch, parts: list[Moments]) -> None:
            sums = self.backoff.run(lambda piece: collect_moments(self.model, [piece]), batch.pixels)
            parts[:] = [functools.reduce(operator.add, parts + sums)]

        def arrays(parts: list[Moments]) -> dict[str, np.ndarray]:
            (whole,) = parts
            return whole.sums()

        return self._over_images("moments", images, inputs, work, arrays)

    def read_moments(self, stage: Stage) -> Moments:
        """Return the statistics of all shards, added up in their order."""
        shards = (stage.read_arrays(shard) for shard in range(stage.shards))
        return functools.reduce(Moments.plus_sums, shards, Moments.empty(self.model))

    def in_float32(self) -> Embedder:
        """Return the embedder of the same model in float32."""
        return Embedder(self.model.in_float32(), self.store, replace(self.settings, precision="fp32"))

    def plans(self, data: ImageSet | RetrievalSet, offs: Sequence[HeadSet], stage: str = "embed") -> Stage:
        """Embed a set with each set of heads ablated. A clip's embedding is the mean of its frames'.

        Args:
            data: The set.
            offs: The sets of heads.
            stage: The first part of the stage's name.

        Returns:
            A stage with `plans` [sets of heads, n, D] in shards and, if `scaled_as_published`, `published`:
            the same for frames with OpenAI's mean and deviation.
        """

        def work(batch: Batch, parts: list[dict[str, np.ndarray]]) -> None:
            pieces = self.backoff.run(functools.partial(self.embed, data, offs), batch.pixels)
            ends = np.cumsum(batch.sizes)[:-1]
            whole = _joined(pieces)
            if len(ends) + 1 < len(batch.pixels):  # clips
                for name, array in whole.items():
                    clips = [clip.mean(axis=1) for clip in np.split(array, ends, axis=1)]
                    whole[name] = np.stack(clips, axis=1)
            parts.append(whole)

        inputs = self.plans_inputs(data, offs)
        return self._over_images(f"{stage}/{data.name}", data, inputs, work, _joined)

    def plans_inputs(self, data: ImageSet | RetrievalSet, offs: Sequence[HeadSet]) -> dict[str, Any]:
        """Return all that the embeddings of `plans` depend on.

        Args:
            data: The set.
            offs: The sets of heads.
        """
        return {
            "weights": self.model.weights_hash,
            "images": data.fingerprint,
            "count": len(items(data)),
            "plans": [str(off) for off in offs],
            "precision": self.settings.precision,
        } | ({"published": True} if self.scaled_as_published(data) else {})

    def scaled_as_published(self, data: ImageSet | RetrievalSet) -> bool:
        """Return True if the paper's code scales a set's frames differently from the model."""
        videos = isinstance(data, RetrievalSet) and self.settings.as_published
        return videos and not self.model.is_openai_scaled

    def embed(
        self, data: ImageSet | RetrievalSet, offs: Sequence[HeadSet], pixels: Tensor
    ) -> dict[str, np.ndarray]:
        """Embed some pixels of a set.

        Args:
            data: The set.
            offs: The sets of heads.
            pixels: The pixels [n, 3, s, s].

        Returns:
            The arrays of `plans`, with a row per image.
        """
        arrays = {"plans": self.model.embed_images(pixels, list(offs), len(pixels))}
        if self.scaled_as_published(data):
            scaled = self.model.openai_scaled(pixels)
            arrays["published"] = self.model.embed_images(scaled, list(offs), len(pixels))
        return arrays

    def _over_images(
        self,
        name: str,
        data: ImageSet | RetrievalSet,
        inputs: dict[str, Any],
        work: Callable[[Batch, list[Any]], None],
        arrays: Callable[[list[Any]], dict[str, np.ndarray]],
    ) -> Stage:
        """Do a stage that reads images: `work` adds a batch to a shard's parts, `arrays` joins them."""
        shards = shards_of(len(items(data)), self.settings.shard)
        stage = self.store.stage(name, inputs, shards=len(shards), suffix="safetensors")
        if stage.done:
            return stage
        mine, size = stage.mine(), self.backoff.largest
        total = sum(len(shards[shard]) for shard in mine)
        if isinstance(data, RetrievalSet) and total:
            size = max(1, size // max(1, len(data.clips[0])))

        def write() -> None:
            parts: list[Any] = []
            workers = self.settings.workers
            with self.store.bar(desc=name, total=total) as bar:
                for batch in load(self.model, data, shards, mine, batch=size, workers=workers):
                    work(batch, parts)
                    bar.update(batch.last - batch.first)
                    if batch.ends_shard:
                        whole = arrays(parts)
                        if not all(np.isfinite(array).all() for array in whole.values()):
                            raise InputError(f"{self.model.name} gives no finite values for {data.name}.")
                        stage.write_arrays(batch.shard, whole)
                        parts = []

        self.store.processes.together(write)
        stage.finish()
        return stage


def _joined(parts: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}


class PlanReader:
    """Reads embeddings [n, D] under an ablation set, in blocks, so that a shard is opened once per block."""

    def __init__(
        self,
        stage: Stage,
        offs: Sequence[HeadSet],
        order: Sequence[HeadSet],
        name: str = "plans",
        rows: np.ndarray | None = None,
    ) -> None:
        """Choose the size of a block.

        Args:
            stage: The stage of `Embedder.plans`.
            offs: Its sets of heads.
            order: The sets of heads that will be read, in this order.
            name: The array in the stage.
            rows: The images to read (default: all).
        """
        self._stage, self._offs, self._order, self._name = stage, offs, order, name
        self._wanted = slice(None) if rows is None else rows
        with safe_open(stage.paths[0], "np") as file:
            arrays = len(list(file.keys())) * file.get_slice(name).get_shape()[0]
        size = sum(path.stat().st_size for path in stage.paths.values()) // max(1, arrays)
        self._many = max(1, _BLOCK // max(1, size))
        self._held: dict[HeadSet, np.ndarray] = {}

    def __call__(self, off: HeadSet) -> np.ndarray:
        if off not in self._held:
            self._held = {}  # first, so that two blocks are never in memory
            place = self._order.index(off)
            self._held = self._read(self._order[place : place + self._many])
        return self._held[off]

    def _read(self, block: Sequence[HeadSet]) -> dict[HeadSet, np.ndarray]:
        parts: dict[HeadSet, list[np.ndarray]] = {off: [] for off in block}
        for shard in range(self._stage.shards):
            with safe_open(self._stage.paths[shard], "np") as file:
                rows = file.get_slice(self._name)
                for off, read in parts.items():
                    read.append(np.asarray(rows[self._offs.index(off)]))
        return {off: np.concatenate(read)[self._wanted] for off, read in parts.items()}


# Checks --------------------------------------------------------------------------------------------------


def largest_errors(model: Model, images: Sequence[Image.Image]) -> dict[str, float]:
    """Measure how exact the fast paths are on a few images.

    Args:
        model: The model.
        images: Images; the first four are used.

    Returns:
        The largest difference of a coordinate of the unit embedding: `forward` against open_clip's
        encode_image, `plans` against a copy of the model with zeroed output columns, and `contributions`
        summed against the embedding.
    """
    last = Head(model.n_layers - 1, 0)
    plans = [HeadSet(), model.heads, HeadSet([last]), HeadSet([Head(max(0, last.layer - 2), 0), last])]
    pixels = model.preprocess([images[i] for i in range(min(_CHECKED_IMAGES, len(images)))])
    fast = model.embed_images(pixels, plans)
    parts = model.contributions(pixels)
    copied, slow = copy.deepcopy(model.clip).eval(), []
    for off in plans:
        copied.load_state_dict(ablated_weights(model, off))
        with torch.no_grad(), without_tf32():
            embedded = copied.encode_image(pixels.to(model.encoder.device), normalize=True)
        slow.append(embedded.cpu().numpy())
    errors = [float(np.abs(a - b).max()) for a, b in zip(fast, slow, strict=True)]
    total = parts.direct.sum((1, 2)) + parts.remainder
    return {
        "forward": errors[0],
        "plans": max(errors[1:]),
        "contributions": float(np.abs(total - fast[0]).max()),
    }
