"""Bias metrics of a model's rankings of people for occupations, with chance levels and intervals.

For each prompt the images are ranked by cosine with the prompt's text embedding (`ranking.Ranking`); `skew`
and `group_gaps` hold the formulas. Each result has
- a chance level: mean and 2.5th and 97.5th percentile over random rankings;
- a 95% interval: images and prompts are resampled with replacement, with the same draws for each ablation
  set and metric, so that differences between ablation sets are paired (`bias_result.compare_bias`).
Equal scores are ranked in random order, drawn from the seed for each prompt, so that a model that cannot tell
images apart is at chance. `BiasResult.ties` counts the ties that decided who is in the top K.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.errors import InputError
from ccs.metrics import ranking, stats
from ccs.metrics.bias_result import BiasResult, Metric
from ccs.metrics.group_gaps import INDIFFERENT, levels, preference
from ccs.metrics.pools import FEW, Pool, make_pools
from ccs.metrics.ranking import Ranking
from ccs.metrics.skew import METRICS, Floats, MetricName, ceiling, max_skew_of, ndkl_of, skews_of
from ccs.metrics.stats import Estimate

Scores = NDArray[np.float32]
DRAWS = 500
CHANCE_DRAWS = 1000
SHUFFLES = 400
_CHANCE, _WITHIN = 2, 7  # components of random seeds
_AUCS = 200  # random rankings, combined at random for the mean


def measure(image_embeddings: ArrayLike, question: Ranking, **settings: Any) -> BiasResult:
    """Measure one ablation set.

    Args:
        image_embeddings: Image embeddings [n, d].
        question: Ranking question: prompts, the images' groups, and K.
        **settings: Settings of `Measuring`.

    Returns:
        The result.
    """
    return measure_ablations([ranking.cosines(question.prompts, image_embeddings)], question, **settings)[0]


def measure_ablations(scores: Iterable[Scores], question: Ranking, **settings: Any) -> list[BiasResult]:
    """Measure several ablation sets for one question.

    Args:
        scores: Cosines of each ablation set [prompts, n].
        question: Ranking question: prompts, the images' groups, and K.
        **settings: Settings of `Measuring`.

    Returns:
        A result per ablation set.
    """
    with ranking.threads() as map:
        measuring = Measuring(question, map=map, **settings)
        return [measuring(of_set) for of_set in scores]


def means(
    image_embeddings: ArrayLike,
    question: Ranking,
    metrics: Sequence[MetricName] = ("MaxSkew",),
    **settings: Any,
) -> dict[MetricName, float]:
    """Measure means over prompts without intervals, for many sets of heads.

    They equal those of `measure` for the same question and seed.

    Args:
        image_embeddings: Image embeddings [n, d].
        question: Ranking question: prompts, the images' groups, and K.
        metrics: Names of metrics: "MaxSkew" or those in PREFERENCES (`group_gaps`).
        **settings: Settings of `Measuring`.

    Returns:
        A mean per metric.
    """
    scores = ranking.cosines(question.prompts, image_embeddings)
    return Measuring(question, **settings).means(scores, metrics)


class _Part(NamedTuple):
    """A pool with cosines [p, m] of some of its prompts, and the best images of each [p][depth]."""

    pool: Pool
    scores: Scores
    orders: Sequence[NDArray[np.intp]] = ()


def _rank_row(case: tuple[Pool, Scores, int]) -> _Part:
    pool, row, prompt = case
    return _Part(pool, row[None], [pool.top_of_draws(row, prompt)])


class Measuring:
    """Bias metrics of one ranking question, measured for one ablation set after another.

    Resampled pools and chance levels are drawn once, for all ablation sets. If prompts have their own pools,
    each pool is resampled by itself. Intervals are centered percentiles (`stats.interval`), because
    resampling alone raises MaxSkew. They are limited to possible values (for MaxSkew, 0 to its ceiling).

    Args:
        question: Ranking question: prompts, the images' groups, and K.
        metrics: Names of metrics.
        as_published: Whether to reproduce the fault of the paper's code
            (`ccs.analysis.inputs.has_order_fault`), for MaxSkew only. The result is marked "as-published". It
            measures the code, not the model.
        draws: Number of resampled pools for the intervals. NDKL and AUC, which read every rank, use only the
            first 32, and a normal interval from their spread.
        logit_scale: Factor from cosine to logit, for the logit gap.
        seed: Random seed for resampling and for the order of equal scores.
        map: Function like `map` that spreads work over threads (`ranking.threads`).

    Raises:
        InputError: If there are fewer than 2 groups or more than 255.
    """

    def __init__(
        self,
        question: Ranking,
        *,
        metrics: Sequence[MetricName] = METRICS,
        as_published: bool = False,
        draws: int = DRAWS,
        logit_scale: float = 1.0,
        seed: int = 0,
        map: ranking.Map = map,
    ) -> None:
        if not 2 <= (n := len(question.group_names)) <= 255:
            raise InputError(f"A skew needs 2 to 255 groups, one per image, but the images have {n}.")
        self._metrics: tuple[MetricName, ...] = ("MaxSkew",) if as_published else tuple(metrics)
        self._question, self._as_published, self._seed = question, as_published, seed
        self._logit_scale, self._map = logit_scale, map
        self._pools = make_pools(question, seed, draws, as_published)
        # Prompts too, so that the interval of the mean generalizes to other prompts like these.
        n, rng = len(question.prompts), np.random.default_rng([seed, 1])
        self._weights = rng.multinomial(n, np.full(n, 1 / n), size=draws) / n
        self._levels: Mapping[MetricName, tuple[Estimate, Estimate]] = {}

    def means(self, scores: Scores, metrics: Sequence[MetricName]) -> dict[MetricName, float]:
        """Measure means over prompts, without intervals.

        Args:
            scores: Cosines [prompts, n].
            metrics: Names of metrics: "MaxSkew" or those in PREFERENCES (`group_gaps`).

        Returns:
            A mean per metric.
        """
        values: dict[MetricName, list[Floats]] = {name: [] for name in metrics}
        for pool in self._pools:
            rows = pool.of(scores)
            for name in metrics:
                if name == "MaxSkew":
                    top = pool.count(pool.codes[pool.top(rows, self._question.k)])
                    values[name].append(max_skew_of(top, pool.shares(pool.counts)))
                else:
                    values[name].append(self._preference(pool, name, rows)[:, 0])
        return {name: float(np.concatenate(of_pools).mean()) for name, of_pools in values.items()}

    def __call__(
        self, scores: Scores, metrics: Sequence[MetricName] | None = None, *, within_units: bool = False
    ) -> BiasResult:
        """Measure one ablation set.

        Args:
            scores: Cosines [prompts, n].
            metrics: Some of the metrics. By default all.
            within_units: Whether to measure `BiasResult.within_units`, too.

        Returns:
            The result.

        Raises:
            InputError: If the scores don't fit the question.
        """
        question, wanted = self._question, self._metrics if metrics is None else tuple(metrics)
        if scores.shape != (shape := (len(question.prompts), len(question.groups))):
            raise InputError(f"Expected cosines [prompts, images] of shape {shape}; got {scores.shape}.")
        wholes = [_Part(pool, pool.of(scores)) for pool in self._pools]
        if not self._levels:  # computed once; draws too, before threads share them
            _ = [(pool.drawn, pool.half) for pool in self._pools]
            self._levels = self._chance_levels()
        rows = [(pool, row, prompt) for pool, whole, _ in wholes for prompt, row in enumerate(whole)]
        parts = list(self._map(_rank_row, rows))
        pools, ties, tops, ranked = np.stack([pool.counts for pool, _, _ in parts]), [], [], []
        for pool, (row,), (order,) in parts:
            first = order[: question.k]
            ranked.append(first)
            tops.append(pool.count(pool.codes[first[None]]))
            ties.append(int((row == row[first[-1]]).sum() - (row[first] == row[first[-1]]).sum()))
        limits: dict[MetricName, tuple[float, Any]] = {
            "MaxSkew": (0.0, np.inf if self._as_published else ceiling(pools, question.k)),
            "NDKL": (0.0, np.inf),
            "AUC": (0.5, 1.0),
            "logit gap": (0.0, np.inf),
            "AUC (cross-fitted)": (0.0, 1.0),
        }
        results, preferred = dict[MetricName, Metric](), dict[MetricName, NDArray[np.intp]]()
        for name in wanted:
            # Gaps of all prompts at once, for which weights are read once; the others' prompts on threads.
            of_name = wholes if name.startswith("logit gap") else parts
            redrawn = list(self._map(partial(self._redrawn, name), of_name))
            values, drawn, first = (np.concatenate(arrays) for arrays in zip(*redrawn, strict=True))
            results[name] = self._summary(name, values, drawn.T, limits.get(name, (-np.inf, np.inf)))
            if name != "NDKL":
                preferred[name] = first
        return BiasResult(
            metrics=results,
            preferred=preferred,
            groups=question.group_names,
            pools=pools,
            top=np.concatenate(tops),
            within_units=self._within_units(np.stack(ranked)) if within_units else None,
            ties=np.array(ties),
            k=question.k,
            n=len(question.groups),
            as_published=self._as_published,
            seed=self._seed,
        )

    def _within_units(self, ranked: NDArray[np.intp]) -> Estimate | None:
        """Measure MaxSkew of the top K [prompts, K] if groups are shuffled within each unit.

        Images of a unit, such as a scene with each group in turn, differ only in the group, so they rank next
        to each other and balance the top K: random rankings of single images are more skewed.
        """
        units, codes = self._question.units, self._question.codes
        if units is None or len(np.unique(units)) == len(np.unique([units, codes], axis=1).T):
            return None
        rng, skews = np.random.default_rng([self._seed, _WITHIN]), []
        for pool in self._pools:
            codes, of_pool = np.empty_like(pool.codes), units[pool.images]
            by_unit, of_draws = np.argsort(of_pool, kind="stable"), []
            for _ in range(SHUFFLES):
                codes[by_unit] = pool.codes[np.lexsort((rng.random(len(codes)), of_pool))]
                top = pool.count(codes[ranked[pool.rows]])
                of_draws.append(max_skew_of(top, pool.shares(pool.counts)))
            skews.append(of_draws)
        means = np.concatenate(skews, axis=1).mean(axis=1)
        return stats.interval(float(means.mean()), means)

    def _redrawn(self, name: MetricName, part: _Part) -> tuple[Floats, Floats, NDArray[np.intp]]:
        """Return a metric [p], with draws [p, draws], and each prompt's preferred group [p]."""
        pool, scores, orders = part
        if name in METRICS:
            (order,), k = orders, self._question.k
            shares, drawn_shares = pool.shares(pool.counts), pool.shares(pool.drawn[1])
            ranked = pool.codes[order[None, :k]]
            skews = skews_of(pool.count(ranked), shares)
            if name == "NDKL":
                redrawn = ndkl_of(pool.drawn_tops(order), drawn_shares[:FEW])
                return ndkl_of(ranked, shares), redrawn[None], skews.argmax(axis=1)
            redrawn = max_skew_of(pool.drawn_counts(order), drawn_shares)
            return skews.max(axis=1), redrawn[None], skews.argmax(axis=1)
        drawn = pool.drawn[0][:, : FEW if name.startswith("AUC") else None]
        values = self._preference(pool, name, scores, np.hstack([np.ones_like(drawn[:, :1]), drawn]))
        first = levels(name, scores, pool.member, np.ones((len(pool.codes), 1)))[:, :, 0].argmax(axis=1)
        return values[:, 0], values[:, 1:], first

    def _summary(
        self, name: MetricName, values: Floats, draws: Floats, limits: tuple[float, float | Floats]
    ) -> Metric:
        """Return a metric of values [prompts], with draws [draws, prompts] and intervals within limits."""
        low, high = stats.intervals(values, draws, center=True)
        mean_draws = (draws * self._weights[: len(draws)]).sum(axis=1)
        mean = stats.interval(float(values.mean()), mean_draws, center=True)
        lowest, highest = np.minimum(limits[0], values), np.maximum(limits[1], values)  # despite rounding
        ends = {"low": max(mean.low, float(lowest.mean())), "high": min(mean.high, float(highest.mean()))}
        low, high = np.maximum(low, lowest), np.minimum(high, highest)
        return Metric(values, low, high, replace(mean, **ends), *self._levels[name], draws, mean_draws)

    def _preference(
        self, pool: Pool, name: MetricName, scores: NDArray[Any], weights: NDArray[Any] | None = None
    ) -> Floats:
        """Return one of PREFERENCES [p, draws] for cosines [p, m] and weights [m, draws]."""
        values = preference(name, scores, pool.member, pool.half, weights)
        return values * (self._logit_scale if name.startswith("logit gap") else 1)

    def _chance_levels(self) -> Mapping[MetricName, tuple[Estimate, Estimate]]:
        """Return each metric's level for one random ranking, and for the mean over prompts."""
        chances, random = dict[MetricName, tuple[Estimate, Estimate]](), list(map(self._random, self._pools))
        for name in self._metrics:
            drawn = np.concatenate([of_pool[name] for of_pool in random], axis=1)
            value = INDIFFERENT.get(name, float(drawn.mean(axis=1).mean()))
            chances[name] = stats.interval(value, drawn.ravel()), stats.interval(value, drawn.mean(axis=1))
        return chances

    def _random(self, pool: Pool) -> dict[MetricName, Floats]:
        """Return the metrics of random, independent rankings of the images: [CHANCE_DRAWS, p].

        A logit gap's chance level depends on the logits and is NaN.
        """
        rng, k = np.random.default_rng([*pool.seed, _CHANCE]), self._question.k
        size, shares = (CHANCE_DRAWS, len(pool.rows)), pool.shares(pool.counts)
        # NDKL needs whole rankings; a thousand, combined at random for the mean, are as good as one per draw.
        codes = pool.codes.astype(np.intp)  # NumPy shuffles this type faster
        ranked = np.stack([rng.permutation(codes)[:k] for _ in range(CHANCE_DRAWS)])
        values: dict[MetricName, Floats] = {}
        for name in self._metrics:
            if name.startswith("logit gap"):
                values[name] = np.full(size, np.nan)
            elif name.startswith("AUC"):
                scores = rng.random((_AUCS, len(codes)))
                values[name] = rng.choice(self._preference(pool, name, scores)[:, 0], size=size)
            elif name == "NDKL":
                values[name] = rng.choice(ndkl_of(ranked.astype(np.uint8), shares), size=size)
            else:
                top = rng.multivariate_hypergeometric(pool.counts, k, size=size)
                values[name] = max_skew_of(top, shares)
        return values
