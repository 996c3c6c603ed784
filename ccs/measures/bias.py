"""MaxSkew and NDKL of a model's rankings of people for occupations, with their chance levels.

For each occupation the images are ranked by cosine with the occupation's text embedding; `skew` holds the
formulas and their treatment of empty groups. Every figure comes with
- a chance level (`chance`): mean and 2.5th and 97.5th percentile over random rankings;
- a 95% interval: images and occupations resampled with replacement, with the same draws for every plan and
  metric, so that differences between plans are paired (`compare`).
Equal scores are ranked in the images' order; `BiasResult.ties` counts where that decided who is in the top K.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.errors import InputError
from ccs.measures import faults, ranking, resampling, stats
from ccs.measures.questions import HALVES, Question, chance_levels, chance_shares, values_of
from ccs.measures.questions import means as means
from ccs.measures.skew import CALLED as CALLED
from ccs.measures.skew import METRICS as METRICS
from ccs.measures.skew import PLAIN as PLAIN
from ccs.measures.skew import PREFERENCES as PREFERENCES
from ccs.measures.skew import Floats, ceiling, check_k, halves, max_skew_of
from ccs.measures.skew import MetricName as MetricName
from ccs.measures.stats import Effect, Estimate

DRAWS = 500
SOME = 16  # rankings processed together: few enough for the processor's cache


@dataclass(frozen=True, kw_only=True, eq=False)
class Metric:
    """One metric over all occupations, in their order.

    `values`, `low`, `high`: float64 [occupations], with the interval from resampling images only. `mean`:
    over the occupations, resampling images and occupations. `chance`: of one random
    ranking; `chance_mean`: of the mean over as many independent random rankings as there are occupations.
    `draws`: float64 [draws, occupations], the resampled values; `mean_draws`: float64 [draws], their
    resampled mean.
    """

    values: Floats
    low: Floats
    high: Floats
    mean: Estimate
    chance: Estimate
    chance_mean: Estimate
    draws: Floats
    mean_draws: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class BiasResult:
    """The figures of one plan's rankings, with every choice that they depend on.

    `metrics`: those asked for. `top`: int64 [occupations, groups], images of each group in the top K; `pool`:
    int64 [groups], images of each group; `pools`: int64 [occupations, groups], the same among those that the
    occupation ranks. `ties`: int64 [occupations], images outside the top K with the score of the last one
    inside. `mode`: "correct" or "as-published" (then `fault` names the fault that is reproduced).
    """

    metrics: Mapping[MetricName, Metric]
    groups: tuple[str, ...]
    pool: NDArray[np.int64]
    pools: NDArray[np.int64]
    top: NDArray[np.int64]
    ties: NDArray[np.int64]
    k: int
    n: int
    fault: faults.Fault | None
    seed: int

    @property
    def mode(self) -> Literal["correct", "as-published"]:
        return "correct" if self.fault is None else "as-published"

    @property
    def max_skew(self) -> Metric:
        return self.metrics["MaxSkew"]

    @property
    def top_shares(self) -> Floats:
        """Each group's share of the top K, [occupations, groups]."""
        return np.asarray(self.top / self.k, dtype=np.float64)

    @property
    def ceilings(self) -> Floats:
        """The largest MaxSkew that each occupation's ranking can reach, [occupations]."""
        return ceiling(self.pools, self.k)

    def chance_shares(self, occupation: int = 0) -> dict[str, Estimate]:
        """Each group's share of the top K of a random ranking for an occupation, with its 95% range."""
        return dict(zip(self.groups, chance_shares(self.pools[occupation], self.k), strict=True))


def repeated(result: BiasResult, rows: ArrayLike) -> BiasResult:
    """The result with these rows of its occupations, whose means stay: prompts that are one text, each named.

    rows: int [names], the occupation of the result that each name stands for.
    """
    each = np.asarray(rows)
    metrics = {
        name: replace(one, values=one.values[each], low=one.low[each], high=one.high[each],
                      draws=one.draws[:, each])
        for name, one in result.metrics.items()
    }  # fmt: skip
    tables = {"top": result.top[each], "ties": result.ties[each], "pools": result.pools[each]}
    return replace(result, metrics=metrics, **tables)


