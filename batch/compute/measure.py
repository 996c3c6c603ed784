"""Figures of an evaluation set under every plan, as rows of the tables pruning, retrieval and bias."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, astuple, dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from batch.compute.inputs import EvaluationSet
from batch.compute.settings import Settings
from ccs import plans as pruning
from ccs.datasets.sets import BiasSet, ClassificationSet, RetrievalSet
from ccs.heads import Head, HeadSet
from ccs.measures import accuracy as zeroshot
from ccs.measures import bias, retrieval, stats
from ccs.measures.faults import fault_of
from ccs.measures.stats import Effect, Estimate
from ccs.model.model import Model
from ccs.plans import Plan, PlanName
from ccs.results import schema
from ccs.texts.score import HeadScore

Row = dict[str, Any]
Embeddings = Callable[[int], np.ndarray]
"""Embeddings [n, D] of the images under the plan of that index."""

DRAWS = 2000
SINGLE_HEADS = {"world/subjects", "world/colors", "world/occupations", "world/faces", "world/counterfactuals"}
"""Drawn sets on which every head is also switched off alone; it doubles a set's cost."""
FURTHER_K_SETS = {
    *("cifar10", "cifar10-jpeg", "cifar100", "cifar100-joined"),
    *("world/subjects", "world/colors"),
}
"""Sets with plans at further K: those of the study's table 3, and two drawn ones in their place."""
FURTHER_KINDS = ("high", "low", "random")
"""Plans at a further K: what the study prints (high), and what to hold it against."""


# Plans --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plans:
    """`main`: of every set, `none` first. `further`: at further K. `singles`: each head alone."""

    main: tuple[Plan, ...]
    further: tuple[Plan, ...]
    singles: tuple[Plan, ...]

    def on(self, data: EvaluationSet, settings: Settings) -> list[Plan]:
        """The plans measured on a set. A set that was asked for by name has those at further K too."""
        more = data.name in FURTHER_K_SETS or data.name in settings.sets
        return [*self.main, *(self.further if more else ()), *(self.singles if _singles_on(data) else ())]

    def kept(self, data: EvaluationSet, settings: Settings) -> HeadSet:
        """The heads whose contributions are kept on a set, for direct effects: all that a plan has, or none.

        They are kept where single heads are measured too, so that the two kinds of effect can be compared; of
        a clip, whose embedding is a mean over frames, they are not.
        """
        wanted = "heads" in settings.stages and _singles_on(data)
        return HeadSet(head for plan in self.on(data, settings) for head in plan.off) if wanted else HeadSet()


def _singles_on(data: EvaluationSet) -> bool:
    """Whether each head is switched off alone on a set; of retrieval no effect of a single head is shown."""
    known = not data.name.startswith("world/") or data.name in SINGLE_HEADS
    return known and not isinstance(data, RetrievalSet)


def make_plans(
    model: Model,
    settings: Settings,
    scores: Mapping[int, Mapping[Head, HeadScore]],
    notice: Callable[[str], None],
) -> Plans:
    """All plans of a model from its heads' scores at each K. `notice` is told of each that is left out."""
    # For this one model the study drew its random heads from all layers.
    everywhere = settings.suite == "paper" and model.name == "ViT-B-32/openai"
    source = model.tower.all_heads if everywhere else model.heads
    made: dict[int, list[Plan]] = {}
    for k in settings.all_ks:
        main = k == settings.k
        made[k] = pruning.plans(
            scores[k], k, model.heads, settings.seed, settings.seeds,
            kinds=set(pruning.KINDS) - {"single"} if main else FURTHER_KINDS, random_from=source,
            at_k=None if main else k, notice=notice,
        )  # fmt: skip
    further = [plan for k in settings.all_ks[1:] for plan in made[k][1:]]  # each begins with `none`
    return Plans(
        (*made[settings.k], *pruning.of_studies(model.name)),
        tuple(further),
        tuple(pruning.singles(model.heads)),
    )


# Rows ---------------------------------------------------------------------------------------------------


def texts_of(data: EvaluationSet) -> tuple[Sequence[str], Sequence[str]]:
    """The names (or captions) that a set's images are compared with, and the templates they stand in."""
    if isinstance(data, RetrievalSet):
        return [caption for said in data.captions for caption in said], ("{}",)
    return data.classes if isinstance(data, ClassificationSet) else data.occupations, data.templates


