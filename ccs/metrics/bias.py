"""Bias metrics of a model's rankings of people for occupations, with chance levels and intervals.

For each prompt the images are ranked by cosine with the prompt's text embedding (`ranking.Ranking`); `skew`
and `group_gaps` hold the formulas. Each result has
- a chance level: mean and 2.5th and 97.5th percentile over random rankings;
- a 95% interval: images and prompts are resampled with replacement, with the same draws for each ablation
  set and metric, so that differences between ablation sets are paired (`bias_result.compare_bias`).
Equal scores are ranked in random order, drawn from the seed for each prompt, so that a model that cannot tell
images apart is at chance. `BiasResult.ties` counts the ties that decided who is in the top K.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.errors import InputError
from ccs.metrics import ranking, stats
from ccs.metrics.bias_result import BiasResult, chance_levels, metric_of
from ccs.metrics.group_gaps import levels, preference
from ccs.metrics.pools import FEW, Pool, make_pools
from ccs.metrics.ranking import Ranking
from ccs.metrics.skew import METRICS, Floats, MetricName, ceiling, max_skew_of, ndkl_of, skews_of
from ccs.metrics.stats import Estimate

Scores = NDArray[np.float32]
DRAWS = 500
CHANCE_DRAWS = 1000
_CHANCE, _WITHIN = 2, 7  # components of random seeds
_AUCS = 200  # random rankings, combined at random for the mean


def measure(image_embeddings: ArrayLike, question: Ranking, **settings: Any) -> BiasResult:
    """Measure one ablation set.

    Args:
        image_embeddings: an array [n, d].
        question: what is ranked for which prompts.
        **settings: those of `Measuring`.

    Returns:
        The result.
    """
    return measure_ablations([image_embeddings], question, **settings)[0]


def measure_ablations(
    embeddings: Iterable[ArrayLike], question: Ranking, **settings: Any
) -> list[BiasResult]:
    """Measure several ablation sets for one question.

    Args:
        embeddings: each ablation set's image embeddings [n, d], of any length; a generator keeps only one of
            them in memory.
        question: what is ranked for which prompts.
        **settings: those of `Measuring`.

    Returns:
        A result per ablation set.
    """
    with ranking.threads() as map:
        measuring = Measuring(question, map=map, **settings)
        return [measuring(images) for images in embeddings]


def means(
    image_embeddings: ArrayLike,
    question: Ranking,
    metrics: Sequence[MetricName] = ("MaxSkew",),
    **settings: Any,
) -> dict[MetricName, float]:
    """Measure means over prompts without intervals, for many sets of heads.

    They equal those of `measure` for the same question and seed.

    Args:
        image_embeddings: an array [n, d].
        question: what is ranked for which prompts.
        metrics: "MaxSkew" and PREFERENCES.
        **settings: those of `Measuring`.

    Returns:
        A mean per metric.
    """
    return Measuring(question, **settings).means(image_embeddings, metrics)


class Measuring:
    """Bias metrics for one question, of image embeddings of one ablation set after another.

    What all ablation sets share is drawn once: resampled pools, chance levels. If prompts have their own
    pools, each pool is resampled by itself. The intervals are centered percentiles (`stats.interval`), since
    resampling by itself raises a MaxSkew, within what the metric can be (a MaxSkew: 0 to its ceiling).

    Args:
        question: what is ranked for which prompts.
        metrics: names of metrics.
        as_published: reproduce the fault of the paper's code (`skew.has_order_fault`), for MaxSkew only. The
            result is marked "as-published", and measures the code, not the model.
        draws: resampled pools for the intervals. NDKL and AUC, which read all ranks, use the first 32 of
            them and a normal interval from their spread.
        logit_scale: the factor from a cosine to a logit, for the logit gap.
        seed: random seed for resampling and for the order of equal scores.
        map: spreads work over threads (`ranking.threads`).

    Raises:
        InputError: for fewer than two groups, or embeddings that don't fit.
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

    def means(
        self, image_embeddings: ArrayLike, metrics: Sequence[MetricName], scores: Scores | None = None
    ) -> dict[MetricName, float]:
        """Measure means over prompts, without intervals.

        Args:
            image_embeddings: an array [n, d].
            metrics: "MaxSkew" and PREFERENCES.
            scores: cosines [names, n] of all names with these embeddings, if they are known.

        Returns:
            A mean per metric.
        """
        values: dict[MetricName, list[Floats]] = {name: [] for name in metrics}
        for pool in self._pools:
            rows = pool.cosines(image_embeddings, scores, self._map)
            for name in metrics:
                if name == "MaxSkew":
                    top = pool.count(pool.codes[pool.top(rows, self._question.k)])
                    values[name].append(max_skew_of(top, pool.shares(pool.counts)))
                else:
                    values[name].append(self._preference(pool, name, rows)[:, 0])
        return {name: float(np.concatenate(of_pools).mean()) for name, of_pools in values.items()}

    def __call__(
        self,
        image_embeddings: ArrayLike,
        scores: Scores | None = None,
        metrics: Sequence[MetricName] | None = None,
    ) -> BiasResult:
        """Measure one ablation set.

        Args:
            image_embeddings: an array [n, d].
            scores: cosines [names, n] of all names with these embeddings, if they are known.
            metrics: some of the metrics; by default all.

        Returns:
            The result.
        """
        question, pictures, n = self._question, np.asarray(image_embeddings), len(self._question.groups)
        if len(pictures) != n:
            raise InputError(f"There are {len(pictures)} image embeddings for {n} groups.")
        wanted = self._metrics if metrics is None else tuple(metrics)
        ranked = [(pool, pool.cosines(pictures, scores, self._map)) for pool in self._pools]
        if not self._levels:  # computed once; draws too, before threads share them
            _ = [(pool.drawn, pool.half) for pool in self._pools]
            self._levels = chance_levels([self._random(pool) for pool in self._pools])
        cases = [(pool, row, prompt) for pool, rows in ranked for prompt, row in enumerate(rows)]
        tops, ties, values = zip(*self._map(lambda case: self._of_top(case, wanted), cases), strict=True)
        preferred: dict[MetricName, NDArray[np.intp]] = {
            "MaxSkew": np.array([of["preferred"] for of in values])
        }
        results: dict[MetricName, tuple[Floats, Floats]] = {
            name: (np.array([of[name][0] for of in values]), np.stack([of[name][1] for of in values]).T)
            for name in METRICS
            if name in wanted
        }
        for name in (name for name in wanted if name not in METRICS):
            # Gaps of all prompts at once, for which weights are read once; an AUC's prompts on threads.
            parts = ranked if name.startswith("logit gap") else [(pool, row[None]) for pool, row, _ in cases]
            redrawn = list(self._map(lambda part, name=name: self._redrawn(part, name), parts))
            plain, drawn, first = (np.concatenate(arrays) for arrays in zip(*redrawn, strict=True))
            results[name], preferred[name] = (plain, drawn.T), first
        pools = np.concatenate([np.tile(pool.counts, (len(pool.rows), 1)) for pool in self._pools])
        limits: dict[MetricName, tuple[float, Any]] = {
            "MaxSkew": (0.0, np.inf if self._as_published else ceiling(pools, question.k)),
            "NDKL": (0.0, np.inf),
            "AUC": (0.5, 1.0),
            "logit gap": (0.0, np.inf),
            "AUC (cross-fitted)": (0.0, 1.0),
        }
        bounds = {name: limits.get(name, (-np.inf, np.inf)) for name in wanted}
        return BiasResult(
            metrics={
                name: metric_of(*results[name], self._weights, bounds[name], *self._levels[name])
                for name in wanted
            },
            preferred=preferred,
            groups=question.group_names,
            pool=np.bincount(question.codes),
            pools=pools,
            top=np.stack(tops),
            ties=np.array(ties),
            k=question.k,
            n=n,
            as_published=self._as_published,
            seed=self._seed,
        )

    def _of_top(
        self, case: tuple[Pool, Scores, int], metrics: Sequence[MetricName]
    ) -> tuple[NDArray[np.int64], int, dict[str, Any]]:
        """Return a prompt's top K by group, ties at its end, and MaxSkew and NDKL with draws."""
        pool, scores, prompt = case
        k, shares, drawn_shares = self._question.k, pool.shares(pool.counts), pool.shares(pool.drawn[1])
        order = pool.top_of_draws(scores, prompt)
        inside, last = scores[order[:k]], scores[order[k - 1]]
        top = np.bincount(pool.codes[order[:k]], minlength=pool.n_groups)
        values: dict[str, Any] = {"preferred": int(skews_of(top, shares).argmax())}
        if "MaxSkew" in metrics:
            values["MaxSkew"] = max_skew_of(top, shares), max_skew_of(pool.drawn_counts(order), drawn_shares)
        if "NDKL" in metrics:
            value = ndkl_of(pool.codes[order[None, :k]], shares)[0]
            values["NDKL"] = value, ndkl_of(pool.drawn_tops(order), drawn_shares[:FEW])
        return top, int((scores == last).sum() - (inside == last).sum()), values

    def _redrawn(
        self, part: tuple[Pool, Scores], name: MetricName
    ) -> tuple[Floats, Floats, NDArray[np.intp]]:
        """Return one of PREFERENCES [p], with draws [p, draws], and each prompt's preferred group [p]."""
        pool, scores = part
        drawn = pool.drawn[0][:, : FEW if name.startswith("AUC") else None]
        values = self._preference(pool, name, scores, np.hstack([np.ones_like(drawn[:, :1]), drawn]))
        first = [levels(name, row[None], pool.codes, pool.n_groups)[0, :, 0].argmax() for row in scores]
        return values[:, 0], values[:, 1:], np.array(first)

    def _preference(
        self, pool: Pool, name: MetricName, scores: NDArray[Any], weights: NDArray[Any] | None = None
    ) -> Floats:
        """Return one of PREFERENCES [p, draws] for cosines [p, m] and weights [m, draws]."""
        values = preference(name, scores, pool.codes, pool.n_groups, pool.half, weights)
        return values * (self._logit_scale if name.startswith("logit gap") else 1)

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


