"""The stages that read images: head statistics, and embeddings under every ablation set.

Work is cut into shards that do not depend on the number of processes or the batch size, and the shards'
contents are joined in order, so the results are the same however the work was divided.
"""

import copy
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
from ccs.model.export import WeightChange, changed_weights
from ccs.model.head_statistics import Moments, collect_moments
from ccs.model.model import Model

_CHECKED_IMAGES = 4


@dataclass(frozen=True)
class Embedder:
    """Runs one model over images, each stage once."""

    model: Model
    store: Store
    settings: Settings

    @property
    def batch_size(self) -> int:
        """As many images as keep the arithmetic units busy and memory small."""
        tokens = 8_192 if self.model.encoder.device.type == "cpu" else 131_072
        fitting = int(np.clip(tokens // self.model.encoder.n_tokens, 1, 1024))
        return self.settings.batch_size or fitting

    def statistics(self, images: ImageSet) -> Stage:
        """Collect the statistics of the model's heads over the images, as sums of each shard."""

        def collect(batches: Iterator[Batch]) -> dict[str, np.ndarray]:
            return collect_moments(self.model, (pixels for pixels, _ in batches)).sums()

        return self._over_images("statistics", images, {"heads": str(self.model.heads)}, collect)

    def read_statistics(self, stage: Stage) -> Moments:
        """Return the statistics of all shards, added up in their order."""
        shards = map(stage.read, range(stage.shards))
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

        def embed_batch(batch: Batch) -> np.ndarray:
            pixels, sizes = batch
            pixels = self.model.openai_scaled(pixels) if as_published else pixels
            embedded = self.model.embed_images(pixels, list(head_sets), len(pixels))
            if len(sizes) == len(pixels):
                return embedded
            clips = np.split(embedded, np.cumsum(sizes)[:-1], axis=1)
            return np.stack([clip.mean(axis=1) for clip in clips], axis=1)

        def embed_all(batches: Iterator[Batch]) -> dict[str, np.ndarray]:
            return {"embeddings": np.concatenate([*map(embed_batch, batches)], axis=1)}

        inputs = {"ablations": [str(heads) for heads in head_sets], "precision": self.settings.precision}
        name = f"{'published' if as_published else 'embed'}/{data.name}"
        return self._over_images(name, data, inputs, embed_all)

    def inputs(self, data: ImageSet | RetrievalSet) -> dict[str, Any]:
        """Return the model and images that every stage on a set depends on."""
        images = {"images": data.fingerprint, "count": len(items(data))}
        return {"model": self.model.fingerprint, **images}

    def _over_images(
        self,
        name: str,
        data: ImageSet | RetrievalSet,
        inputs: Mapping[str, Any],
        reduce: Callable[[Iterator[Batch]], dict[str, np.ndarray]],
    ) -> Stage:
        """Do a stage that reads images: `reduce` makes a shard's arrays from its batches."""
        shards = shards_of(len(items(data)), self.settings.shard)
        stage = self.store.stage(name, {**self.inputs(data), **inputs}, len(shards))
        if not stage.missing:
            return stage
        processes, size = self.store.processes, self.batch_size
        wanted = {place: shards[place] for place in stage.missing[processes.rank :: processes.size]}
        if isinstance(data, RetrievalSet):
            size = max(1, size // max(1, len(data.clips[0])))
        loaded = load(self.model, data, [*wanted.values()], batch=size, workers=self.settings.workers)

        def write_shards(bar: Any) -> None:
            for shard, rows in wanted.items():
                batches = _counted(itertools.islice(loaded, -(-len(rows) // size)), bar)
                try:
                    arrays = reduce(batches)
                except torch.OutOfMemoryError as error:
                    message = f"{size} images at a time fill the memory; give a smaller --batch-size."
                    raise InputError(message) from error
                if not all(np.isfinite(array).all() for array in arrays.values()):
                    raise InputError(f"{self.model.name} gives no finite values for {data.name}.")
                stage.write(arrays, shard)

        with stage.working(sum(map(len, wanted.values()))) as bar:
            processes.together(partial(write_shards, bar))
        return stage


def _counted(batches: Iterable[Batch], bar: Any) -> Iterator[Batch]:
    """Yield the batches, and count each on a bar when the next one is wanted."""
    for batch in batches:
        yield batch
        bar.update(len(batch[1]))


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
    def embeddings_without(heads: HeadSet) -> np.ndarray:
        shards = []
        for shard in range(stage.shards):
            with safe_open(stage.paths[shard], "np") as file:
                shards.append(np.asarray(file.get_slice("embeddings")[places[heads]]))
        embeddings = np.concatenate(shards)
        return embeddings if rows is None else embeddings[rows]

    return embeddings_without


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
    copied, errors = copy.deepcopy(model.clip).eval(), []
    for heads, embedded in zip(head_sets, fast, strict=True):
        copied.load_state_dict(model.clip.state_dict() | changed_weights(model, WeightChange(heads)))
        with torch.no_grad(), without_tf32():
            slow = copied.encode_image(pixels.to(model.encoder.device), normalize=True)
        errors.append(float(np.abs(embedded - slow.cpu().numpy()).max()))
    total = contributions.direct.sum((1, 2)) + contributions.remainder
    of_sum = float(np.abs(total - fast[0]).max())
    return {"forward": errors[0], "ablation": max(errors[1:]), "contributions": of_sum}