def embed_texts(model: zeroshot.TextModel, data: EvaluationSet) -> np.ndarray:
    """Unit embeddings [names, D] of `texts_of` a set, means over the templates."""
    names, templates = texts_of(data)
    if isinstance(data, RetrievalSet):
        return model.embed_texts(names)
    return zeroshot.class_weights(model, names, templates)


def rows(
    texts: np.ndarray,
    data: EvaluationSet,
    plans: Sequence[Plan],
    embeddings: Embeddings,
    seed: int,
    *,
    as_published: bool = False,
    published: Embeddings | None = None,
    few: bool = False,
) -> tuple[str, list[Row]]:
    """The table that a set's figures belong to, and its rows. `plans[0]` is the baseline, no head off.

    texts: from `embed_texts`. published: embeddings of clips as the study scales them, where they differ.
    Plans with the same heads are measured once. few: of classification and bias
    sets only top-1 over all classes and the mean MaxSkew over the occupations.
    """
    first = {plan.off: index for index, plan in reversed(list(enumerate(plans)))}
    measured = sorted(first.values())
    once = [plans[index].off for index in measured]
    ask = _Figures(texts, once, lambda index: embeddings(measured[index]), seed, few)
    if isinstance(data, ClassificationSet):
        table, found = "pruning", list(ask.of_classes(data))
    elif isinstance(data, BiasSet):
        table, found = "bias", list(ask.of_people(data))
        if as_published:
            found += ask.of_people(data, as_published=True)
    else:
        table, found = "retrieval", list(ask.of_clips(data))
        if as_published:
            if published is not None:
                scaled = published
                ask = replace(ask, embeddings=lambda index: scaled(measured[index]))
            found += ask.of_clips(data, as_published=True)
    by_heads: dict[HeadSet, list[Row]] = {off: [] for off in once}
    for off, row in found:
        by_heads[off].append(row)
    named = [
        {"plan": plan.name, "seed": plan.seed, "heads": str(plan.off), "n_heads": len(plan.off)} | row
        for plan in plans
        for row in by_heads[plan.off]
        # Single heads have no shares of groups, also where another plan of the same head has them.
        if not (plan.kind == "single" and row["metric"].startswith(schema.TOP_SHARE))
    ]
    return table, named + over_seeds(named, table)


