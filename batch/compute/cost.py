"""The cost of a run before it is started: images, operations, memory and time.

Each kind of work is done here on a few images: once counted, by PyTorch's own counter, then timed.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from batch.compute import effects, measure
from batch.compute.embed import distinct
from batch.compute.inputs import EvaluationSet, Shards, cores_per_process, decoders, items
from batch.compute.manifest import peak_memory
from batch.compute.run import Run
from ccs.datasets.sets import ImageSet, RetrievalSet
from ccs.heads import Head
from ccs.model.moments import collect_moments
from ccs.plans import Plan
from ccs.texts.score import HeadScore
from ccs.world.sets import Drawn

_FEWEST, _LONG_ENOUGH = 8, 1.0
"""Images that are timed first, and seconds after which no more need be."""
_TEXTS = 128
"""Texts that are timed."""


@dataclass(frozen=True)
class Part:
    """One stage: the number of images it reads, its floating-point operations, its seconds."""

    name: str
    images: int
    operations: float
    seconds: float


@dataclass(frozen=True)
class Cost:
    """A run's stages and the most memory that one process holds, in bytes."""

    parts: tuple[Part, ...]
    memory: int


def operations(work: Callable[[], Any]) -> int:
    """Floating-point operations of `work` (a multiply-add is two), of matrix products and convolutions."""
    with FlopCounterMode(display=False) as counter:
        work()
    count: int = counter.get_total_flops()
    return count


def estimate(run: Run) -> Cost:
    """Time and count a few images of each kind of the run's work, for all of them."""
    model, settings, wanted = run.model, run.settings, set(run.settings.stages)
    batch, processes = run.embedder.backoff.largest, run.processes.size
    n = len(run.images.images)
    # The largest batch shows how much memory is needed, and the first pass pays for what is set up once.
    blank = model.preprocess([Image.new("RGB", (256, 256))]).repeat(min(batch, n), 1, 1, 1)
    collect_moments(model, [blank])
    opening = Part("opening", n + sum(len(items(data)) for data in run.sets), 0.0, run.opening)
    moments = _images(run, "moments", run.images, lambda pixels: collect_moments(model, [pixels]))
    some = run.pool.texts[:_TEXTS]
    per_text = _seconds(lambda: model.embed_texts(some)) / len(some)
    reading = operations(lambda: model.embed_texts(some)) / len(some)
    texts = len(run.pool.texts)
    parts = [opening, moments, Part("texts", texts, reading * texts, per_text * texts / processes)]
    embedded = 0
    if wanted & {"evaluation", "heads"}:
        plans = _likely_plans(run)
        for data in run.sets:
            mine, kept = plans.on(data, settings), plans.kept(data, settings)
            offs, _ = distinct([plan.off for plan in mine])
            work = partial(run.embedder.embed, data, offs, kept)
            names, templates = measure.texts_of(data)
            asked = len(names) * len(templates)
            figures = sum(_figures(run, data, mine, few=few) for few in ([False, True] if kept else [False]))
            parts.append(_images(run, f"embed {data.name}", data, work))
            parts.append(Part(f"measure {data.name}", 0, reading * asked, per_text * asked + figures))
            shard = min(Shards.of(len(items(data)), settings.shard).size, len(items(data)))
            embedded = max(embedded, 4 * (len(offs) + len(kept)) * shard * model.dim)
    if "heads" in wanted and isinstance(run.images.images, Drawn):
        work = partial(run.embedder.embed, run.images, [], model.heads)
        parts.append(_images(run, "embed world/factors", run.images, work, most=effects.SCENES))
    # What is decoded ahead, two batches per worker, and the one in work.
    ahead = (1 + 2 * decoders(n, model.tower.device.type, settings.workers)) * blank.nbytes
    return Cost(tuple(parts), peak_memory() + ahead + embedded)


def _images(
    run: Run,
    name: str,
    data: ImageSet | RetrievalSet,
    work: Callable[[Tensor], Any],
    most: int | None = None,
) -> Part:
    """The part that decodes all images of the set (or `most`) and does `work` on their pixels."""
    model = run.model
    frames = len(data.clips[0]) if isinstance(data, RetrievalSet) else 1
    count = min(len(items(data)) * frames, most or sys.maxsize)
    limit = min(run.embedder.backoff.largest, count)

    def read(n: int) -> Tensor:
        clips = data.clips if isinstance(data, RetrievalSet) else ([image] for image in data.images)
        return model.preprocess(list(itertools.islice(itertools.chain.from_iterable(clips), n)))

    def per_image(work: Callable[[int], Any]) -> float:
        n = min(_FEWEST, limit)
        while (seconds := _seconds(partial(work, n))) < _LONG_ENOUGH and n < limit:
            n = min(limit, 4 * n)
        return seconds / n

    pixels = read(limit)
    counted = operations(lambda: work(pixels[:1])) * count
    reading, computing = per_image(read), per_image(lambda n: work(pixels[:n]))
    working = decoders(count, model.tower.device.type, run.settings.workers)
    if not working:
        seconds = reading + computing
    elif model.tower.device.type == "cpu":  # they share the cores
        seconds = reading / cores_per_process() + computing
    else:
        seconds = max(reading / working, computing)
    return Part(name, count, counted, seconds * count / run.processes.size)


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _figures(run: Run, data: EvaluationSet, plans: Sequence[Plan], *, few: bool) -> float:
    """Seconds of a set's figures, from two plans' on random embeddings; what is set up is counted once."""
    rng, width = np.random.default_rng(0), run.model.dim
    images = rng.normal(size=(2, len(items(data)), width)).astype(np.float32)
    texts = rng.normal(size=(len(measure.texts_of(data)[0]), width)).astype(np.float32)
    some = [plans[0], next(plan for plan in plans if plan.off)]

    def measuring(n: int) -> float:
        return _seconds(lambda: measure.rows(texts, data, some[:n], lambda i: images[i], 0, few=few))

    one, two = measuring(1), measuring(2)
    each = max(two - one, 0.0)
    return max(one - each, 0.0) + each * len({plan.off for plan in plans})


def _likely_plans(run: Run) -> measure.Plans:
    """Plans such as the run will have: a quarter of the heads high, a quarter low, four concepts.

    At further K there are fewer high heads, as whoever is high at 7 is high at 5.
    """
    heads, ks = list(run.model.heads), run.settings.all_ks
    scores: dict[int, dict[Head, HeadScore]] = {k: {} for k in ks}
    for place, index in enumerate(np.random.default_rng(0).permutation(len(heads))):
        quarter = 4 * place // len(heads)
        for step, k in enumerate(ks):
            value = {0: k if place >= step else 0, 1: 0, 2: k // 2 + 1}.get(quarter, min(2, k))
            scores[k][heads[index]] = HeadScore(value, f"concept {place % 4}")
    return measure.make_plans(run.model, run.settings, scores, lambda _: None)


def page(run: Run) -> str:
    """The estimate for a person to read."""
    cost = estimate(run)
    lines = ["", f"{run.model.name}, on this machine with {run.processes.size} process(es):"]
    lines.append(f"  {'stage':32s} {'images':>9s} {'TFLOP':>9s} {'seconds':>9s}")
    parts = cost.parts
    totals = [sum(column) for column in zip(*(astuple(part)[1:] for part in parts), strict=True)]
    lines += [
        f"  {part.name:32s} {part.images:9,d} {part.operations / 1e12:9.2f} {part.seconds:9.1f}"
        for part in (*cost.parts, Part("all", *totals))
    ]
    lines.append(f"  memory: {cost.memory / 1e9:.1f} GB per process")
    return "\n".join(lines)
