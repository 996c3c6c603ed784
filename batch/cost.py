"""What a run would take, before it is started: images, operations, memory and time, from a few images timed
here.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from batch import evaluate, inputs
from batch.embedding import distinct, peak_memory
from batch.loading import batch_size
from batch.outcome import Outcome
from batch.plans import Plans, make
from batch.run import Run
from ccs import pruning, score
from ccs.datasets.sets import ImageSet, RetrievalSet
from ccs.heads import Head, HeadSet
from ccs.models import Model
from ccs.moments import collect_moments

_TIMED = 16
"""Images of a timed batch: enough to keep the arithmetic units busy, few enough to wait for."""


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
    outcome = run.open()
    model, settings, wanted = outcome.model, outcome.settings, set(outcome.settings.stages)
    size, share = batch_size(model, settings.batch_size), run.processes.size
    before = peak_memory()
    few = _few(outcome.images)
    pixels = model.preprocess(few)
    collect_moments(model, [pixels])  # the first pass also pays for what is set up once
    load, work = (
        _timed(lambda: model.preprocess(_few(outcome.images))),
        _timed(lambda: collect_moments(model, [pixels])),
    )
    n = len(outcome.images.images)
    parts = [
        Part("moments", n, n * plain_operations(model), n * (load + work) / len(few) / share),
        _texts(outcome, share),
    ]
    largest = 0.0
    if wanted & {"evaluation", "heads"}:
        plans = likely_plans(outcome)
        for data in outcome.sets:
            mine = plans.on(data, settings)
            offs, _ = distinct([plan.off for plan in mine])
            images, per_item = _items(data)
            shown = model.preprocess(images)
            seconds = _timed(lambda images=images: model.preprocess(images)) + _timed(
                lambda shown=shown, offs=offs: model.embed_images(shown, offs)
            )
            count = inputs.count(data) * per_item
            operations = count * plan_operations(model, offs)
            measuring = _measuring(model, data, mine, settings.seed)
            if kept := plans.kept(data, settings):
                seconds += _timed(lambda shown=shown: model.contributions(shown))
                operations += count * plain_operations(model)
                measuring += _measuring(model, data, mine, settings.seed, few=True)
            parts.append(Part(f"embed {data.name}", count, operations, count * seconds / len(images) / share))
            parts.append(Part(f"measure {data.name}", 0, 0.0, measuring))
            largest = max(largest, 4.0 * (len(offs) + len(kept)) * size * model.dim)
    growth = max(0, peak_memory() - before) / max(1, len(few)) * size
    return Cost(tuple(parts), int(max(before + growth, peak_memory()) + largest))


def _few(images: ImageSet) -> list[Any]:
    return [images.images[i] for i in range(min(_TIMED, len(images.images)))]


def _items(data: inputs.EvaluationSet) -> tuple[list[Any], int]:
    """A few pictures of the set, and how many pictures an item of it is."""
    if isinstance(data, RetrievalSet):
        first = list(data.clips[0])
        return (first * _TIMED)[:_TIMED], len(first)
    return _few(data), 1


def _timed(work: Any) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _texts(outcome: Outcome, share: int) -> Part:
    texts = outcome.pool.texts
    some = texts[: 4 * _TIMED]
    seconds = _timed(lambda: outcome.model.embed_texts(some)) / len(some) * len(texts) / share
    return Part("texts", len(texts), 0.0, seconds)


def _measuring(
    model: Model, data: inputs.EvaluationSet, plans: Sequence[pruning.Plan], seed: int, *, few: bool = False
) -> float:
    """Seconds of a set's figures, from two plans' on random embeddings; setting up is counted once."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(2, inputs.count(data), model.dim)).astype(np.float32)

    def rows(count: int) -> float:
        some = [pruning.Plan("none", None, HeadSet(), ""), *[plan for plan in plans if plan.off]][:count]
        return _timed(
            lambda: evaluate.rows(model, data, some, lambda index: images[index % 2], seed, False, few=few)
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
