"""Memory of the device: peaks relative to a plain pass, and the chosen batch size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch

import ccs
from benchmarks.gpu import sample
from benchmarks.gpu.lines import Bench, Line, Measured
from benchmarks.gpu.speed import plain
from ccs.batch.compute import Settings
from ccs.batch.compute.embed import Embedder
from ccs.batch.compute.stages import Processes, Store
from ccs.model.model import Model

PART = "memory"
KINDS = ("contributions", "one ablation set", "many ablation sets", "moments")


def lines(models: tuple[str, ...] = Bench.timed) -> Iterator[Line]:
    """The lines of every timed architecture."""
    for name in models:
        at = partial(Line, PART, model=name)
        for kind in KINDS:
            work = partial(peak, name=name, kind=kind)
            yield at(f"{name}, {kind}", "of a plain pass's peak", 2.0, work, anywhere=False)
        work = partial(chosen, name=name)
        yield at(f"{name}, the chosen batch size", "of the device's memory", 0.9, work, anywhere=False)


def _peak(bench: Bench, work: Callable[[], object]) -> int:
    """Bytes at most in use by tensors while it runs, beyond those in use before."""
    bench.done()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(bench.device)
    before = torch.cuda.memory_allocated(bench.device)
    work()
    bench.done()
    return int(torch.cuda.max_memory_allocated(bench.device)) - before


def peak(bench: Bench, name: str, kind: str) -> Measured:
    """Measure the peak memory of a computation relative to a plain pass.

    Args:
        bench: The device and the size of the work.
        name: The architecture.
        kind: The computation, one of `KINDS`.
    """
    model = sample.model(bench, name)
    x, sets = sample.pixels(model, bench.images), sample.ablations(model.heads, bench.ablations)
    there = x.to(bench.device)
    work: dict[str, Callable[[], object]] = {
        "contributions": lambda: model.encoder.contributions(model.encoder.embed_and_read(there)[1]),
        "one ablation set": lambda: model.encoder.embed(there, sets[1:2]),
        "many ablation sets": lambda: model.encoder.embed(there, sets),
        "moments": lambda: ccs.collect_moments(model, [there]),
    }
    reference = _peak(bench, lambda: plain(model, there))
    peak_bytes = _peak(bench, work[kind])
    return peak_bytes / reference, f"plain: {reference / 2**20:.0f} MiB for {len(x)} images"


def _embedder(bench: Bench, model: Model) -> Embedder:
    folder: Path = bench.folder / "stages"
    return Embedder(model, Store(folder, Processes(device=str(bench.device))), Settings())


def chosen(bench: Bench, name: str) -> Measured:
    """Measure an evaluation's peak memory, weights included, at the batch size that batch.compute chooses.

    Args:
        bench: The device and the size of the work.
        name: The architecture.

    Returns:
        The peak's share of the device's memory, and the batch size.
    """
    model = sample.model(bench, name)
    largest = _embedder(bench, model).batch_size
    x, sets = sample.pixels(model, largest), sample.ablations(model.heads, bench.ablations)
    torch.cuda.reset_peak_memory_stats(bench.device)
    model.embed_images(x, sets, largest)
    whole = torch.cuda.get_device_properties(bench.device).total_memory
    return torch.cuda.max_memory_allocated(bench.device) / whole, f"{largest} images"
