"""What a run would take, before it is started: images, operations, memory and time, from a few images timed
here.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from batch.compute import evaluate, headtable, inputs
from batch.compute.embed import distinct, peak_memory
from batch.compute.loading import Shards, batch_size, cores_of_a_process, decoding
from batch.compute.outcome import Outcome
from batch.compute.plans import Plans, make
from batch.compute.run import Run
from ccs import plans as pruning
from ccs.datasets.sets import ImageSet, RetrievalSet
from ccs.heads import Head, HeadSet
from ccs.model.model import Model
from ccs.model.moments import collect_moments
from ccs.texts import score
from ccs.world.sets import Drawn

_FEWEST, _LONG_ENOUGH = 8, 1.0
"""Images that are timed first, and seconds after which no more need be."""
_TEXTS = 128
"""Texts that are timed."""


class _Unread:
    """Random embeddings [texts, width] in the place of texts': their reading is timed by itself."""

    def __init__(self, width: int) -> None:
        self.width = width

    def embed_texts(self, texts: Sequence[str], batch_size: int = 256) -> np.ndarray:
        return np.random.default_rng(0).normal(size=(len(texts), self.width)).astype(np.float32)


@dataclass(frozen=True)
class Part:
    """One stage: how many images (or texts) it reads, its floating-point operations, its seconds."""

    name: str
    images: int
    operations: float
    seconds: float


@dataclass(frozen=True)
class Cost:
    """A run's stages and the most memory that one process holds, in bytes."""

    parts: tuple[Part, ...]
    memory: int

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.parts)


def layer_operations(model: Model) -> tuple[float, float]:
    """Floating-point operations (a multiply-add is two) of one image in one layer, and in a last layer that
    computes the CLS query alone."""
    tokens, width = model.tower.n_tokens, model.tower.width
    hidden = int(model.clip.visual.transformer.resblocks[0].mlp.c_fc.weight.shape[0])
    whole = 2.0 * tokens * width * (4 * width + 2 * hidden) + 4.0 * tokens**2 * width
    last = 2.0 * width * (4 * width + 2 * hidden) + 4.0 * model.n_heads * tokens * width
    return whole, last


def plain_operations(model: Model) -> float:
    """Operations of one plain forward pass of one image."""
    visual = model.clip.visual
    patches = 2.0 * model.tower.n_tokens * float(visual.conv1.weight.numel())
    return patches + model.n_layers * layer_operations(model)[0]


def plan_operations(model: Model, offs: Sequence[HeadSet]) -> float:
    """Operations of one image under all plans at once; plans that agree up to a layer share it."""
    whole, last = layer_operations(model)
    end = model.n_layers - 1

    def descend(layer: int, members: Sequence[HeadSet]) -> float:
        branches: dict[tuple[int, ...], list[HeadSet]] = defaultdict(list)
        for off in members:
            branches[off.in_layer(layer)].append(off)
        if layer == end:
            return last * len(branches)
        attention = whole / 3  # what plans that differ in this layer still share
        return attention + sum(whole - attention + descend(layer + 1, group) for group in branches.values())

    patches = plain_operations(model) - model.n_layers * whole
    return patches + descend(0, list(offs))


