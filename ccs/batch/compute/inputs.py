"""The images and evaluation sets of a run: opened, described, and decoded ahead of the model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ccs import sandbox
from ccs.analysis.bias import set_question
from ccs.analysis.crossing import SMALLEST, format_left_out
from ccs.analysis.inputs import open_people, require_readable
from ccs.batch.compute import Settings
from ccs.batch.compute.stages import digest
from ccs.data import SOURCES, BiasSet, ClassificationSet, ImageSet, RetrievalSet, synthetic
from ccs.data.decoding import UNREADABLE
from ccs.data.open import open_dataset, open_gallery, open_images
from ccs.errors import InputError
from ccs.model.model import Model

EvaluationSet = ClassificationSet | BiasSet | RetrievalSet
Opened = tuple[ImageSet, list[EvaluationSet], list[dict[str, str]]]
"""The images of the statistics, the evaluation sets, and name and reason of those that are missing."""

_LEAST_FOR_WORKERS = 256
"""Below so many images worker processes take longer to start than they save."""
_MOST_WORKERS = 16
"""More only cost memory: they decode some thousands of photographs a second, and start for every stage."""


# Sets ---------------------------------------------------------------------------------------------------


def open_all(settings: Settings, tell: Callable[[str], None]) -> Opened:
    """Fetch, open, and hash all that a run reads.

    Args:
        settings: The run's settings.
        tell: Gets a sentence for everything that is left out.
    """
    images = open_moment_images(settings)
    _tell_unreadable(images, settings, tell)
    return images, *open_datasets(settings, tell)


def _tell_unreadable(data: ImageSet | RetrievalSet, settings: Settings, tell: Callable[[str], None]) -> None:
    for name in require_readable(data, settings.skip_unreadable):
        tell(f"Left out of {data.name}: {name}")


def open_moment_images(settings: Settings) -> ImageSet:
    """Open the images for head statistics. Raises InputError if fewer than two are readable."""
    images = open_images(settings.images, settings.max_images, seed=settings.seed)
    if len(images.images) < 2:
        raise InputError(
            f"{settings.images} holds {len(images.images)} readable image{'s' * (len(images.images) != 1)}; "
            "at least two are needed to see how a head varies."
        )
    return images


def names_of_sets(settings: Settings) -> tuple[str, ...]:
    """Return the names of the evaluation sets: those of the settings, or else the suite's."""
    studied = tuple(record.name for record in SOURCES.values() if record.measured)
    drawn = tuple(f"world/{name}" for name in synthetic.names())
    suites = {"world": drawn, "paper": studied, "none": ()}
    return settings.datasets or suites[settings.suite or "none"]


def open_datasets(
    settings: Settings, tell: Callable[[str], None]
) -> tuple[list[EvaluationSet], list[dict[str, str]]]:
    """Open the evaluation sets.

    Args:
        settings: The run's settings.
        tell: Gets a sentence for everything that is left out.

    Returns:
        The sets, and the name and reason of those of a suite that are missing.

    Raises:
        InputError: A set that the user names is missing, or two sets have one name.
    """
    sets: list[EvaluationSet] = []
    absent: list[dict[str, str]] = []
    for name in names_of_sets(settings):
        try:
            opened = _open(name, settings)
            if isinstance(opened, BiasSet):
                opened = set_question(opened)
            _tell_unreadable(opened, settings, tell)
        except InputError as error:
            if settings.datasets:
                raise
            absent.append({"name": name, "reason": str(error)})
            tell(f"{name} is left out: {error}")
            continue
        if not isinstance(opened, EvaluationSet):
            raise InputError(f"{name!r} holds images without labels: give it as --images, not --dataset.")
        sets.append(opened)
    for spec in settings.galleries:
        people = _open_people(spec, settings, tell)
        sets.append(set_question(people, settings.occupations, settings.template, settings.top))
        _tell_unreadable(people, settings, tell)
    names = [data.name for data in sets]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"Two sets have the name {twice[0]!r}, under which results are stored: rename one.")
    return sets, absent


