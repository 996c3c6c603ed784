"""The stages that run the model: text embeddings, head statistics, and images under every ablation set.

Work is cut into shards that do not depend on the number of processes or the batch size, and the shards'
contents are joined in order, so the results are the same however the work was divided.
"""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors import safe_open

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

_CHECKED_IMAGES = 4
Parts = list[Any]
"""The results of a shard's batches, in order."""


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
        self.batch_size = settings.batch_size or fitting

    def texts(self, pool: Pool) -> Stage:
        """Embed the pool: unit vectors `texts` [n, D]."""
        inputs = {"weights": self.model.weights_hash, "texts": pool.fingerprint}
        stage = self.store.stage("texts", inputs, suffix="safetensors")
        if stage.missing:
            with self.store.bar(desc="texts", total=len(pool.texts)) as bar:
                self.store.processes.once(
                    lambda: stage.write_arrays(0, {"texts": self.model.embed_texts(pool.texts)})
                )
                bar.update(len(pool.texts))
            stage.finish()
        return stage

    def statistics(self, images: ImageSet) -> Stage:
        """Collect the statistics of the model's heads over the images, as sums of each shard."""
        inputs: dict[str, Any] = {"weights": self.model.weights_hash, "images": images.fingerprint}
        inputs |= {"heads": str(self.model.heads), "count": len(images.images)}

        def add_statistics(parts: Parts, batch: Batch) -> Parts:
            """Add the sums of a batch to those of its shard.

            Args:
                parts: The shard's sums so far, as a list of at most one item.
                batch: The batch.
            """
            return [functools.reduce(operator.add, [*parts, collect_moments(self.model, [batch.pixels])])]

        return self._over_images(
            "statistics", images, inputs, add_statistics, lambda parts: dict(parts[0].sums())
        )

    def read_statistics(self, stage: Stage) -> Moments:
        """Return the statistics of all shards, added up in their order."""
        shards = (stage.read_arrays(shard) for shard in range(stage.shards))
        return functools.reduce(Moments.plus_sums, shards, Moments.empty(self.model))

    def embed_set(
        self, data: ImageSet | RetrievalSet, head_sets: Sequence[HeadSet], *, as_published: bool = False
    ) -> Stage:
        """Embed a set with each set of heads ablated. A clip's embedding is the mean of its frames'.

        Args:
            data: The set.
            head_sets: The sets of heads.
            as_published: Scale pixels by OpenAI's mean and deviation, as the paper's code does.

        Returns:
            A stage with `embeddings` [sets of heads, n, D] in shards.
        """

        def add_embeddings(parts: Parts, batch: Batch) -> Parts:
            """Add the embeddings of a batch to those of its shard.

            Args:
                parts: The shard's embeddings so far [sets, n, D].
                batch: The batch.
            """
            pixels = self.model.openai_scaled(batch.pixels) if as_published else batch.pixels
            embedded = self.model.embed_images(pixels, list(head_sets), len(pixels))
            if len(batch.sizes) < len(pixels):  # clips
                clips = np.split(embedded, np.cumsum(batch.sizes)[:-1], axis=1)
                embedded = np.stack([clip.mean(axis=1) for clip in clips], axis=1)
            return [*parts, embedded]

        name = f"{'published' if as_published else 'embed'}/{data.name}"
        inputs = self.inputs_of(data, head_sets)
        return self._over_images(
            name, data, inputs, add_embeddings, lambda parts: {"embeddings": np.concatenate(parts, axis=1)}
        )

    def inputs_of(self, data: ImageSet | RetrievalSet, head_sets: Sequence[HeadSet]) -> dict[str, Any]:
        """Return all that the embeddings of `images` depend on.

        Args:
            data: The set.
            head_sets: The sets of heads.
        """
        return {
            "weights": self.model.weights_hash,
            "images": data.fingerprint,
            "count": len(items(data)),
            "ablations": [str(heads) for heads in head_sets],
            "precision": self.settings.precision,
        }

    def _over_images(
        self,
        name: str,
        data: ImageSet | RetrievalSet,
        inputs: dict[str, Any],
        add: Callable[[Parts, Batch], Parts],
        join: Callable[[Parts], dict[str, np.ndarray]],
    ) -> Stage:
        """Do a stage that reads images: `add` adds a batch to a shard's parts, `join` makes its arrays."""
        shards = shards_of(len(items(data)), self.settings.shard)
        stage = self.store.stage(name, inputs, shards=len(shards), suffix="safetensors")
        if not stage.missing:
            return stage
        wanted, size, workers = stage.mine(), self.batch_size, self.settings.workers
        if isinstance(data, RetrievalSet):
            size = max(1, size // max(1, len(data.clips[0])))

        def write() -> None:
            parts: Parts = []
            with self.store.bar(desc=name, total=sum(len(shards[shard]) for shard in wanted)) as bar:
                for batch in load(self.model, data, shards, wanted, batch=size, workers=workers):
                    try:
                        parts = add(parts, batch)
                    except torch.OutOfMemoryError as error:
                        message = f"{size} images at a time fill the memory; give a smaller --batch-size."
                        raise InputError(message) from error
                    bar.update(len(batch.sizes))
                    if batch.ends_shard:
                        arrays, parts = join(parts), []
                        if not all(np.isfinite(array).all() for array in arrays.values()):
                            raise InputError(f"{self.model.name} gives no finite values for {data.name}.")
                        stage.write_arrays(batch.shard, arrays)

        self.store.processes.together(write)
        stage.finish()
        return stage


def read_embeddings(
    stage: Stage, head_sets: Sequence[HeadSet], rows: np.ndarray | None = None
) -> Callable[[HeadSet], np.ndarray]:
    """Return a function that reads embeddings [n, D] with some heads ablated, and keeps only the last.

    Args:
        stage: The stage of `Embedder.embed_set`.
        head_sets: Its sets of heads.
        rows: The images to read (default: all).
    """
    places = {heads: place for place, heads in enumerate(head_sets)}

    @functools.lru_cache(maxsize=1)
    def read(heads: HeadSet) -> np.ndarray:
        shards = []
        for shard in range(stage.shards):
            with safe_open(stage.paths[shard], "np") as file:
                shards.append(np.asarray(file.get_slice("embeddings")[places[heads]]))
        embeddings = np.concatenate(shards)
        return embeddings if rows is None else embeddings[rows]

    return read


def largest_errors(model: Model, images: Sequence[Image.Image]) -> dict[str, float]:
    """Measure how exact the fast paths are on a few images.

    Args:
        model: The model.
        images: Images; the first four are used.

    Returns:
        The largest difference of a coordinate of the unit embedding: `forward` against open_clip's
        encode_image, `ablation` against a copy of the model with zeroed output columns, and `contributions`
        summed against the embedding.
    """
    last = Head(model.n_layers - 1, 0)
    head_sets = [HeadSet(), model.heads, HeadSet([last]), HeadSet([Head(max(0, last.layer - 2), 0), last])]
    pixels = model.preprocess([images[i] for i in range(min(_CHECKED_IMAGES, len(images)))])
    fast = model.embed_images(pixels, head_sets)
    contributions = model.contributions(pixels)
    copied, slow = copy.deepcopy(model.clip).eval(), []
    for heads in head_sets:
        copied.load_state_dict(ablated_weights(model, heads))
        with torch.no_grad(), without_tf32():
            embedded = copied.encode_image(pixels.to(model.encoder.device), normalize=True)
        slow.append(embedded.cpu().numpy())
    errors = [float(np.abs(a - b).max()) for a, b in zip(fast, slow, strict=True)]
    total = contributions.direct.sum((1, 2)) + contributions.remainder
    return {
        "forward": errors[0],
        "ablation": max(errors[1:]),
        "contributions": float(np.abs(total - fast[0]).max()),
    }
