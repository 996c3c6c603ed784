"""Rows of the tables pruning, retrieval and bias: every plan on one evaluation set, against no head off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from batch.compute.inputs import EvaluationSet
from ccs.datasets.sets import BiasSet, ClassificationSet
from ccs.measures import accuracy as zeroshot
from ccs.measures import bias, retrieval, stats
from ccs.measures.faults import fault_of
from ccs.measures.stats import Effect, Estimate
from ccs.plans import Plan
from ccs.results import schema

Row = dict[str, Any]
Embeddings = Callable[[int], np.ndarray]
"""Embeddings [n, D] of the images under the plan of that index."""

DRAWS = 2000
_WITHIN = {
    name: tuple(column for column in schema.TABLES[name].key if column not in schema.PLAN_KEY)
    for name in ("pruning", "retrieval", "bias")
}
"""What names a figure of a table, apart from its plan."""


class ReadOnce:
    """A text tower that reads each list of texts once: a set's figures ask for the same ones twice."""

    def __init__(self, model: zeroshot.TextModel) -> None:
        self._model = model
        self._read: dict[tuple[str, ...], np.ndarray] = {}

    def embed_texts(self, texts: Sequence[str], batch_size: int = 256) -> np.ndarray:
        """As the model's own."""
        key = tuple(texts)
        if key not in self._read:
            self._read[key] = self._model.embed_texts(texts, batch_size)
        return self._read[key]


def rows(
    model: zeroshot.TextModel,
    data: EvaluationSet,
    plans: Sequence[Plan],
    embeddings: Embeddings,
    seed: int,
    as_published: bool,
    *,
    few: bool = False,
) -> tuple[str, list[Row]]:
    """The table that a set's figures belong to, and its rows. `plans[0]` is the baseline, no head off.

    Plans with the same heads are measured once. few: of classification and bias sets only top-1 over all
    classes and the mean MaxSkew over the occupations.
    """
    first = {plan.off: index for index, plan in reversed(list(enumerate(plans)))}
    measured = sorted(first.values())
    once = [plans[index] for index in measured]

    def shown(index: int) -> np.ndarray:
        return embeddings(measured[index])

    if isinstance(data, ClassificationSet):
        table, found = "pruning", _classification(model, data, once, shown, seed, few)
    elif isinstance(data, BiasSet):
        table, found = "bias", _bias(model, data, once, shown, seed, None, few)
        if as_published and any(fault_of(data.name, attribute) for attribute in data.groups):
            found += _bias(model, data, once, shown, seed, data.name, few)
    else:
        table, found = "retrieval", _retrieval(model, data, once, shown, seed, as_published)
    by_heads: dict[str, list[Row]] = {str(plan.off): [] for plan in once}
    for row in found:
        by_heads[row["heads"]].append(row)
    named = [row | _plan(plan) for plan in plans for row in by_heads[str(plan.off)] if _wanted(row, plan)]
    return table, named + over_seeds(named, _WITHIN[table])


def _wanted(row: Row, plan: Plan) -> bool:
    """Single heads have no shares of groups, also where a plan of one head has them."""
    return not (plan.name.startswith("single:") and row["metric"].startswith(schema.TOP_SHARE))


def _plan(plan: Plan) -> Row:
    return {"plan": plan.name, "seed": plan.seed, "heads": str(plan.off), "n_heads": len(plan.off)}


def _figures(estimate: Estimate, baseline: float, difference: Effect | None) -> Row:
    row: Row = {"value": estimate.value, "low": estimate.low, "high": estimate.high, "baseline": baseline}
    if difference is None:
        return row | {"difference": 0.0, "difference_low": None, "difference_high": None, "p_value": None}
    return row | {
        "difference": difference.value,
        "difference_low": difference.low,
        "difference_high": difference.high,
        "p_value": difference.p_value,
    }


def _classification(
    model: zeroshot.TextModel,
    data: ClassificationSet,
    plans: Sequence[Plan],
    embeddings: Embeddings,
    seed: int,
    few: bool,
) -> list[Row]:
    weights = zeroshot.class_weights(model, data.classes, data.templates)
    subsets: dict[str, Sequence[int] | None] = {"": None, **({} if few else data.subsets)}
    found: list[Row] = []
    baselines: dict[str, zeroshot.Accuracy] = {}
    for index, plan in enumerate(plans):
        images = embeddings(index)
        for subset, classes in subsets.items():
            ours = zeroshot.accuracy(images, weights, data.labels, seed, subset=classes, draws=DRAWS)
            theirs = baselines.setdefault(subset, ours)
            metrics: dict[zeroshot.MetricName, Estimate | None]
            metrics = {"top1": ours.top1}
            metrics |= {} if few else {"top5": ours.top5, "balanced": ours.balanced}
            for metric, estimate in metrics.items():
                if estimate is None:
                    continue
                before = getattr(theirs, metric).value
                effect = zeroshot.compare(ours, theirs, metric, draws=DRAWS, seed=seed) if plan.off else None
                about = {"dataset": data.name, "subset": subset, "metric": metric, "n": ours.n}
                found.append(_plan(plan) | about | _figures(estimate, before, effect))
    return found