def compare(
    result: BiasResult, baseline: BiasResult, metric: MetricName = "MaxSkew", occupation: int | None = None
) -> Effect:
    """The metric's mean over the occupations (or one occupation's value) less the baseline's, paired.

    Both results must come from the same images, occupations, seed and number of draws, so that draw i has the
    same images in both; otherwise InputError. For the sum, multiply by the number of occupations.
    """
    ours, theirs = result.metrics[metric], baseline.metrics[metric]
    settings = [(one.seed, one.n, one.k, one.groups) for one in (result, baseline)]
    if settings[0] != settings[1] or ours.draws.shape != theirs.draws.shape:
        raise InputError(
            "Two bias results can be compared only for the same images, groups, k, seed and draws."
        )
    if occupation is None:
        value, drawn, before = ours.mean.value - theirs.mean.value, ours.mean_draws, theirs.mean_draws
    else:
        value = float(ours.values[occupation] - theirs.values[occupation])
        drawn, before = ours.draws[:, occupation], theirs.draws[:, occupation]
    return stats.effect(value, drawn - before)


def measure(
    image_embeddings: ArrayLike,
    occupation_embeddings: ArrayLike,
    groups: ArrayLike,
    k: int,
    seed: int = 0,
    **settings: Any,
) -> BiasResult:
    """`measure_plans` for one plan, image embeddings [n, d]; `settings` are its other keyword arguments."""
    plans = [image_embeddings]
    return measure_plans(plans, occupation_embeddings, groups, k, seed=seed, **settings)[0]


def measure_plans(
    plans: Iterable[ArrayLike],
    occupation_embeddings: ArrayLike,
    groups: ArrayLike,
    k: int,
    *,
    metrics: tuple[MetricName, ...] = METRICS,
    fault: faults.Fault | None = None,
    pools: ArrayLike | None = None,
    units: ArrayLike | None = None,
    draws: int = DRAWS,
    logit_scale: float = 1.0,
    seed: int = 0,
    map: ranking.Map = map,
) -> list[BiasResult]:
    """Skew metrics of several plans' image embeddings for the same images and occupations.

    Args:
        plans: one array [n, d] per plan: a list, an array [plans, n, d], or a generator, which keeps only one
        plan in memory. Rows need not be of unit length.
        occupation_embeddings: [o, d], one row per occupation (templates already averaged).
        groups: [n] strings, one per image.
        k: cut-off of the ranking.
        fault: a fault of the released code to reproduce (`faults`), for MaxSkew only.
        pools: bool [o, n], the images that each occupation ranks, each pool resampled by itself; by default
        every occupation ranks all images.
        units: [n] numbers; images with the same number are resampled together. By default each image is its
        own unit.
        draws: resampled pools for the intervals. NDKL and AUC, which read every rank, use the first 32 of
        them and a normal interval from their spread.
        logit_scale: the factor from a cosine to a logit, for the logit gap.
        map: spreads the work over the caller's threads, as `ThreadPoolExecutor(2).map` does; limit the
        threads of BLAS then (`threadpoolctl`), or they busy-wait for one another.

    The intervals are centered percentiles (`stats.interval`), since resampling by itself raises a MaxSkew,
    within what the metric can be (a MaxSkew: 0 to its ceiling).
    InputError: k below 1 or above the images of a pool, fewer than two groups, embeddings, pools or units
    that do not fit.
    """
    texts = ranking.finite_rows(occupation_embeddings, "occupation embeddings")
    labels = np.asarray(groups, dtype=np.str_)
    names, inverse = np.unique(labels, return_inverse=True)
    if labels.ndim != 1 or not 2 <= len(names) <= 255:
        raise InputError(f"A skew needs 2 to 255 groups, one per image, but the images have {len(names)}.")
    codes = inverse.astype(np.uint8)
    whole = np.arange(len(codes))
    every: list[tuple[NDArray[np.intp], NDArray[np.intp], list[int]]] = [
        (np.arange(len(texts)), whole, [seed])  # occupations, the images that they rank, a seed
    ]
    if pools is not None:
        chosen = np.asarray(pools, dtype=bool)
        if chosen.shape != (len(texts), len(codes)):
            raise InputError(f"Pools of shape {chosen.shape} do not fit {len(texts)} x {len(codes)}.")
        every = [(np.array([o]), np.flatnonzero(one), [seed, 4, o]) for o, one in enumerate(chosen)]
    marks = whole if units is None else np.asarray(units)
    if marks.shape != codes.shape:
        raise InputError(f"There are {marks.size} units for {len(codes)} images.")
    # Occupations too, so that the interval of the mean generalizes to other occupations like these.
    n, rng = len(texts), np.random.default_rng([seed, 1])
    weights = rng.multinomial(n, np.full(n, 1 / n), size=draws) / n
    questions = [
        Question(
            names=tuple(str(name) for name in names),
            occupations=occupations,
            images=images,
            codes=codes[images],
            pool=np.bincount(codes[images], minlength=len(names)),
            k=check_k(k, len(images)),
            fault=fault,
            metrics=("MaxSkew",) if fault else metrics,
            draws=resampling.draw_images(codes[images], len(names), draws, own_seed, marks[images]),
            half=halves(codes[images], [*own_seed, HALVES], None if units is None else marks[images]),
            logit_scale=logit_scale,
            seed=own_seed,
        )
        for occupations, images, own_seed in every
    ]
    levels = chance_levels([question.random() for question in questions])
    return [
        _measure(questions, levels, weights, np.bincount(codes), embeddings, texts, seed, map)
        for embeddings in plans
    ]