def chance_within_units(
    image_embeddings: ArrayLike, question: Ranking, *, draws: int = 400, seed: int = 0
) -> Estimate | None:
    """Measure MaxSkew if groups are shuffled within each unit, such as a scene with each group in turn.

    Images of a unit differ only in the group, so they rank next to each other and balance the top K: random
    rankings of single images are more skewed. So this is the chance level to compare with for such galleries.

    Args:
        image_embeddings: an array [n, d].
        question: what is ranked for which prompts, with units.
        draws: number of shuffles.
        seed: random seed for the shuffles and for the order of equal scores.

    Returns:
        The mean over prompts, with its 95% range; None without a unit that has several groups.
    """
    units = question.units
    if units is None or len(np.unique(units)) == len(np.unique([units, question.codes], axis=1).T):
        return None
    rng, skews = np.random.default_rng([seed, _WITHIN]), []
    for pool in make_pools(question, seed, DRAWS):
        ranked = pool.top(pool.cosines(image_embeddings), question.k)
        codes, of_pool = np.empty_like(pool.codes), units[pool.images]
        by_unit, of_draws = np.argsort(of_pool, kind="stable"), []
        for _ in range(draws):
            codes[by_unit] = pool.codes[np.lexsort((rng.random(len(codes)), of_pool))]
            of_draws.append(max_skew_of(pool.count(codes[ranked]), pool.shares(pool.counts)))
        skews.append(of_draws)
    means = np.concatenate(skews, axis=1).mean(axis=1)
    return stats.interval(float(means.mean()), means)
