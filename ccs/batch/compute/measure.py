"""Measure an evaluation set under every ablation set: rows of pruning, retrieval, bias, and heads."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any

import numpy as np

from ccs.analysis.ablation_sets import AblationName, AblationSet
from ccs.analysis.bias import embed_occupations, rank_gallery
from ccs.batch.compute.inputs import EvaluationSet
from ccs.data import BiasSet, ClassificationSet, RetrievalSet
from ccs.heads import HeadSet
from ccs.metrics import accuracy as zeroshot
from ccs.metrics import bias, bias_result, group_gaps, ranking, retrieval, skew, stats
from ccs.metrics.ranking import Ranking
from ccs.metrics.released_code import Fault, fault_of
from ccs.metrics.stats import Effect, Estimate
from ccs.model.model import Model
from ccs.results import queries, schema

Row = dict[str, Any]
Embeddings = Callable[[HeadSet], np.ndarray]
"""Embeddings [n, D] of the images with these heads ablated."""

DRAWS = 2000


def embed_texts(model: Model, data: EvaluationSet) -> np.ndarray:
    """Embed a set's captions, or its names as means over the templates.

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
    return zeroshot.class_weights(model, data.classes, data.templates)


def shares(plans: Sequence[AblationSet], parts: int) -> list[list[AblationSet]]:
    """Deal ablation sets out to processes in parts of like work.

    Args:
        plans: All sets, the baseline first.
        parts: The number of parts.

    Returns:
        The parts, each with the baseline first. Sets of the same heads stay together, and random ones, which
        have fewer metrics, are dealt out separately.
    """
    whole = dict.fromkeys(plan.heads for plan in plans[1:] if not plan.is_random)
    dealt = [
        list(whole),
        [off for off in dict.fromkeys(plan.heads for plan in plans[1:]) if off not in whole],
    ]
    return [
        [plans[0], *(plan for plan in plans[1:] if any(plan.heads in offs[part::parts] for offs in dealt))]
        for part in range(parts)
    ]


def joined(parts: Sequence[Sequence[Row]], plans: Sequence[AblationSet]) -> list[Row]:
    """Join the rows of all processes as `of_plans` returns them for all ablation sets at once.

    Args:
        parts: The rows of each of the `shares`.
        plans: All ablation sets.
    """
    by_plan: dict[tuple[str, int | None], list[Row]] = {}
    for number, rows_of_part in enumerate(parts):
        for row in rows_of_part:
            if number == 0 or row["ablation"] != plans[0].name:  # every part has the baseline
                by_plan.setdefault((row["ablation"], row["seed"]), []).append(row)
    return [row for plan in plans for row in by_plan.get((plan.name, plan.seed), [])]


def of_plans(
    texts: np.ndarray,
    data: EvaluationSet,
    plans: Sequence[AblationSet],
    embeddings: Embeddings,
    seed: int,
    *,
    logit_scale: float = 1.0,
    as_published: bool = False,
    published: Embeddings | None = None,
) -> tuple[str, list[Row]]:
    """Measure a set under every ablation set.

    Random sets, of which there are many, get only top-1 over all classes and the means of MaxSkew and
    PREFERENCES, without intervals. If images have pools of their own, a ranking of all of them has no
    PREFERENCES, which read the whole ranking of every draw.

    Args:
        texts: The embeddings of `embed_texts`.
        data: The set.
        plans: The ablation sets; the first is the baseline, without ablation.
        embeddings: The images' embeddings.
        seed: The seed of resampling.
        logit_scale: The model's.
        as_published: Also measure with the faults of the paper's code.
        published: The clips' embeddings as the paper scales them, if they differ.

    Returns:
        The name of a table and its rows.
    """
    offs = list(dict.fromkeys(plan.heads for plan in plans))
    whole = {plan.heads for plan in plans if not plan.is_random}
    measuring = _Measuring(texts, offs, embeddings, seed, logit_scale, whole)
    if isinstance(data, ClassificationSet):
        table, results = "pruning", list(measuring.of_classes(data))
    elif isinstance(data, BiasSet):
        table, results = "bias", list(measuring.of_people(data, as_published))
    else:
        table = "retrieval"
        results = list(measuring.of_clips(data, (published or embeddings) if as_published else None))
    by_heads: dict[HeadSet, list[Row]] = {off: [] for off in offs}
    for off, row in results:
        by_heads[off].append(row)
    rows = [
        {"ablation": plan.name, "seed": plan.seed, "heads": str(plan.heads), "n_heads": len(plan.heads)}
        | own_row
        for plan in plans
        for row in by_heads[plan.heads]
        if (own_row := _row_of_plan(plan, row)) is not None
    ]
    return table, rows