def _measure(
    questions: Sequence[Question],
    levels: Mapping[MetricName, tuple[Estimate, Estimate]],
    weights: Floats,
    pool: NDArray[np.int64],
    embeddings: ArrayLike,
    texts: Floats,
    seed: int,
    map: ranking.Map,
) -> BiasResult:
    asked, pictures = questions[0], np.asarray(embeddings)
    if len(pictures) != pool.sum():
        raise InputError(f"There are {len(pictures)} image embeddings for {pool.sum()} groups.")
    parts = []
    for one in questions:
        shown = pictures if len(one.images) == len(pictures) else pictures[one.images]
        own = ranking.cosines(texts[one.occupations], shown, map=map)
        parts += [(one, own[i : i + SOME]) for i in range(0, len(own), SOME)]
    found = list(map(lambda part: values_of(*part), parts))
    top, ties = (np.concatenate([one[key] for one in found]) for key in ("top", "ties"))
    values = {
        name: tuple(np.concatenate([one[name][i] for one in found]) for i in (0, 1))
        for name in asked.metrics
        if asked.fault != "aliased"
    }
    if asked.fault == "aliased":
        # Its figures consist of ties, and a resampled pool is full of ties: only occupations are resampled.
        top = np.concatenate(
            [
                faults.aliased_top(pictures[one.images], texts[one.occupations], len(one.names), one.k)
                for one in questions
            ]
        )
        still = max_skew_of(top, asked.shares(asked.pool))
        values = {"MaxSkew": (still, np.tile(still[:, None], len(weights)))}
    pools = np.concatenate([np.tile(one.pool, (len(one.occupations), 1)) for one in questions])
    highest = np.inf if asked.fault else ceiling(pools, asked.k)
    limits = {"MaxSkew": (0.0, highest), "NDKL": (0.0, np.inf), "AUC": (0.0, 1.0)}
    limits |= {"plain AUC": (0.5, 1.0), "plain logit gap": (0.0, np.inf)}
    return BiasResult(
        metrics={
            name: _metric(one, drawn.T, weights, limits.get(name, (-np.inf, np.inf)), *levels[name])
            for name, (one, drawn) in values.items()
        },
        groups=asked.names,
        pool=pool,
        pools=pools,
        top=top,
        ties=ties,
        k=asked.k,
        n=len(pictures),
        fault=asked.fault,
        seed=seed,
    )


def _metric(
    values: Floats,
    draws: Floats,
    occupations: Floats,
    limits: tuple[float, float | Floats],
    chance: Estimate,
    chance_mean: Estimate,
) -> Metric:
    """limits: the lowest and the highest value that the metric can have, which its intervals keep to."""
    low, high = stats.intervals(values, draws, center=True)
    weights = occupations[: len(draws)]
    mean_draws = (draws * weights).sum(axis=1)
    mean = stats.interval(float(values.mean()), mean_draws, center=True)
    least, most = np.minimum(limits[0], values), np.maximum(limits[1], values)  # despite rounding
    return Metric(
        values=values,
        low=np.maximum(low, least),
        high=np.minimum(high, most),
        mean=replace(mean, low=max(mean.low, float(least.mean())), high=min(mean.high, float(most.mean()))),
        chance=chance,
        chance_mean=chance_mean,
        draws=draws,
        mean_draws=mean_draws,
    )
