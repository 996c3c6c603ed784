"""The images and evaluation sets of a run: opened, and decoded ahead of the model."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ccs import sandbox
from ccs.analysis.inputs import SMALLEST, format_left_out, open_people, set_question
from ccs.batch.compute import Settings
from ccs.batch.compute.stages import digest
from ccs.data import BiasSet, ClassificationSet, ImageSet, RetrievalSet
from ccs.data.decoding import COMPLETE, UNREADABLE
from ccs.data.open import open_dataset, open_gallery, open_images
from ccs.errors import InputError
from ccs.files import atomic_write
from ccs.model.model import Model

EvaluationSet = ClassificationSet | BiasSet | RetrievalSet
Host = tuple[EvaluationSet, np.ndarray | None]
"""A dataset whose embeddings another one uses, and the places of the other's images in it (None: equal)."""
Opened = tuple[ImageSet, list[EvaluationSet], list[dict[str, str]]]
"""The images of the statistics, the evaluation sets, and name and reason of those that are missing."""

_LEAST_FOR_WORKERS = 256
"""With fewer images, worker processes take longer to start than they save."""
_MOST_WORKERS = 16
"""More would only cost memory: these decode thousands of photographs a second, and each stage starts them."""


# Sets ---------------------------------------------------------------------------------------------------


def open_all(settings: Settings, tell: Callable[[str], None], checked: Path | None = None) -> Opened:
    """Fetch, open, and hash all that a run reads.

    Args:
        settings: The run's settings.
        tell: Function that is called with a sentence for everything that is left out.
        checked: The file that keeps the SHA-256 of images that are complete: a resumed run doesn't decode
            these to check it.

    Raises:
        InputError: The images or a set that the user names can't be used, or two sets have one name.
    """
    if checked and checked.exists():
        hashes = checked.read_bytes()
        COMPLETE.update(hashes[start : start + 32] for start in range(0, len(hashes), 32))
    images = open_images(settings.images, settings.max_images, seed=settings.seed)
    if (count := len(images.images)) < 2:
        raise InputError(
            f"{settings.images} holds {count} readable image{'s' * (count != 1)}; at least two are needed to "
            "see how a head varies."
        )
    sets: list[EvaluationSet] = []
    absent: list[dict[str, str]] = []
    for name in settings.evaluation_sets():
        try:
            sets.append(_open(name, settings))
        except InputError as error:
            if settings.datasets:
                raise
            absent.append({"name": name, "reason": str(error)})
            tell(f"{name} is left out: {error}")
    sets += [_open_people(name, settings, tell) for name in settings.galleries]
    for data in (images, *sets):
        data.require_readable(settings.skip_unreadable)
        for skipped in data.skipped:
            tell(f"Left out of {data.name}: {skipped}")
    names = [data.name for data in sets]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"Two datasets are named {twice[0]!r}, under which results are stored: rename one.")
    if checked and COMPLETE:
        with atomic_write(checked) as temporary:
            temporary.write_bytes(b"".join(sorted(COMPLETE)))
    return images, sets, absent