def _row_of_plan(plan: AblationSet, row: Row) -> Row | None:
    """Reduce a row of some heads to what this ablation set of them has; None if it lacks the metric."""
    if plan.kind == "single" and row["metric"].startswith(schema.TOP_SHARE):
        return None
    if plan.is_random and "direction" not in row:
        main = row["metric"] in _OF_RANDOM_SETS and not row.get("subset")
        return row | _NO_INTERVAL if main and row.get("mode", "correct") == "correct" else None
    return row


_MAIN: tuple[skew.MetricName, ...] = ("MaxSkew", *group_gaps.PREFERENCES)
_OF_RANDOM_SETS = {"top1", *(f"{name} mean" for name in _MAIN)}
_NO_INTERVAL = dict.fromkeys(("low", "high", "difference_low", "difference_high", "p_value"))


@dataclass(frozen=True)
class _Measuring:
    """Makes the rows of one set; `offs[0]` is the baseline. `whole`: sets of heads not drawn at random."""

    texts: np.ndarray
    offs: Sequence[HeadSet]
    images: Callable[[HeadSet], np.ndarray]
    seed: int
    logit_scale: float
    whole: Collection[HeadSet]

    def of_classes(self, data: ClassificationSet) -> Iterator[tuple[HeadSet, Row]]:
        subsets: dict[str, Sequence[int] | None] = {"": None, **data.subsets}
        seed, baselines = self.seed, dict[str, zeroshot.Accuracy]()
        for off in self.offs:
            images = self.images(off)
            names = {"dataset": data.name, "subset": "", "metric": "top1", "n": len(data.labels)}
            if off not in self.whole:
                right = float(zeroshot.correct(images, self.texts, data.labels).mean())
                yield off, names | _figures(Estimate(right, nan, nan), baselines[""].top1.value, None)
                continue
            for subset, classes in subsets.items():
                ours = zeroshot.accuracy(images, self.texts, data.labels, seed, subset=classes, draws=DRAWS)
                theirs = baselines.setdefault(subset, ours)
                effect = zeroshot.compare(ours, theirs, draws=DRAWS, seed=seed) if off else None
                here = {"subset": subset, "n": ours.n}
                yield off, names | here | _figures(ours.top1, theirs.top1.value, effect)

    def of_clips(self, data: RetrievalSet, published: Embeddings | None) -> Iterator[tuple[HeadSet, Row]]:
        """Make rows in the usual way and, with `published` embeddings, in the paper's."""
        owner = np.array([clip for clip, captions in enumerate(data.captions) for _ in captions])
        variants = [(data.name, self.images, False)]
        variants += [(f"{data.name}{schema.AS_PUBLISHED}", published, True)] if published else []
        baselines: dict[tuple[str, str], retrieval.Retrieval] = {}
        for off, (name, images, as_published) in itertools.product(self.offs, variants):
            for ours in retrieval.measure(
                images(off), self.texts, owner, as_published=as_published, seed=self.seed
            ):
                theirs = baselines.setdefault((name, ours.direction), ours)
                for metric, estimate in ours.metrics.items():
                    effect = retrieval.compare(ours, theirs, metric, seed=self.seed) if off else None
                    names = {"dataset": name, "direction": ours.direction, "metric": metric, "n": ours.n}
                    yield off, names | _figures(estimate, theirs.metrics[metric].value, effect)

    def of_people(self, data: BiasSet, as_published: bool) -> Iterator[tuple[HeadSet, Row]]:
        """Make rows of each occupation's ranking of its own images, if the set has such pools, and of all.

        as_published: also with the faults of the paper's code, for the attributes that have one.
        """
        pools = [False, True] if data.pools is not None else [False]
        variants: list[tuple[str, bool, Fault | None]] = [
            (attribute, pool, None) for pool in pools for attribute in data.groups
        ]
        for attribute in data.groups if as_published else ():
            variants += [(attribute, False, fault)] if (fault := fault_of(data.name, attribute)) else []
        with ranking.threads() as map:
            scale: dict[str, Any] = {"logit_scale": self.logit_scale, "seed": self.seed, "map": map}
            questions = [
                _Question(
                    {"dataset": f"{data.name}{schema.ONE_POOL if one_pool else ''}", "attribute": attribute},
                    rank_gallery(data, attribute, self.texts, one_pool=one_pool),
                    fault,
                    _MAIN[:1] if one_pool else _MAIN,
                    scale,
                )
                for attribute, one_pool, fault in variants
            ]
            for off in self.offs:
                images = self.images(off)
                scores = ranking.cosines(self.texts, images, map=map)
                for question in questions:
                    for row in question.rows(images, scores, whole=off in self.whole):
                        yield off, row