def _retrieval(
    model: zeroshot.TextModel,
    data: Any,
    plans: Sequence[Plan],
    embeddings: Embeddings,
    seed: int,
    as_published: bool,
) -> list[Row]:
    captions = [caption for said in data.captions for caption in said]
    owner = np.array([clip for clip, said in enumerate(data.captions) for _ in said])
    texts = model.embed_texts(captions)
    found: list[Row] = []
    variants: list[retrieval.Variant] = ["default", "as-published"] if as_published else ["default"]
    for variant in variants:
        name = data.name if variant == "default" else f"{data.name} (as-published)"
        baselines: dict[str, retrieval.Retrieval] = {}
        for index, plan in enumerate(plans):
            for ours in retrieval.measure(embeddings(index), texts, owner, variant=variant, seed=seed):
                theirs = baselines.setdefault(ours.direction, ours)
                for metric, estimate in ours.metrics.items():
                    effect = retrieval.compare(ours, theirs, metric, seed=seed) if plan.off else None
                    about = {"dataset": name, "direction": ours.direction, "metric": metric, "n": ours.n}
                    found.append(
                        _plan(plan) | about | _figures(estimate, theirs.metrics[metric].value, effect)
                    )
    return found


def _bias(
    model: zeroshot.TextModel,
    data: BiasSet,
    plans: Sequence[Plan],
    embeddings: Embeddings,
    seed: int,
    published: str | None,
    few: bool,
) -> list[Row]:
    prompts = zeroshot.class_weights(model, data.occupations, data.templates)
    found: list[Row] = []
    for attribute, groups in data.groups.items():
        fault = fault_of(published, attribute) if published else None
        if published and fault is None:
            continue
        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor() as threads:
            measured = bias.measure_plans(
                (embeddings(index) for index in range(len(plans))),
                prompts,
                groups,
                min(data.k[attribute], len(groups)),
                metrics=bias.METRICS[:1] if few else bias.METRICS,
                fault=fault,
                seed=seed,
                map=threads.map,
            )
        for plan, ours in zip(plans, measured, strict=True):
            about = {"dataset": data.name, "attribute": attribute, "target": ours.target, "mode": ours.mode}
            sizes = {"k": ours.k, "n": ours.n}
            for metric in ours.metrics:
                found += [
                    _plan(plan) | about | sizes | row
                    for row in _bias_rows(ours, measured[0], metric, data.occupations, bool(plan.off), few)
                ]
            if fault is None and not few and not plan.name.startswith("single:"):
                found += [
                    _plan(plan) | about | sizes | row
                    for row in _share_rows(ours, measured[0], data.occupations)
                ]
    return found


def _bias_rows(
    ours: bias.BiasResult,
    base: bias.BiasResult,
    name: bias.MetricName,
    occupations: Sequence[str],
    differs: bool,
    few: bool,
) -> Iterable[Row]:
    """One metric: its mean and sum over the occupations, then each occupation."""
    metric, before = ours.metrics[name], base.metrics[name]
    effect = bias.compare(ours, base, name) if differs else None
    yield (
        {"occupation": "", "metric": f"{name} mean"}
        | _chance(metric.chance_mean)
        | _figures(metric.mean, before.mean.value, effect)
    )
    if few:
        return
    times = len(occupations)
    whole = (
        Effect(effect.value * times, effect.low * times, effect.high * times, effect.p_value)
        if effect
        else None
    )
    yield (
        {"occupation": "", "metric": f"{name} sum"}
        | _chance(metric.chance_sum)
        | _figures(metric.sum, before.sum.value, whole)
    )
    for index, occupation in enumerate(occupations):
        value = Estimate(float(metric.values[index]), float(metric.low[index]), float(metric.high[index]))
        effect = bias.compare(ours, base, name, index) if differs else None
        yield (
            {"occupation": occupation, "metric": name}
            | _chance(metric.chance)
            | _figures(value, float(before.values[index]), effect)
        )


def _share_rows(ours: bias.BiasResult, base: bias.BiasResult, occupations: Sequence[str]) -> Iterable[Row]:
    """Each group's share of each occupation's top K, beside that of a random ranking."""
    for column, (group, chance) in enumerate(ours.chance_shares.items()):
        for index, occupation in enumerate(occupations):
            share, before = float(ours.top_shares[index, column]), float(base.top_shares[index, column])
            named = {"occupation": occupation, "metric": f"{schema.TOP_SHARE}{group}"} | _chance(chance)
            figures = _figures(Estimate(share, share, share), before, None)
            # An exact count; how far random rankings are from the pool's share, `chance` says.
            yield named | figures | {"low": None, "high": None, "difference": share - before}


def _chance(chance: Estimate) -> Row:
    return {"chance": chance.value, "chance_low": chance.low, "chance_high": chance.high}


def over_seeds(found: Sequence[Row], keys: Sequence[str]) -> list[Row]:
    """A row without a seed for each random plan: mean and interval over its seeds, never the best of them."""
    drawn: dict[tuple[Any, ...], list[Row]] = {}
    for row in found:
        if row["seed"] is not None and row["plan"].split("@")[0] == "random":
            drawn.setdefault((row["plan"], *(row[key] for key in keys)), []).append(row)
    means = []
    for same in drawn.values():
        value = stats.over_seeds([row["value"] for row in same])
        change = stats.over_seeds([row["difference"] for row in same])
        means.append(
            same[0]
            | {"seed": None, "heads": "", "value": value.value, "low": value.low, "high": value.high}
            | {"difference": change.value, "difference_low": change.low, "difference_high": change.high}
            | {"p_value": None}
        )
    return means
