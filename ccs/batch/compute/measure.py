"""Measure an evaluation set under every ablation set: rows of pruning, retrieval, bias, and heads.

All numbers come from `ccs.metrics`. This module chooses the metrics of an ablation set and names the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from math import nan
from typing import Any, Literal, cast

import numpy as np
import pandas as pd

from ccs.analysis.ablation_sets import AblationName, AblationSet
from ccs.analysis.bias import rank_gallery
from ccs.analysis.inputs import embed_ablations, embed_names, embed_occupations, has_order_fault
from ccs.batch.compute.inputs import EvaluationSet
from ccs.data import BiasSet, ClassificationSet, RetrievalSet
from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.metrics import accuracy as zeroshot
from ccs.metrics import bias, bias_result, group_gaps, preference, ranking, retrieval, skew, stats
from ccs.metrics.ranking import Ranking
from ccs.metrics.stats import Effect, Estimate
from ccs.model.model import Model
from ccs.results import queries, schema

Row = dict[str, Any]
Detail = Literal["means", "skew", "all"]
"""The measured numbers: the main ones (for the many random sets), MaxSkew (for single heads), or all."""
Embeddings = Callable[[HeadSet], np.ndarray]
"""Returns the embeddings [n, D] of the images with these heads ablated."""

DRAWS = 2000
"""Resampled sets of images for the intervals of accuracy."""
_MAIN_METRICS: tuple[skew.MetricName, ...] = ("MaxSkew", *group_gaps.PREFERENCES)
PART_METRICS = ("general part", "specific part")
"""The two parts of a dataset's squared group scores (`ccs.metrics.preference`)."""


def embed_texts(model: Model, data: EvaluationSet) -> np.ndarray:
    """Embed a dataset's captions, or its names as means over the templates.

    Args:
        model: The model.
        data: The set.

    Returns:
        Unit embeddings [names, D].
    """
    if isinstance(data, RetrievalSet):
        return model.embed_texts([caption for captions in data.captions for caption in captions])
    if isinstance(data, BiasSet):
        return embed_occupations(model, data)
    return embed_names(model, data.classes, data.templates)


def table_of(data: EvaluationSet) -> str:
    """Return the name of the table that a dataset's rows belong to."""
    if isinstance(data, RetrievalSet):
        return "retrieval"
    return "bias" if isinstance(data, BiasSet) else "pruning"


def unique_heads(ablations: Iterable[AblationSet]) -> list[HeadSet]:
    """Return the heads of the ablation sets, equal ones once."""
    return list(dict.fromkeys(ablation.heads for ablation in ablations))


def share_of(ablations: Sequence[AblationSet], rank: int, size: int) -> list[AblationSet]:
    """Choose the ablation sets that one of several processes measures.

    Args:
        ablations: All sets, the baseline first.
        rank: The number of the process.
        size: The number of processes.

    Returns:
        The baseline and every `size`-th set; random ones, which have fewer metrics, are dealt out evenly.
    """
    return [ablations[0], *sorted(ablations[1:], key=lambda ablation: ablation.is_random)[rank::size]]


