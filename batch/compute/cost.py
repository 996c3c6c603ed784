"""The cost of a run before it is started: images, operations, memory and time.

Each kind of work is done here on a few images: once counted, by PyTorch's own counter, then timed.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from batch.compute import effects, measure
from batch.compute.embed import distinct
from batch.compute.inputs import EvaluationSet, Shards, cores_per_process, decoders, items, repeated
from batch.compute.manifest import peak_memory
from batch.compute.plans import Plans, make_plans
from batch.compute.run import Run
from batch.compute.settings import Settings
from ccs.datasets.known_sets import ALIASES, SOURCES
from ccs.heads import Head
from ccs.image_sets import ImageSet, RetrievalSet
from ccs.judges.prices import CostEstimate
from ccs.model.moments import collect_moments
from ccs.plans import Plan
from ccs.texts.score import HeadScore
from ccs.texts.textspan import Span
from ccs.world.drawn_sets import Drawn

_FEWEST, _LONG_ENOUGH = 8, 1.0
"""Images that are timed first, and seconds after which no more need be."""
_TEXTS = 128
"""Texts that are timed."""
_FIGURES = 4_000
"""Items that a set's figures are timed on; those of more take as much longer. Of fewer, a pool per occupation
would be shorter than its ranking."""
_GPU = 10e12
"""Operations per second that a data center's GPU sustains in single precision, about half of what is printed
of an A100."""


@dataclass(frozen=True)
class Part:
    """One stage: the number of images it reads, its floating-point operations, its seconds."""

    name: str
    images: int
    operations: float
    seconds: float


@dataclass(frozen=True)
class Cost:
    """A run's stages and the most memory that one process holds, in bytes.

    weights: bytes of the model. kept: bytes of embeddings on disk, at most. judges: what they are asked.
    """

    parts: tuple[Part, ...]
    memory: int
    weights: int
    kept: float
    judges: tuple[CostEstimate, ...]

    @property
    def all(self) -> Part:
        """All stages together."""
        _, *figures = zip(*map(astuple, self.parts), strict=True)
        return Part("all", *map(sum, figures))


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
    whole = [repeated(data, _rows(data.name, len(items(data)), settings.eval_images)) for data in run.sets]
    n = _rows(run.images.name, len(run.images.images), settings.max_images)
    # The largest batch shows how much memory is needed, and the first pass pays for what is set up once.
    blank = model.preprocess([Image.new("RGB", (256, 256))]).repeat(min(batch, n), 1, 1, 1)
    collect_moments(model, [blank])
    opening = Part("opening", n + sum(len(items(data)) for data in whole), 0.0, run.opening)
    work = partial(_per_image, batch, blank[:1])
    images = partial(_images, run)
    moments = images("moments", run.images, work(lambda pixels: collect_moments(model, [pixels])), n)
    some = run.pool.texts[:_TEXTS]
    per_text = _seconds(lambda: model.embed_texts(some)) / len(some)
    reading = operations(lambda: model.embed_texts(some)) / len(some)
    texts = len(run.pool.texts)
    parts = [opening, moments, Part("texts", texts, reading * texts, per_text * texts / processes)]
    embedded, kept_bytes = 0, 0.0
    # Sets under the same plans cost the same per image, those of one form the same figures.
    known: dict[Any, tuple[float, float]] = {}
    timed: dict[Any, float] = {}
    if wanted & {"evaluation", "heads"}:
        plans = _likely_plans(run)
        for data in whole:
            mine, kept = plans.on(data, settings), plans.kept(data, settings)
            offs, _ = distinct([plan.off for plan in mine])
            kind = (*map(str, offs), str(kept), run.embedder.scaled_as_published(data))
            if kind not in known:
                known[kind] = work(partial(run.embedder.embed, data, offs, kept))
            names, templates = measure.texts_of(data)
            asked = len(names) * len(templates)
            part = repeated(data, min(len(items(data)), _FIGURES))
            about = getattr(data, "groups", ())
            form = (type(data), len(items(part)), len(names), *about, len(mine), bool(kept))
            if form not in timed:
                timed[form] = sum(_figures(run, part, mine, few=few) for few in {False, bool(kept)})
            figures = timed[form] * len(items(data)) / len(items(part))
            parts.append(images(f"embed {data.name}", data, known[kind]))
            parts.append(Part(f"measure {data.name}", 0, reading * asked, per_text * asked + figures))
            shard = min(Shards.of(len(items(data)), settings.shard).size, len(items(data)))
            row = 4 * (len(offs) + len(kept)) * model.dim
            embedded = max(embedded, row * shard)
            kept_bytes += size if (size := row * len(items(data))) <= settings.keep else 0
    if "heads" in wanted and isinstance(run.images.images, Drawn):
        each = work(partial(run.embedder.embed, run.images, [], model.heads))
        parts.append(
            images("embed world/factors", run.images, each, min(len(run.images.images), effects.SCENES))
        )
    # What is decoded ahead, two batches per worker, and the one in work.
    ahead = (1 + 2 * decoders(n, model.tower.device.type, settings.workers)) * blank.nbytes
    weights = sum(values.numel() * 4 for values in model.clip.parameters())
    judges = tuple(itertools.chain(*run.judging.asked(_likely_spans(run))))
    return Cost(tuple(parts), peak_memory() + ahead + embedded, weights, kept_bytes, judges)


def _rows(name: str, here: int, most: int | None) -> int:
    """The items of a whole set, where fewer are here though all are asked for."""
    record = SOURCES.get(name)
    return here if record is None or most is not None else max(here, record.rows)


def _likely_spans(run: Run) -> dict[Head, tuple[Span, ...]]:
    """As many texts per head as would be judged; the choice of texts hardly changes the cost."""
    every = itertools.cycle([Span(text, 0.0, place) for place, text in enumerate(run.pool.texts)])
    return {head: tuple(itertools.islice(every, run.settings.all_ks[-1])) for head in run.model.heads}


def _images(
    run: Run,
    name: str,
    data: ImageSet | RetrievalSet,
    each: tuple[float, float],
    count: int | None = None,
) -> Part:
    """The part that decodes all images of the set (or `count`) and does work on their pixels.

    each: operations and seconds of the work per image.
    """
    model = run.model
    here = len(items(data)) * (len(data.clips[0]) if isinstance(data, RetrievalSet) else 1)
    count = count or here

    def read(n: int) -> Tensor:
        clips = data.clips if isinstance(data, RetrievalSet) else ([image] for image in data.images)
        return model.preprocess(list(itertools.islice(itertools.chain.from_iterable(clips), n)))

    reading = _long_enough(read, min(run.embedder.backoff.largest, here, count))
    counted, computing = each
    working = decoders(count, model.tower.device.type, run.settings.workers)
    if not working:
        seconds = reading + computing
    elif model.tower.device.type == "cpu":  # they share the cores
        seconds = reading / cores_per_process() + computing
    else:
        seconds = max(reading / working, computing)
    return Part(name, count, counted * count, seconds * count / run.processes.size)


def _per_image(batch: int, pixels: Tensor, work: Callable[[Tensor], Any]) -> tuple[float, float]:
    """Operations and seconds of the work per image, whatever the image; `pixels` [1, 3, s, s]."""
    counted = operations(lambda: work(pixels))
    return counted, _long_enough(lambda n: work(pixels.expand(n, -1, -1, -1)), batch)


def _long_enough(work: Callable[[int], Any], limit: int) -> float:
    """Seconds per image, timed on as many as take long enough, or on `limit`."""
    n = min(_FEWEST, limit)
    while (seconds := _seconds(partial(work, n))) < _LONG_ENOUGH and n < limit:
        n = min(limit, 4 * n)
    return seconds / n


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _figures(run: Run, data: EvaluationSet, plans: Sequence[Plan], *, few: bool) -> float:
    """Seconds of a set's figures, from two plans' on random embeddings; what is set up is counted once.

    Random sets have few figures and no intervals: they hardly count.
    """
    rng, width = np.random.default_rng(0), run.model.dim
    images = rng.standard_normal((2, len(items(data)), width), dtype=np.float32)
    texts = rng.normal(size=(len(measure.texts_of(data)[0]), width)).astype(np.float32)
    some = [plans[0], next(plan for plan in plans if plan.off)]

    def measuring(n: int) -> float:
        published = run.settings.as_published and not few
        ask = partial(measure.rows, texts, data, some[:n], lambda i: images[i], 0)
        return _seconds(lambda: ask(as_published=published, few=few))

    one, two = measuring(1), measuring(2)
    each = max(two - one, 0.0)
    return max(one - each, 0.0) + each * len({plan.off for plan in plans if plan.kind != "random"})


def _likely_plans(run: Run) -> Plans:
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
    return make_plans(run.model, run.settings, scores, dict.fromkeys(heads, 1.0), lambda _: None)


def page(run: Run, cost: Cost) -> str:
    """The estimate for a person to read."""
    lines = ["", f"{run.model.name}, on this machine with {run.processes.size} process(es):"]
    lines.append(f"  {'stage':32s} {'images':>9s} {'TFLOP':>9s} {'seconds':>9s}")
    lines += [
        f"  {part.name:32s} {part.images:9,d} {part.operations / 1e12:9.2f} {part.seconds:9.1f}"
        for part in (*cost.parts, cost.all)
    ]
    lines.append(f"  memory: {cost.memory / 1e9:.1f} GB per process")
    return "\n".join([*lines, _dollars(cost.judges)])


def _dollars(asked: Sequence[CostEstimate]) -> str:
    requests, known = sum(one.requests for one in asked), [one.dollars for one in asked]
    if None in known:
        return f"  judges: {requests:,} requests, whose prices are not all known"
    most = sum(one.at_most or 0.0 for one in asked)
    return f"  judges: {requests:,} requests, {sum(filter(None, known)):.2f} dollars, at most {most:.2f}"


def needs(settings: Settings, costs: Sequence[Cost], absent: Iterable[str]) -> str:
    """The needs of all models on a machine with a network and a GPU: disk, hours and money."""
    figures = sum(part.seconds for cost in costs for part in cost.parts if part.name.startswith("measure"))
    operations = sum(cost.all.operations for cost in costs)
    names = {ALIASES.get(settings.images, settings.images), *settings.sets}
    names |= set(SOURCES if settings.suite == "paper" else ())
    records = {record.address: record.gigabytes for name, record in SOURCES.items() if name in names}
    weights, kept = sum(cost.weights for cost in costs), sum(cost.kept for cost in costs)
    lines = [
        f"\nAll {len(costs)} models, on a machine with a network and a GPU:",
        f"  disk: {weights / 1e9:.1f} GB of weights, {sum(records.values()):.1f} GB of data sets, those of "
        f"videos twice, as they are unpacked; up to {kept / 1e9:.1f} GB of embeddings (--keep)",
        f"  time: {operations / _GPU / 3600:.1f} hours of a GPU that sustains {_GPU / 1e12:.0f} TFLOP/s, and "
        f"{figures / 3600:.1f} hours of figures on processors like these; decoding runs beside the GPU",
        _dollars([asked for cost in costs for asked in cost.judges]),
    ]
    if left_out := sorted(set(absent)):
        lines.append(f"  not counted, as they could not be opened here: {', '.join(left_out)}")
    return "\n".join(lines)