def likely_plans(outcome: Outcome) -> Plans:
    """Plans such as the run will have: a quarter of the heads high, a quarter low, four concepts.

    At further K there are fewer high heads, as whoever is high at 7 is high at 5.
    """
    heads, settings = list(outcome.model.heads), outcome.settings
    order = np.random.default_rng(0).permutation(len(heads))
    scores: dict[int, dict[Head, score.HeadScore]] = {k: {} for k in settings.all_ks}
    for place, index in enumerate(order):
        quarter = 4 * place // len(heads)
        for step, k in enumerate(settings.all_ks):
            value = {0: k if place >= step else 0, 1: 0, 2: k // 2 + 1}.get(quarter, min(2, k))
            scores[k][heads[index]] = score.HeadScore(value, f"concept {place % 4}")
    return make(outcome.model, settings, scores, lambda _: None)


def estimate(run: Run) -> Cost:
    """Open everything, time a few images of each kind, and count the rest."""
    began = time.perf_counter()
    outcome = run.open()
    opening = time.perf_counter() - began
    model, settings, wanted = outcome.model, outcome.settings, set(outcome.settings.stages)
    timing = _Timing(model, batch_size(model, settings.batch_size), settings.workers, run.processes.size)
    n = len(outcome.images.images)
    batch = timing.warm_up(n)
    # What is decoded ahead, two batches a worker, and the one in work.
    ahead, embedded = (1 + 2 * timing.decoders(n)) * batch.nbytes, 0.0
    parts = [
        Part("opening", n + sum(map(inputs.count, outcome.sets)), 0.0, opening),
        Part(
            "moments",
            n,
            n * plain_operations(model),
            timing.seconds(outcome.images, n, lambda pixels: collect_moments(model, [pixels])),
        ),
    ]
    texts, a_text = len(outcome.pool.texts), _seconds_a_text(outcome)
    parts.append(Part("texts", texts, 0.0, a_text * texts / run.processes.size))
    if wanted & {"evaluation", "heads"}:
        plans = likely_plans(outcome)
        for data in outcome.sets:
            mine, kept = plans.on(data, settings), plans.kept(data, settings)
            offs, _ = distinct([plan.off for plan in mine])
            count = inputs.count(data) * (len(data.clips[0]) if isinstance(data, RetrievalSet) else 1)
            seconds = timing.seconds(data, count, partial(model.embed_images, off=offs))
            operations = count * plan_operations(model, offs)
            measuring = a_text * inputs.count_texts(data) + _measuring(model, data, mine, settings.seed)
            if kept:
                seconds += timing.computing(data, count, model.contributions)
                operations += count * plain_operations(model)
                measuring += _measuring(model, data, mine, settings.seed, few=True)
            parts.append(Part(f"embed {data.name}", count, operations, seconds))
            parts.append(Part(f"measure {data.name}", 0, 0.0, measuring))
            shard = min(Shards.of(inputs.count(data), settings.shard).size, inputs.count(data))
            embedded = max(embedded, 4.0 * (len(offs) + len(kept)) * shard * model.dim)
    if "heads" in wanted and isinstance(outcome.images.images, Drawn):
        few = min(n, headtable.SCENES)
        seconds = timing.seconds(outcome.images, few, model.contributions)
        parts.append(Part("embed world/factors", few, few * plain_operations(model), seconds))
    return Cost(tuple(parts), int(peak_memory() + ahead + embedded))


@dataclass(frozen=True)
class _Timing:
    """Times work on a few images, up to `batch` of them, and says what more would take."""

    model: Model
    batch: int
    workers: int | None
    processes: int

    def warm_up(self, n: int) -> Tensor:
        """A batch, the largest of n images: the first pass also pays for what is set up once, and shows how
        much memory is needed.
        """
        one = self.model.preprocess([Image.new("RGB", (256, 256))])
        batch = one.repeat(min(self.batch, n), 1, 1, 1)
        collect_moments(self.model, [batch])
        return batch

    def decoders(self, count: int) -> int:
        """Processes that decode `count` images."""
        if self.workers is not None:
            return self.workers
        return decoding(count, self.model.tower.device.type)

    def seconds(self, data: ImageSet | RetrievalSet, count: int, work: Callable[[Tensor], Any]) -> float:
        """Seconds to decode `count` images of the set and to do `work` on their pixels."""
        cores = cores_of_a_process()
        decoders = self.decoders(count)
        reading = self._an_image(count, lambda n: self.model.preprocess(_some(data, n))) * count
        computing = self.computing(data, count, work) * self.processes
        if not decoders:
            together = reading + computing
        elif self.model.tower.device.type == "cpu":  # they share the cores
            together = reading / cores + computing
        else:
            together = max(reading / decoders, computing)
        return together / self.processes

    def computing(self, data: ImageSet | RetrievalSet, count: int, work: Callable[[Tensor], Any]) -> float:
        """Seconds to do `work` on the pixels of `count` images of the set."""
        pixels = self.model.preprocess(_some(data, min(self.batch, count)))
        return self._an_image(count, lambda n: work(pixels[:n])) * count / self.processes

    def _an_image(self, count: int, work: Callable[[int], Any]) -> float:
        """Seconds of `work` an image: on a few, and on more until it takes long enough to tell."""
        most = min(self.batch, count)
        n = min(_FEWEST, most)
        while (seconds := _timed(work, n)) < _LONG_ENOUGH and n < most:
            n = min(most, 4 * n)
        return seconds / n


def _some(data: ImageSet | RetrievalSet, n: int) -> list[Any]:
    """The first pictures of the set; of clips their frames."""
    if not isinstance(data, RetrievalSet):
        return [data.images[i] for i in range(n)]
    frames: list[Any] = []
    for clip in data.clips:
        frames += clip
        if len(frames) >= n:
            break
    return frames[:n]


def _timed(work: Callable[..., Any], *arguments: Any) -> float:
    began = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - began


def _seconds_a_text(outcome: Outcome) -> float:
    some = outcome.pool.texts[:_TEXTS]
    return _timed(lambda: outcome.model.embed_texts(some)) / len(some)


def _measuring(
    model: Model, data: inputs.EvaluationSet, plans: Sequence[pruning.Plan], seed: int, *, few: bool = False
) -> float:
    """Seconds of a set's figures, from two plans' on random embeddings; setting up is counted once, texts are
    not."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(2, inputs.count(data), model.dim)).astype(np.float32)
    texts = _Unread(model.dim)

    def rows(count: int) -> float:
        some = [pruning.Plan("none", None, HeadSet(), ""), *[plan for plan in plans if plan.off]][:count]
        return _timed(
            lambda: evaluate.rows(texts, data, some, lambda index: images[index % 2], seed, False, few=few)
        )

    one, two = rows(1), rows(2)
    each = max(two - one, 0.0)
    return max(one - each, 0.0) + each * len({plan.off for plan in plans})


def page(run: Run) -> str:
    """The estimate for a person to read."""
    cost = estimate(run)
    lines = ["", f"{run.settings.models[0]}, on this machine with {run.processes.size} process(es):"]
    lines.append(f"  {'stage':32s} {'images':>9s} {'TFLOP':>9s} {'seconds':>9s}")
    lines += [
        f"  {p.name:32s} {p.images:9,d} {p.operations / 1e12:9.2f} {p.seconds:9.1f}" for p in cost.parts
    ]
    images, operations = sum(p.images for p in cost.parts), sum(p.operations for p in cost.parts)
    lines.append(f"  {'all':32s} {images:9,d} {operations / 1e12:9.2f} {cost.seconds:9.1f}")
    lines.append(f"  memory: {cost.memory / 1e9:.1f} GB a process")
    return "\n".join(lines)