class _Question:
    """Makes the rows of one attribute of a set, the baseline first; main: metrics of random sets, too."""

    def __init__(
        self,
        names: Row,
        ranked: Ranking,
        fault: Fault | None,
        main: Sequence[skew.MetricName],
        scale: Mapping[str, Any],
    ) -> None:
        metrics = (*skew.METRICS, *main[1:])
        self._measure = bias.Measuring(ranked, metrics=metrics, fault=fault, **scale)
        self._fault, self._main, self._occupations = fault, main, ranked.names
        self._row = names | {"k": ranked.k, "n": len(ranked.groups), "target": "pool"}
        self._base: bias_result.BiasResult | None = None
        self._chances: list[dict[str, Estimate]] = []

    def rows(self, images: np.ndarray, scores: bias.Scores, whole: bool) -> Iterator[Row]:
        """Make the rows of one set of heads; whole: with intervals and by occupation, unlike random ones."""
        if whole:
            ours = self._measure(images, scores)
            if self._base is None:
                self._base = ours
                _, first, alike = np.unique(ours.pools, axis=0, return_index=True, return_inverse=True)
                chances = [ours.chance_shares(index) for index in first]
                self._chances = [chances[index] for index in alike]
            of_plan = [row for metric in ours.metrics for row in self._of_metric(ours, self._base, metric)]
            of_plan += [] if self._fault else self._shares(ours, self._base)
            yield from (self._row | {"mode": ours.mode} | row for row in of_plan)
        elif self._base is not None and self._fault is None:
            for metric, value in self._measure.means(images, self._main, scores).items():
                before = self._base.figure(metric)
                figures = _figures(replace(before, value=value, low=nan, high=nan), before.value, None)
                mean = self._row | {"mode": self._base.mode, "occupation": ""}
                yield mean | {"metric": f"{metric} mean"} | figures

    def _of_metric(
        self, ours: bias_result.BiasResult, base: bias_result.BiasResult, name: skew.MetricName
    ) -> Iterator[Row]:
        """Make the rows of one metric: mean and, of skews, sum over the occupations, then each of them."""
        for place, occupation in [(None, ""), *enumerate(self._occupations)]:
            figure, before = ours.figure(name, place), base.figure(name, place).value
            effect = bias_result.compare(ours, base, name, place) if ours is not base else None
            row = {"occupation": occupation} | _figures(figure, before, effect)
            if place is not None:
                yield row | {"metric": name, "n": int(ours.pools[place].sum())}
                continue
            yield row | {"metric": f"{name} mean"}
            if name in skew.METRICS:
                n = len(self._occupations)
                row |= _figures(figure.times(n), before * n, effect and effect.times(n))
                yield row | {"metric": f"{name} sum"}

    def _shares(self, ours: bias_result.BiasResult, base: bias_result.BiasResult) -> Iterator[Row]:
        """Make the rows of each group's share of a top K, next to that of a random ranking."""
        for index, (occupation, chances) in enumerate(zip(self._occupations, self._chances, strict=True)):
            images = int(ours.pools[index].sum())
            for column, (group, chance) in enumerate(chances.items()):
                share, before = float(ours.top_shares[index, column]), float(base.top_shares[index, column])
                figures = _figures(bias_result.Figure(share, share, share, chance, nan), before, None)
                # An exact count; how far random rankings are from the pool's share, `chance` says.
                figures |= {"low": None, "high": None}
                yield {
                    "occupation": occupation,
                    "metric": f"{schema.TOP_SHARE}{group}",
                    "n": images,
                } | figures


def _figures(estimate: Estimate, baseline: float, difference: Effect | None) -> Row:
    """Make the columns of a result. difference: None for the baseline, and if there is no interval."""
    change: Iterable[Any] = (estimate.value - baseline, None, None, None)
    if difference is not None:
        change = vars(difference).values()
    names = ("difference", "difference_low", "difference_high", "p_value")
    row = {"value": estimate.value, "low": estimate.low, "high": estimate.high, "baseline": baseline}
    row |= dict(zip(names, change, strict=True))
    if isinstance(estimate, bias_result.Figure):
        chance = estimate.chance
        row |= {"chance": chance.value, "chance_low": chance.low, "chance_high": chance.high}
        row["ceiling"] = estimate.ceiling
    return row