def join_shares(shares: Sequence[Sequence[Row]], ablations: Sequence[AblationSet]) -> list[Row]:
    """Join the rows of all processes as one process makes them.

    Args:
        shares: The rows for each process's `share_of` the ablation sets; all have the baseline's.
        ablations: All ablation sets, the baseline first.
    """
    place = {(ablation.name, ablation.seed): index for index, ablation in enumerate(ablations)}
    others = (row for rows in shares[1:] for row in rows if row["ablation"] != ablations[0].name)
    return sorted([*shares[0], *others], key=lambda row: place[row["ablation"], row["seed"]])


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One evaluation set under its ablation sets.

    Attributes:
        data: The set.
        ablations: The ablation sets; the first is the baseline, without ablation.
        texts: The embeddings of `embed_texts`.
        embeddings: The images' embeddings.
        published: The embeddings of clips with frames scaled as in the paper's code. If given, FairFace by
            race and retrieval are also measured as in that code.
        logit_scale: The model's.
        seed: Random seed for resampling.
        baselines: The results without ablation, which `rows` fills.
    """

    data: EvaluationSet
    ablations: Sequence[AblationSet]
    texts: np.ndarray
    embeddings: Embeddings
    published: Embeddings | None = None
    logit_scale: float = 1.0
    seed: int = 0
    baselines: dict[Any, Any] = field(default_factory=dict)

    def rows(self) -> list[Row]:
        """Measure every ablation set, equal ones once.

        Random sets get only top-1 over all classes and the means of MaxSkew and PREFERENCES, without
        intervals. Single heads get top-1, MaxSkew, and the parts of the group scores. If occupations
        have their own images, a ranking of all images has no PREFERENCES, which read the whole ranking of
        every draw.
        """
        rows: list[Row] = []
        with ranking.threads() as map:
            if isinstance(self.data, ClassificationSet):
                measure = partial(self._of_classes, self.data)
            elif isinstance(self.data, BiasSet):
                measure = partial(self._of_people, self._rankings(self.data, map), map)
            else:
                measure = partial(self._of_clips, self.data)
            measured = cache(lambda heads, detail: list(measure(heads, detail)))
            for ablation in self.ablations:
                heads = ablation.heads
                names = {"ablation": ablation.name, "seed": ablation.seed}
                names |= {"heads": str(heads), "n_heads": len(heads)}
                detail = "means" if ablation.is_random else "skew" if ablation.kind == "single" else "all"
                rows += [names | row for row in measured(heads, detail)]
        return rows

    def _of_classes(self, data: ClassificationSet, heads: HeadSet, detail: Detail) -> Iterator[Row]:
        images = self.embeddings(heads)
        row = {"dataset": data.name, "subset": "", "metric": "top1", "n": len(data.labels)}
        if detail == "means":
            correct = float(zeroshot.correct(images, self.texts, data.labels).mean())
            yield row | _columns(Estimate(correct, nan, nan), self.baselines[""].top1.value)
            return
        subsets: dict[str, Sequence[int] | None] = {"": None, **data.subsets}
        draws: dict[str, Any] = {"seed": self.seed, "draws": DRAWS}
        for subset, classes in subsets.items():
            result = zeroshot.accuracy(images, self.texts, data.labels, subset=classes, **draws)
            before = self.baselines.setdefault(subset, result)
            effect = zeroshot.compare_accuracies(result, before, **draws) if heads else None
            row |= {"subset": subset, "n": result.n}
            yield row | _columns(result.top1, before.top1.value, effect)

    def _of_clips(self, data: RetrievalSet, heads: HeadSet, _: Detail) -> Iterator[Row]:
        """Make rows in the usual way and, with `published`, in the paper's."""
        owner = np.array([clip for clip, captions in enumerate(data.captions) for _ in captions])
        variants = [(data.name, self.embeddings, False)]
        if self.published:
            variants.append((f"{data.name}{schema.AS_PUBLISHED}", self.published, True))
        for name, embeddings, as_published in variants:
            for result in retrieval.measure_recall(
                embeddings(heads), self.texts, owner, as_published=as_published, seed=self.seed
            ):
                before = self.baselines.setdefault((name, result.direction), result)
                row = {"dataset": name, "direction": result.direction, "n": result.n}
                for metric, estimate in result.metrics.items():
                    effect = (
                        retrieval.compare_recall(result, before, metric, seed=self.seed) if heads else None
                    )
                    yield row | {"metric": metric} | _columns(estimate, before.metrics[metric].value, effect)

    def _of_people(
        self, rankings: Sequence[_People], map: ranking.Map, heads: HeadSet, detail: Detail
    ) -> Iterator[Row]:
        scores = ranking.cosines(self.texts, self.embeddings(heads), map=map)
        for people in rankings:
            for row in people.rows(scores[people.task.first_positions], detail):
                yield people.names | row

    def _rankings(self, data: BiasSet, map: ranking.Map) -> list[_People]:
        """Prepare each occupation's ranking of its own images, if the set has such pools, and of all."""
        pools = [False, True] if data.pools is not None else [False]
        variants = [(attribute, pool, False) for pool in pools for attribute in data.groups]
        if self.published:
            faulty = (attribute for attribute in data.groups if has_order_fault(data.name, attribute))
            variants += [(attribute, False, True) for attribute in faulty]
        return [_People(self, data, map, *variant) for variant in variants]