def _open(name: str, settings: Settings) -> ImageSet | RetrievalSet:
    if name == "world/clips" and settings.eval_images is not None:  # a clip is several images
        return synthetic.retrieval_set(max(10, settings.eval_images // 4))
    return open_dataset(
        name, max_images=settings.eval_images, classes=settings.classes, template=settings.template
    )


def _open_people(name: str, settings: Settings, tell: Callable[[str], None]) -> BiasSet:
    """Open a gallery; several attributes with commas between them are crossed."""
    if settings.attribute is None:
        return open_gallery(name, max_images=settings.eval_images)
    people, attribute, left_out = open_people(name, settings.attribute, settings.eval_images)
    if not left_out:
        return people
    note = f"{attribute}: left out groups of fewer than {SMALLEST} people: {format_left_out(left_out)}"
    tell(f"{people.name}, {note}")
    fingerprint = digest([people.fingerprint, note])  # of the people that are left
    return replace(people, notes=(*people.notes, note), fingerprint=fingerprint)


def items(data: ImageSet | RetrievalSet) -> Sequence[Any]:
    """Return the set's images, or its clips of several images each."""
    return data.clips if isinstance(data, RetrievalSet) else data.images


def described(data: EvaluationSet) -> dict[str, Any]:
    """Describe a set for the manifest."""
    entry: dict[str, Any] = {"name": data.name, "kind": "retrieval", "count": len(items(data))}
    if isinstance(data, ClassificationSet):
        entry |= {"kind": "classification", "classes": len(data.classes)}
    elif isinstance(data, BiasSet):
        entry |= {"kind": "bias", "occupations": len(data.occupations), "k": dict(data.k)}
    if not isinstance(data, RetrievalSet):
        entry["templates"] = list(data.templates)
    return entry | {
        "fingerprint": data.fingerprint,
        "source": data.source,
        "skipped": list(data.skipped),
        "notes": list(data.notes),
    }


def hosts(
    sets: Sequence[EvaluationSet], plans: Mapping[str, object]
) -> dict[str, tuple[EvaluationSet, np.ndarray | None]]:
    """Find sets whose embeddings another set has, such as CIFAR-100 for both spellings of its classes.

    Args:
        sets: The sets.
        plans: Their ablation sets, by name.

    Returns:
        By name, the largest set that has all images of the set and equal ablation sets, and the places of the
        images there; the set itself and None if no other has them.
    """
    host_of: dict[str, tuple[EvaluationSet, np.ndarray | None]] = {data.name: (data, None) for data in sets}
    by_size = sorted(sets, key=lambda data: -len(items(data)))
    for place, data in enumerate(by_size):
        for other in by_size[:place]:
            at = _places(data, other) if plans[other.name] == plans[data.name] else None
            if at is not None:
                host_of[data.name] = other, at
                break
    return host_of


def _places(data: EvaluationSet, other: EvaluationSet) -> np.ndarray | None:
    """Return the places of a set's images in another; None if one is missing there."""
    ours, theirs = getattr(data, "digests", None), getattr(other, "digests", None)
    if ours is None or theirs is None or not (theirs == ours[0]).all(axis=1).any():
        return None
    at = {digest.tobytes(): place for place, digest in enumerate(theirs)}
    places = [at.get(digest.tobytes(), -1) for digest in ours]
    return None if -1 in places else np.array(places)


def question(data: EvaluationSet) -> str:
    """Hash all that matters of a set besides its images: labels, classes, templates, groups, captions."""
    images = {"images", "clips", "digests", "fingerprint", "source", "skipped", "notes"}
    names = [field.name for field in fields(data) if field.name not in images]
    return digest({name: getattr(data, name) for name in names})


# Pixels -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    """Pixels [n, 3, s, s] of items `first` to `last` of a shard; an item (a clip) may be several images."""

    shard: int
    first: int
    last: int
    pixels: Tensor
    sizes: tuple[int, ...]
    ends_shard: bool


def shards_of(items: int, size: int | None = None) -> list[range]:
    """Cut items into shards: small enough to lose little, and few enough for a folder.

    Args:
        items: The number of items.
        size: Items of a shard (default: by the number of items, not by that of processes).
    """
    size = size or min(65_536, max(128, -(-items // 1000)))
    return [range(start, min(items, start + size)) for start in range(0, max(1, items), size)]


@dataclass(frozen=True)
class _Items(torch.utils.data.Dataset[tuple[Tensor, int] | str]):
    """The pixels of each item and how many images it is."""

    preprocess: Callable[[Sequence[Image.Image]], Tensor]
    items: Sequence[Any]
    clips: bool

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> tuple[Tensor, int] | str:
        """Return pixels and count, or why not: an exception would bring a worker's traceback."""
        try:
            item = self.items[index]
            frames = list(item) if self.clips else [item]
        except InputError as error:
            return str(error)
        except UNREADABLE as error:
            return (
                f"Image {index + 1} of {len(self)} could be read when the run began and cannot be any more: "
                f"{sandbox.reason(error)[:300]}. Put it back, or run the same command again without it."
            )
        return self.preprocess(frames), len(frames)


def load(
    model: Model,
    data: ImageSet | RetrievalSet,
    shards: Sequence[range],
    wanted: Sequence[int],
    *,
    batch: int,
    workers: int | None,
) -> Iterator[Batch]:
    """Load pixels in order, in batches that never cross a shard's end.

    Args:
        model: The model, for its preprocessing.
        data: The set.
        shards: All shards.
        wanted: The indices of the shards to load.
        batch: Items per batch.
        workers: Processes that decode (default: automatic).

    Raises:
        InputError: If an item can't be read.
    """
    n = sum(len(shards[shard]) for shard in wanted)
    if not n:
        return
    processes = decoders(n, model.encoder.device.type, workers)
    loader = torch.utils.data.DataLoader(
        _Items(model.preprocess, items(data), isinstance(data, RetrievalSet)),
        batch_sampler=(list(rows) for _, rows in _batches(shards, wanted, batch)),
        collate_fn=_join,
        worker_init_fn=sandbox.end_with_parent,
        num_workers=processes,
        prefetch_factor=2 if processes else None,
        pin_memory=model.encoder.device.type == "cuda",
        multiprocessing_context="fork" if processes else None,
    )
    for (shard, rows), joined in zip(_batches(shards, wanted, batch), loader, strict=True):
        if isinstance(joined, str):
            raise InputError(joined)
        pixels, sizes = joined
        yield Batch(shard, rows.start, rows.stop, pixels, sizes, rows.stop == shards[shard].stop)


def _batches(shards: Sequence[range], wanted: Sequence[int], size: int) -> Iterator[tuple[int, range]]:
    """Yield shard and items of each batch."""
    for shard in wanted:
        for start in shards[shard][::size]:
            yield shard, range(start, min(start + size, shards[shard].stop))


def _join(loaded: list[tuple[Tensor, int] | str]) -> tuple[Tensor, tuple[int, ...]] | str:
    """Join the pixels, or return the first of the reasons why there are none."""
    pairs = []
    for item in loaded:
        if isinstance(item, str):
            return item
        pairs.append(item)
    return torch.cat([pixels for pixels, _ in pairs]), tuple(count for _, count in pairs)


def decoders(images: int, device: str, workers: int | None = None) -> int:
    """Choose the number of processes that decode for this one.

    Args:
        images: The number of images; a short job needs none.
        device: "cpu" leaves half of the cores to the model.
        workers: The user's choice.
    """
    if workers is not None:
        return workers
    if images < _LEAST_FOR_WORKERS:
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    cores = max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    return min(_MOST_WORKERS, cores // 2 if device == "cpu" else cores - 1)