SAMPLE = 512
"""Images of a set on which half precision is checked before a run."""
LARGEST_CHANGES = {"cosine": 0.01, "prediction": 0.02, "MaxSkew": 0.03}
"""The largest changes by half precision at which it is used: of a cosine, in the share of images whose class
changes, and of mean MaxSkew. CLIP's cosines of an image with the classes of a set differ by 0.05 or more, and
the intervals of top-1 and of MaxSkew are wider than the others on any set of the paper.
"""


def changes_by_precision(model: Model, sets: Sequence[EvaluationSet]) -> dict[str, float]:
    """Measure what a model's half precision changes on a sample of the first sets of classes and of people.

    Args:
        model: The model, loaded with half precision.
        sets: The evaluation sets.

    Returns:
        The changes by the names of LARGEST_CHANGES, without those that no set shows.
    """
    exact, changes = model.in_float32(), dict[str, float]()
    for kind in (ClassificationSet, BiasSet):
        data = next((data for data in sets if isinstance(data, kind)), None)
        if data is None:
            continue
        rows = np.unique(np.linspace(0, len(data.images) - 1, SAMPLE).astype(int))
        images, texts = [data.images[row] for row in rows], embed_texts(model, data)
        half, single = (
            np.concatenate(
                [run.embed_images(images[start : start + 64]) for start in range(0, len(rows), 64)]
            )
            @ texts.T
            for run in (model, exact)
        )
        changes["cosine"] = max(changes.get("cosine", 0.0), float(np.abs(half - single).max()))
        if isinstance(data, ClassificationSet):
            changes["prediction"] = float((half.argmax(1) != single.argmax(1)).mean())
        else:
            groups = data.groups[data.main][rows]
            skews = [_mean_max_skew(cosines, groups) for cosines in (half, single)]
            changes["MaxSkew"] = abs(skews[0] - skews[1])
    return changes


def _mean_max_skew(cosines: np.ndarray, groups: np.ndarray) -> float:
    """Return MaxSkew in the top tenth, mean over the prompts; cosines: [images, prompts]."""
    pool, k = Counter(groups.tolist()), max(1, len(groups) // 10)
    rankings = np.argsort(-cosines, axis=0, kind="stable").T
    return float(np.mean([skew.max_skew(groups[ranking].tolist(), pool, k) for ranking in rankings]))


def moved(texts: np.ndarray, data: BiasSet, pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> float:
    """Return the largest difference of mean MaxSkew between two embeddings of a set's images.

    Args:
        texts: The embeddings of `embed_texts`.
        data: The set.
        pairs: Pairs of embeddings [n, D].
    """
    rankings = [rank_gallery(data, attribute, texts) for attribute in data.groups]
    return max(
        abs(bias.means(left, ranked)["MaxSkew"] - bias.means(right, ranked)["MaxSkew"])
        for left, right in pairs
        for ranked in rankings
    )


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
    means = []
    for same in drawn.values():
        summary: Row = {"seed": None, "heads": "", "p_value": None}
        for name, ends in (("value", ("low", "high")), ("difference", ("difference_low", "difference_high"))):
            values = [row[name] for row in same]
            summary[name] = round(float(np.mean(values)), 12)  # differences may cancel out
            summary |= dict(zip(ends, np.quantile(values, (0.025, 0.975)).tolist(), strict=True))
        means.append(same[0] | summary)
    return means


def head_effects(rows: Iterable[Row]) -> list[Row]:
    """Make the rows of the table heads from those of ablating each head alone.

    They are total effects (a head is ablated, and later layers react), with the false discovery rate over the
    heads.
    """
    families: dict[tuple[str, str, str], list[Row]] = {}
    for row in filter(queries.is_main_figure, rows):
        if (head := AblationName.parse(row["ablation"]).head) is None:
            continue
        family = row["dataset"], row["metric"], row.get("attribute", "")
        families.setdefault(family, []).append(
            {"layer": head.layer, "head": head.head, "measure": "total effect", "dataset": family[0]}
            | {"metric": family[1], "factor": family[2], "value": row["difference"]}
            | {"low": row["difference_low"], "high": row["difference_high"], "p_value": row["p_value"]}
        )
    for effects in families.values():
        known = [np.nan if row["p_value"] is None else row["p_value"] for row in effects]
        for row, q_value in zip(effects, stats.benjamini_hochberg(known), strict=True):
            row["q_value"] = float(q_value)
    return [row for effects in families.values() for row in effects]