class _People:
    """The rows of one attribute of a gallery, the baseline first.

    Attributes:
        task: The ranking question.
        names: The columns that all rows share.
    """

    def __init__(
        self, of: Evaluation, data: BiasSet, map: ranking.Map, attribute: str, one_pool: bool, published: bool
    ) -> None:
        self.task = rank_gallery(data, attribute, of.texts, one_pool=one_pool)
        self.names: Row = {"dataset": f"{data.name}{schema.ONE_POOL if one_pool else ''}"}
        self.names |= {"attribute": attribute, "k": self.task.k, "n": len(self.task.groups)}
        self.names |= {"target": "pool", "mode": "as-published" if published else "correct"}
        self._published, self._scale, self._seed = published, of.logit_scale, of.seed
        self._main = _MAIN_METRICS[:1] if one_pool else _MAIN_METRICS  # of random sets
        metrics = (*skew.METRICS, *self._main[1:])
        options: Row = {"as_published": published, "logit_scale": of.logit_scale, "seed": of.seed, "map": map}
        self._measuring = bias.Measuring(self.task, metrics=metrics, **options)
        self._before: Any = None
        self._parts_before: preference.Parts | None = None

    def rows(self, scores: bias.Scores, detail: Detail) -> Iterator[Row]:
        """Make the rows of one set of heads.

        Args:
            scores: The prompts' cosines [prompts, n] with the images.
            detail: The metrics to measure.
        """
        if detail == "means":
            means = {} if self._published else self._measuring.means(scores, self._main)
            for metric, value in means.items():
                before = self._before.figure(metric)
                columns = _columns(replace(before, value=value, low=nan, high=nan), before.value)
                yield {"occupation": "", "metric": f"{metric} mean"} | columns
            return
        result = self._measuring(scores, _MAIN_METRICS[:1] if detail == "skew" else None)
        self._before = self._before or result
        for metric in result.metrics:
            yield from self._of_metric(result, metric)
        if not self._published:
            if detail == "all":
                yield from self._top_shares(result)
            yield from self._parts(scores)

    def _of_metric(self, result: bias_result.BiasResult, name: skew.MetricName) -> Iterator[Row]:
        """Make the rows of one metric: mean and, of skews, sum over the occupations, then each of them."""
        for place, occupation in [(None, ""), *enumerate(self.task.prompt_names)]:
            value, before = result.figure(name, place), self._before.figure(name, place).value
            effect = None
            if result is not self._before:
                effect = bias_result.compare_bias(result, self._before, name, place)
            row = {"occupation": occupation} | _columns(value, before, effect)
            if place is not None:
                yield row | {"metric": name, "n": int(result.pools[place].sum())}
                continue
            yield row | {"metric": f"{name} mean"}
            if name in skew.METRICS:
                n = len(self.task.prompt_names)
                row |= _columns(value.times(n), before * n, effect and effect.times(n))
                yield row | {"metric": f"{name} sum"}

    @cached_property
    def _chances(self) -> list[Mapping[str, Estimate]]:
        return [self._before.chance_shares(place) for place in range(len(self.task.prompt_names))]

    def _top_shares(self, result: bias_result.BiasResult) -> Iterator[Row]:
        """Make the rows of each group's share of a top K, with the shares in random rankings."""
        for index, occupation in enumerate(self.task.prompt_names):
            row = {"occupation": occupation, "n": int(result.pools[index].sum())}
            for column, (group, chance) in enumerate(self._chances[index].items()):
                share, before = (float(of.top_shares[index, column]) for of in (result, self._before))
                # An exact count; `chance` is the distance of random rankings from the pool's share.
                columns = _columns(bias_result.Figure(share, nan, nan, chance, nan), before)
                yield row | {"metric": f"{schema.TOP_SHARE}{group}"} | columns

    def _parts(self, scores: bias.Scores) -> Iterator[Row]:
        """Make the rows of the general and the specific part, if every prompt ranks all images."""
        task = self.task
        if task.pools is not None:
            return
        try:
            parts = preference.measure_parts(
                self._scale * scores, task.groups, units=task.units, seed=self._seed
            )
        except InputError:  # one prompt, or a group of one image
            return
        before = self._parts_before = self._parts_before or parts
        for metric in PART_METRICS:
            (value, *drawn), (old, *old_drawn) = (getattr(of, metric.split()[0]) for of in (parts, before))
            changed = np.subtract(drawn, old_drawn)
            effect = None if parts is before else stats.effect(value - old, changed)
            columns = _columns(stats.interval(value, np.array(drawn), center=True), old, effect)
            yield {"occupation": "", "metric": metric} | columns