def _open(name: str, settings: Settings) -> EvaluationSet:
    limit = settings.eval_images
    if name == "world/clips" and limit is not None:  # a clip is several images
        limit = max(10, limit // 4)
    data = open_dataset(name, max_images=limit, classes=settings.classes, template=settings.template)
    if not isinstance(data, EvaluationSet):
        raise InputError(f"{name!r} holds images without labels: give it as --images, not --dataset.")
    data.require_readable(settings.skip_unreadable)
    return set_question(data) if isinstance(data, BiasSet) else data


def _open_people(name: str, settings: Settings, tell: Callable[[str], None]) -> BiasSet:
    """Open a gallery with the user's question; several attributes with commas between them are crossed."""
    if settings.attribute is None:
        people = open_gallery(name, max_images=settings.eval_images)
    else:
        people, attribute, left_out = open_people(name, settings.attribute, settings.eval_images)
        if left_out:
            note = f"{attribute}: left out groups of under {SMALLEST} people: {format_left_out(left_out)}"
            tell(f"{people.name}, {note}")
            fingerprint = digest([people.fingerprint, note])  # of the people that are left
            people = replace(people, notes=(*people.notes, note), fingerprint=fingerprint)
    return set_question(people, settings.occupations, settings.template, settings.top)


def items(data: ImageSet | RetrievalSet) -> Sequence[Any]:
    """Return the set's images, or its clips of several images each."""
    return data.clips if isinstance(data, RetrievalSet) else data.images


def hosts(sets: Sequence[EvaluationSet], ablations: Mapping[str, object]) -> dict[str, Host]:
    """Find sets whose embeddings another set has, such as CIFAR-100 for both spellings of its classes.

    Args:
        sets: The sets.
        ablations: Their ablation sets, by name.

    Returns:
        By name, the largest set that has all images of the set and equal ablation sets, and the places of the
        images there; the set itself and None if no other has them.
    """
    by_size = sorted(sets, key=lambda data: -len(items(data)))
    host_of: dict[str, Host] = {}
    for place, data in enumerate(by_size):
        equal = (other for other in by_size[:place] if ablations[other.name] == ablations[data.name])
        shared = ((other, at) for other in equal if (at := _places(data, other)) is not None)
        host_of[data.name] = next(shared, (data, None))
    return host_of


def _places(data: EvaluationSet, other: EvaluationSet) -> np.ndarray | None:
    """Return the places of a dataset's images in another; None if one is missing there."""
    ours, theirs = getattr(data, "digests", None), getattr(other, "digests", None)
    if ours is None or theirs is None:
        return None
    place_of = {digest.tobytes(): place for place, digest in enumerate(theirs)}
    places = [place_of.get(digest.tobytes()) for digest in ours]
    return None if None in places else np.array(places)


def question(data: EvaluationSet) -> str:
    """Hash everything in a dataset but its images: labels, classes, templates, groups, and captions."""
    images = {"images", "clips", "digests", "fingerprint", "source", "skipped", "notes"}
    return digest({name: value for name, value in vars(data).items() if name not in images})


# Pixels -------------------------------------------------------------------------------------------------


Batch = tuple[Tensor, Sequence[int]]
"""Pixels [n, 3, s, s] of some items, and the number of images of each item, 1 or a clip's."""


def shards_of(items: int, size: int | None = None) -> list[range]:
    """Cut items into shards: small enough to lose little, and few enough for a folder.

    Args:
        items: The number of items.
        size: Items per shard (default: depends on the number of items, never on the number of processes).
    """
    size = size or min(65_536, max(128, -(-items // 1000)))
    return [range(start, min(items, start + size)) for start in range(0, max(1, items), size)]


@dataclass(frozen=True)
class _Pixels(torch.utils.data.Dataset[Batch | str]):
    """Batches of pixels."""

    preprocess: Callable[[Sequence[Image.Image]], Tensor]
    items: Sequence[Any]

    def __getitem__(self, rows: range) -> Batch | str:
        """Return the pixels, or why they can't be read: an exception would carry a worker's traceback."""
        pixels = []
        for row in rows:
            try:
                item = self.items[row]
                frames = [item] if isinstance(item, Image.Image) else list(item)
            except InputError as error:
                return str(error)
            except UNREADABLE as error:
                return (
                    f"Image {row + 1} of {len(self.items)} could be read when the run began and cannot be "
                    f"any more: {sandbox.reason(error)[:300]}. Put it back, or run the same command again "
                    "without it."
                )
            pixels.append(self.preprocess(frames))
        return torch.cat(pixels), [*map(len, pixels)]


def load(
    model: Model, data: ImageSet | RetrievalSet, shards: Sequence[range], *, batch: int, workers: int | None
) -> Iterator[Batch]:
    """Load pixels in order, in batches that never cross a shard's end.

    Args:
        model: The model, for its preprocessing.
        data: The set.
        shards: The shards to load.
        batch: Items per batch.
        workers: Processes that decode (default: automatic).

    Raises:
        InputError: If an item can't be read.
    """
    processes = decoders(sum(map(len, shards)), model.encoder.device.type, workers)
    loader = torch.utils.data.DataLoader(
        _Pixels(model.preprocess, items(data)),
        batch_size=None,  # an index is a whole batch
        sampler=[rows[start : start + batch] for rows in shards for start in range(0, len(rows), batch)],
        worker_init_fn=sandbox.end_with_parent,
        num_workers=processes,
        prefetch_factor=2 if processes else None,
        pin_memory=model.encoder.device.type == "cuda",
        multiprocessing_context="fork" if processes else None,
    )
    for loaded in loader:
        if isinstance(loaded, str):
            raise InputError(loaded)
        yield loaded


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
    cores = max(1, cores // max(1, int(os.environ.get("LOCAL_WORLD_SIZE") or 1)))
    return min(_MOST_WORKERS, cores // 2 if device == "cpu" else cores - 1)
