"""Images into pixels, ahead of the model: decoded in worker processes, prefetched, the wait measured."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ccs.model.model import Model

_LEAST_FOR_WORKERS = 256
"""Below so many images worker processes take longer to start than they save."""
_MOST_WORKERS = 16
"""More only cost memory: they decode some thousands of photographs a second, and start for every stage."""


@dataclass
class Clock:
    """Seconds of a stage spent waiting for images, and in all."""

    waiting: float = 0.0
    total: float = 0.0
    images: int = 0


@dataclass(frozen=True)
class Batch:
    """Pixels [n, 3, s, s] of items `first` to `last` of a shard; an item (a clip) may be several images."""

    shard: int
    first: int
    last: int
    pixels: Tensor
    sizes: tuple[int, ...]
    ends_shard: bool


@dataclass(frozen=True)
class Shards:
    """Items cut into shards of `size`: the same for any number of processes and any batch size."""

    items: int
    size: int

    @classmethod
    def of(cls, items: int, size: int | None = None) -> Shards:
        """Shards small enough to lose little when killed, and few enough for a folder to hold."""
        return cls(items, size or min(65_536, max(128, -(-items // 1000))))

    def __len__(self) -> int:
        return max(1, -(-self.items // self.size))

    def range(self, shard: int) -> range:
        """The items of a shard; the only shard of no items is empty."""
        return range(shard * self.size, min(self.items, (shard + 1) * self.size))


@dataclass(frozen=True)
class _Items(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """One item's pixels and how many images it is."""

    preprocess: Callable[[Sequence[Image.Image]], Tensor]
    items: Sequence[Any]
    clips: bool

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        item = self.items[index]
        frames = list(item) if self.clips else [item]
        return self.preprocess(frames), len(frames)


def _join(items: list[tuple[Tensor, int]]) -> tuple[Tensor, tuple[int, ...]]:
    return torch.cat([pixels for pixels, _ in items]), tuple(count for _, count in items)


def load(
    model: Model,
    items: Sequence[Any],
    shards: Shards,
    wanted: Sequence[int],
    *,
    batch: int,
    workers: int | None,
    clock: Clock,
    clips: bool = False,
) -> Iterator[Batch]:
    """The pixels of the wanted shards, in order, in batches that never cross a shard's end."""
    n = sum(len(shards.range(shard)) for shard in wanted)
    if not n:
        return
    processes = workers if workers is not None else decoding(n, model.tower.device.type)
    loader = torch.utils.data.DataLoader(
        _Items(model.preprocess, items, clips),
        batch_sampler=(list(rows) for _, rows in _batches(shards, wanted, batch)),
        collate_fn=_join,
        num_workers=processes,
        prefetch_factor=2 if processes else None,
        pin_memory=model.tower.device.type == "cuda",
        multiprocessing_context="fork" if processes and hasattr(os, "fork") else None,
        worker_init_fn=_one_thread if processes else None,
    )
    began = time.perf_counter()
    loaded = iter(loader)
    for shard, rows in _batches(shards, wanted, batch):
        asked = time.perf_counter()
        pixels, sizes = next(loaded)
        clock.waiting += time.perf_counter() - asked
        clock.images += len(pixels)
        yield Batch(shard, rows.start, rows.stop, pixels, sizes, rows.stop == shards.range(shard).stop)
    clock.total += time.perf_counter() - began


def _batches(shards: Shards, wanted: Sequence[int], size: int) -> Iterator[tuple[int, range]]:
    """Shard and items of each batch; one at a time, for a billion items make many."""
    for shard in wanted:
        rows = shards.range(shard)
        for start in range(rows.start, rows.stop, size):
            yield shard, range(start, min(start + size, rows.stop))


def cores_of_a_process() -> int:
    """How many cores this process has for itself, where it shares the machine with others of the run."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def decoding(images: int, device: str) -> int:
    """How many worker processes decode for this one: none for a short job; on a CPU, which computes itself,
    half of this process's cores, else all but one.
    """
    if images < _LEAST_FOR_WORKERS or not hasattr(os, "fork"):
        return 0
    cores = cores_of_a_process()
    return min(_MOST_WORKERS, cores // 2 if device == "cpu" else cores - 1)


def _one_thread(_: int) -> None:
    torch.set_num_threads(1)


@dataclass
class Fitting:
    """Runs work on batches, and on smaller ones from the first time that memory is short."""

    largest: int
    lowered: list[int] = field(default_factory=list)

    def run(self, work: Callable[[Tensor], Any], pixels: Tensor) -> list[Any]:
        """`work` on the pixels in pieces that fit, in order. What is raised for one image alone is raised."""
        out: list[Any] = []
        start = 0
        while start < len(pixels):
            piece = pixels[start : start + self.largest]
            try:
                out.append(work(piece))
                start += len(piece)
            except (RuntimeError, MemoryError) as error:
                if not _out_of_memory(error) or self.largest == 1:
                    raise
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
                self.largest = max(1, min(self.largest, len(piece)) // 2)
                self.lowered.append(self.largest)
        return out


def _out_of_memory(error: BaseException) -> bool:
    text = str(error)
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        "DefaultCPUAllocator: can't allocate memory" in text or "not enough memory" in text
    )


def batch_size(model: Model, asked: int | None) -> int:
    """Images at a time: as asked, else as many as keep the arithmetic units busy and memory small."""
    if asked is not None:
        return asked
    tokens = 8_192 if model.tower.device.type == "cpu" else 131_072
    return int(np.clip(tokens // model.tower.n_tokens, 1, 1024))