def _columns(estimate: Estimate, baseline: float, difference: Effect | None = None) -> Row:
    """Make the columns of a result. difference: None for the baseline, and if there is no interval."""
    change: Iterable[Any] = (estimate.value - baseline, None, None, None)
    if difference:
        change = vars(difference).values()
    row = vars(estimate) | {"baseline": baseline}
    row |= zip(("difference", "difference_low", "difference_high", "p_value"), change, strict=True)
    if chance := row.get("chance"):
        row |= {"chance": chance.value, "chance_low": chance.low, "chance_high": chance.high}
    return row


SAMPLE = 512
"""Images of a dataset on which another precision is compared with float32."""
LARGEST_CHANGES = {"cosine": 0.01, "prediction": 0.02, "MaxSkew": 0.03}
"""Half precision is used only up to these changes: of a cosine, in the share of images whose class changes,
and of mean MaxSkew. CLIP's cosines of an image with the classes of a dataset differ by 0.05 or more. On every
dataset of the paper the intervals of top-1 and of MaxSkew are wider than the limits here.
"""


def changes_by_precision(model: Model, sets: Sequence[EvaluationSet]) -> dict[str, float]:
    """Measure what a model's half precision changes on a sample of the first sets of classes and of people.

    Args:
        model: The model, loaded with half precision.
        sets: The evaluation sets.

    Returns:
        The changes, named as in LARGEST_CHANGES; those that no set shows are missing.
    """
    exact, changes = model.in_float32(), dict[str, float]()
    for kind in (ClassificationSet, BiasSet):
        data = next((data for data in sets if isinstance(data, kind)), None)
        if data is None:
            continue
        rows = np.unique(np.linspace(0, len(data.images) - 1, SAMPLE).astype(int))
        images, texts = [data.images[row] for row in rows], embed_texts(model, data)
        half, full = (embed_ablations(precise, images, [HeadSet()])[0] for precise in (model, exact))
        cosines, exact_cosines = half @ texts.T, full @ texts.T
        change = float(np.abs(cosines - exact_cosines).max())
        changes["cosine"] = max(changes.get("cosine", 0.0), change)
        if isinstance(data, ClassificationSet):
            changes["prediction"] = float((cosines.argmax(1) != exact_cosines.argmax(1)).mean())
        else:
            task = Ranking(texts, data.groups[data.main][rows], max(1, len(rows) // 10))
            before, after = (bias.means(images, task)["MaxSkew"] for images in (full, half))
            changes["MaxSkew"] = abs(after - before)
    return changes


def over_sets(rows: Sequence[Row], table: str) -> list[Row]:
    """Summarize random sets: a row without a seed per kind, with mean and 95% range over its sets.

    Args:
        rows: The rows of a table.
        table: The table's name.
    """
    keys = ["ablation", *(column for column in schema.TABLES[table].key if column not in schema.ABLATION_KEY)]
    drawn: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row["seed"] is not None and AblationName.parse(row["ablation"]).is_random:
            drawn.setdefault(tuple(row[key] for key in keys), []).append(row)
    summaries = []
    for same in drawn.values():
        summary: Row = {"seed": None, "heads": "", "p_value": None}
        for name, ends in (("value", ("low", "high")), ("difference", ("difference_low", "difference_high"))):
            values = [row[name] for row in same]
            summary[name] = round(float(np.mean(values)), 12)  # differences may cancel out
            summary |= dict(zip(ends, np.quantile(values, (0.025, 0.975)).tolist(), strict=True))
        summaries.append(same[0] | summary)
    return summaries


def head_effects(rows: Iterable[Row]) -> list[Row]:
    """Make the rows of the table heads from the rows of single-head ablations.

    They are total effects (a head is ablated, and later layers react), with the false discovery rate over the
    heads.
    """
    effects = [
        {"layer": head.layer, "head": head.head, "measure": "total effect", "dataset": row["dataset"]}
        | {"metric": row["metric"], "factor": row.get("attribute", ""), "value": row["difference"]}
        | {"low": row["difference_low"], "high": row["difference_high"], "p_value": row["p_value"]}
        for row in filter(queries.is_main_result, rows)
        if (head := AblationName.parse(row["ablation"]).head) is not None
    ]
    if not effects:
        return []
    families = pd.DataFrame(effects).groupby(["dataset", "metric", "factor"], sort=False)
    adjusted = (
        family.assign(q_value=stats.benjamini_hochberg(family["p_value"].astype(float)))
        for _, family in families
    )
    return cast(list[Row], pd.concat(adjusted).to_dict("records"))