@dataclass(frozen=True)
class _Figures:
    """Rows of one set, each with the heads that are off; `offs[0]` is the baseline."""

    texts: np.ndarray
    offs: Sequence[HeadSet]
    embeddings: Embeddings
    seed: int
    few: bool

    def of_classes(self, data: ClassificationSet) -> Iterator[tuple[HeadSet, Row]]:
        subsets: dict[str, Sequence[int] | None] = {"": None, **({} if self.few else data.subsets)}
        metrics: tuple[zeroshot.MetricName, ...] = ("top1",) if self.few else ("top1", "top5", "balanced")
        seed, baselines = self.seed, dict[str, zeroshot.Accuracy]()
        for index, off in enumerate(self.offs):
            images = self.embeddings(index)
            for subset, classes in subsets.items():
                ours = zeroshot.accuracy(images, self.texts, data.labels, seed, subset=classes, draws=DRAWS)
                theirs = baselines.setdefault(subset, ours)
                for metric in metrics:
                    if (estimate := getattr(ours, metric)) is None:
                        continue
                    effect = zeroshot.compare(ours, theirs, metric, draws=DRAWS, seed=seed) if off else None
                    about = {"dataset": data.name, "subset": subset, "metric": metric, "n": ours.n}
                    yield off, about | _figures(estimate, getattr(theirs, metric).value, effect)

    def of_clips(self, data: RetrievalSet, as_published: bool = False) -> Iterator[tuple[HeadSet, Row]]:
        owner = np.array([clip for clip, said in enumerate(data.captions) for _ in said])
        variant: retrieval.Variant = "as-published" if as_published else "default"
        name = f"{data.name} (as-published)" if as_published else data.name
        baselines: dict[str, retrieval.Retrieval] = {}
        for index, off in enumerate(self.offs):
            images = self.embeddings(index)
            for ours in retrieval.measure(images, self.texts, owner, variant=variant, seed=self.seed):
                theirs = baselines.setdefault(ours.direction, ours)
                for metric, estimate in ours.metrics.items():
                    effect = retrieval.compare(ours, theirs, metric, seed=self.seed) if off else None
                    about = {"dataset": name, "direction": ours.direction, "metric": metric, "n": ours.n}
                    yield off, about | _figures(estimate, theirs.metrics[metric].value, effect)

    def of_people(self, data: BiasSet, as_published: bool = False) -> Iterator[tuple[HeadSet, Row]]:
        """Each occupation ranks its own images, where the set has such pools, and then all of them.

        as_published: with the faults of the study's code, for the attributes that have one.
        """
        own = data.own_pools(data.occupations)
        variants = {data.name: own}
        if own is not None and not as_published and not self.few:
            variants[f"{data.name} (one-pool)"] = None
        for (name, pools), attribute in product(variants.items(), data.groups):
            groups = data.groups[attribute]
            fault = fault_of(data.name, attribute) if as_published else None
            if as_published and fault is None:
                continue
            with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor() as threads:
                measured = bias.measure_plans(
                    map(self.embeddings, range(len(self.offs))),
                    self.texts,
                    groups,
                    min(data.k[attribute], len(groups)),
                    metrics=bias.METRICS[:1] if self.few else bias.METRICS,
                    fault=fault,
                    pools=pools,
                    units=data.units,
                    seed=self.seed,
                    map=threads.map,
                )
            base = measured[0]
            for off, ours in zip(self.offs, measured, strict=True):
                about: Row = {"dataset": name, "attribute": attribute, "k": ours.k, "n": ours.n}
                about |= {"target": ours.target, "mode": ours.mode}
                for metric in ours.metrics:
                    for row in self._of_metric(ours, base, metric, data.occupations, bool(off)):
                        yield off, about | row
                if fault is None and not self.few:
                    for row in _shares(ours, base, data.occupations):
                        yield off, about | row

    def _of_metric(
        self,
        ours: bias.BiasResult,
        base: bias.BiasResult,
        name: bias.MetricName,
        occupations: Sequence[str],
        differs: bool,
    ) -> Iterator[Row]:
        """One metric: its mean and sum over the occupations, then each occupation."""
        metric, before = ours.metrics[name], base.metrics[name]
        mean = bias.compare(ours, base, name) if differs else None
        figures = _figures(metric.mean, before.mean.value, mean, metric.chance_mean)
        yield {"occupation": "", "metric": f"{name} mean"} | figures
        if self.few:
            return
        whole = mean and mean.times(len(occupations))
        figures = _figures(metric.sum, before.sum.value, whole, metric.chance_sum)
        yield {"occupation": "", "metric": f"{name} sum"} | figures
        for index, occupation in enumerate(occupations):
            value = Estimate(*(float(column[index]) for column in (metric.values, metric.low, metric.high)))
            effect = bias.compare(ours, base, name, index) if differs else None
            figures = _figures(value, float(before.values[index]), effect, metric.chance)
            own = int(ours.pools[index].sum())
            yield {"occupation": occupation, "metric": name, "n": own} | figures


def _shares(ours: bias.BiasResult, base: bias.BiasResult, occupations: Sequence[str]) -> Iterator[Row]:
    """Each group's share of each occupation's top K, beside that of a random ranking."""
    for index, occupation in enumerate(occupations):
        own = int(ours.pools[index].sum())
        for column, (group, chance) in enumerate(ours.chance_shares(index).items()):
            share, before = float(ours.top_shares[index, column]), float(base.top_shares[index, column])
            figures = _figures(Estimate(share, share, share), before, None, chance)
            # An exact count; how far random rankings are from the pool's share, `chance` says.
            figures |= {"low": None, "high": None, "difference": share - before}
            yield {"occupation": occupation, "metric": f"{schema.TOP_SHARE}{group}", "n": own} | figures


def _figures(
    estimate: Estimate, baseline: float, difference: Effect | None, chance: Estimate | None = None
) -> Row:
    """difference: None for the baseline itself."""
    change = (0.0, None, None, None) if difference is None else astuple(difference)
    names = ("difference", "difference_low", "difference_high", "p_value")
    row = asdict(estimate) | {"baseline": baseline} | dict(zip(names, change, strict=True))
    if chance:
        row |= {"chance": chance.value, "chance_low": chance.low, "chance_high": chance.high}
    return row


def over_seeds(found: Sequence[Row], table: str) -> list[Row]:
    """A row without a seed for each random plan: mean and interval over its seeds, never the best of them."""
    keys = ["plan", *(column for column in schema.TABLES[table].key if column not in schema.PLAN_KEY)]
    drawn: dict[tuple[Any, ...], list[Row]] = {}
    for row in found:
        if row["seed"] is not None and PlanName.parse(row["plan"]).kind == "random":
            drawn.setdefault(tuple(row[key] for key in keys), []).append(row)
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
