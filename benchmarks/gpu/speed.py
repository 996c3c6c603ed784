"""Speed: in units of open_clip's own pass over the same images on the same device, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import torch

from benchmarks import moments
from benchmarks.common import smallest
from benchmarks.gpu import sample
from benchmarks.gpu.lines import Bench, Line, Measured
from ccs import Head, HeadSet
from ccs.model.model import Model

PART = "speed"


def lines(models: tuple[str, ...] = Bench.timed) -> Iterator[Line]:
    """The lines of every timed architecture."""
    unit = "of a plain pass"
    for name in models:
        at = partial(Line, PART, model=name)
        yield at(f"{name}, contributions", unit, 1.0, partial(contributions, name=name))
        yield at(f"{name}, one more ablation set", unit, 0.25, partial(ablation, name=name))
        yield at(f"{name}, many ablation sets", "of the cost of their tree", 1.1, partial(tree, name=name))
        yield at(
            f"{name}, evaluation in bf16",
            "of one in float32",
            1.0,
            partial(halves, name=name),
            anywhere=False,
        )
    words = "moments from JPEG files"
    yield Line(PART, words, "of a plain DataLoader loop", 1.0, files, model=models[0])


def clock(bench: Bench) -> Callable[[], float]:
    """The CPU's own seconds, or those on the wall when the GPU has nothing left to do."""

    def now() -> float:
        bench.done()
        return time.perf_counter()

    return now if bench.gpu else time.process_time


def plain(model: Model, x: torch.Tensor) -> None:
    """Run open_clip's own image encoder.

    Args:
        model: The model.
        x: Pixels [n, 3, s, s] on its device.
    """
    with torch.no_grad():
        model.clip.encode_image(x)


def _seconds(bench: Bench, passes: dict[str, Callable[[], object]]) -> dict[str, float]:
    return smallest(passes, bench.repeats, clock(bench))


def _images(bench: Bench, name: str) -> tuple[Model, torch.Tensor]:
    """The model, and pixels that are on the device already."""
    model = sample.model(bench, name)
    return model, sample.pixels(model, bench.images).to(bench.device)


def contributions(bench: Bench, name: str) -> Measured:
    """Measure the time of contributions relative to a plain pass.

    Args:
        bench: The device and the size of the work.
        name: The architecture.
    """
    model, x = _images(bench, name)
    encoder = model.encoder
    seconds = _seconds(
        bench,
        {
            "plain": lambda: plain(model, x),
            "ours": lambda: encoder.contributions(encoder.embed_and_read(x)[1]),
        },
    )
    return seconds["ours"] / seconds["plain"], f"plain: {len(x) / seconds['plain']:.0f} images a second"


def _apart(model: Model) -> list[HeadSet]:
    """Return the costliest ablation sets: no two agree in any layer that can be pruned."""
    layers = range(model.encoder.first_prunable_layer, model.n_layers)
    return [HeadSet(Head(layer, head) for layer in layers) for head in range(4)]


def ablation(bench: Bench, name: str) -> Measured:
    """Measure the time of one more ablation set relative to a plain pass.

    Args:
        bench: The device and the size of the work.
        name: The architecture.
    """
    model, x = _images(bench, name)
    trunk, apart = model.encoder.trunk(x), _apart(model)
    seconds = _seconds(
        bench, {"plain": lambda: plain(model, x), "ours": lambda: model.encoder.embed(trunk, apart)}
    )
    return seconds["ours"] / len(apart) / seconds["plain"]


def tree(bench: Bench, name: str) -> Measured:
    """Measure the time of many ablation sets relative to that predicted from the layers they share.

    Args:
        bench: The device and the size of the work.
        name: The architecture.

    Returns:
        The ratio, and the number of ablation sets. The prediction is one pass of each layer for each
        different set of heads ablated up to there.
    """
    model, x = _images(bench, name)
    trunk, apart, sets = model.encoder.trunk(x), _apart(model), sample.ablations(model.heads, bench.ablations)
    layers = range(model.encoder.first_prunable_layer, model.n_layers - 1)
    nodes = [len({HeadSet(h for h in off if h.layer <= last) for off in sets}) for last in layers]
    seconds = _seconds(
        bench,
        {
            "apart": lambda: model.encoder.embed(trunk, apart),
            "tree": lambda: model.encoder.embed(trunk, sets),
        },
    )
    predicted = seconds["apart"] / len(apart) * sum(nodes) / len(nodes)
    return seconds["tree"] / predicted, f"{len(sets)} ablation sets"


def halves(bench: Bench, name: str) -> Measured:
    """Measure the time of an evaluation in bfloat16 relative to float32.

    Args:
        bench: The device and the size of the work.
        name: The architecture.
    """
    model, x = _images(bench, name)
    half, sets = (
        sample.model(bench, name, kind=torch.bfloat16),
        sample.ablations(model.heads, bench.ablations),
    )
    seconds = _seconds(
        bench,
        {
            "float32": lambda: model.encoder.embed(x, sets),
            "bf16": lambda: half.encoder.embed(x, sets),
            "plain": lambda: plain(model, x),
        },
    )
    words = f"{seconds['bf16'] / seconds['plain']:.2f} of a plain pass in float32 for {len(sets)} sets"
    return seconds["bf16"] / seconds["float32"], words


def files(bench: Bench) -> Measured:
    """From files to sums, against torch's DataLoader with open_clip's preprocessing and `encode_image`."""
    name = bench.timed[0]
    rates = moments.measure(sample.files(bench, bench.files), sample.model(bench, name), bench.repeats)
    return 1 / rates["ratio"], f"{rates['ours images a second']:.0f} images a second"
