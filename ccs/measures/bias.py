"""MaxSkew and NDKL of a model's rankings of people for occupations, with their chance levels.

For each prompt the images are ranked by cosine with the prompt's text embedding (`ranking.Ranking`); `skew`
holds the formulas and their treatment of empty groups. Every figure comes with
- a chance level (`chance`): mean and 2.5th and 97.5th percentile over random rankings;
- a 95% interval: images and prompts resampled with replacement, with the same draws for every plan and
  metric, so that differences between plans are paired (`bias_result.compare`).
Equal scores are ranked in the images' order; `BiasResult.ties` counts where that decided who is in the top K.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ccs.errors import InputError
from ccs.measures import faults, ranking, stats
from ccs.measures.bias_part import Part, parts_of
from ccs.measures.bias_result import BiasResult, Metric
from ccs.measures.ranking import Ranking
from ccs.measures.skew import (
    INDIFFERENT,
    METRICS,
    Floats,
    MetricName,
    ceiling,
    max_skew_of,
    target_shares,
)
from ccs.measures.stats import Estimate

DRAWS = 500
SOME = 16  # rankings processed together: few enough for the processor's cache


def measure(image_embeddings: ArrayLike, asked: Ranking, **settings: Any) -> BiasResult:
    """The figures of one plan, image embeddings [n, d]; `settings` are those of `Measuring`."""
    return measure_plans([image_embeddings], asked, **settings)[0]


def measure_plans(plans: Iterable[ArrayLike], asked: Ranking, **settings: Any) -> list[BiasResult]:
    """The figures of several plans for one question; `settings` are those of `Measuring`.

    plans: one array [n, d] per plan: a list, an array [plans, n, d], or a generator, which keeps only one
    plan in memory. Rows need not be of unit length.
    """
    with ranking.threads() as map:
        one = Measuring(asked, map=map, **settings)
        return [one(images) for images in plans]


class Measuring:
    """Skew metrics for one question, of image embeddings of one plan after another.

    What all plans share is drawn at the start: resampled pools, chance levels.

    Args:
        fault: a fault of the released code to reproduce (`faults`), for MaxSkew only.
        draws: resampled pools for the intervals. NDKL and AUC, which read every rank, use the first 32 of
        them and a normal interval from their spread.
        logit_scale: the factor from a cosine to a logit, for the logit gap.
        map: spreads work over threads (`ranking.threads`).

    Where prompts have pools of their own, each pool is resampled by itself. The intervals are centered
    percentiles (`stats.interval`), since resampling by itself raises a MaxSkew, within what the metric can be
    (a MaxSkew: 0 to its ceiling). InputError: fewer than two groups, embeddings that do not fit.
    """

    def __init__(
        self,
        asked: Ranking,
        *,
        metrics: Sequence[MetricName] = METRICS,
        fault: faults.Fault | None = None,
        draws: int = DRAWS,
        logit_scale: float = 1.0,
        seed: int = 0,
        map: ranking.Map = map,
    ) -> None:
        if not 2 <= len(asked.group_names) <= 255:
            n = len(asked.group_names)
            raise InputError(f"A skew needs 2 to 255 groups, one per image, but the images have {n}.")
        wanted: tuple[MetricName, ...] = ("MaxSkew",) if fault else tuple(metrics)
        self._asked, self._fault, self._seed, self._map = asked, fault, seed, map
        self._parts = list(parts_of(asked, wanted, logit_scale, seed, draws, fault))
        for part in self._parts if fault != "aliased" else ():
            _ = part.drawn, part.half  # once, before several threads ask for them
        # Prompts too, so that the interval of the mean generalizes to other prompts like these.
        n, rng = len(asked.prompts), np.random.default_rng([seed, 1])
        self._weights = rng.multinomial(n, np.full(n, 1 / n), size=draws) / n
        self._levels = _chance_levels([part.random() for part in self._parts])

    def means(self, image_embeddings: ArrayLike, metrics: Sequence[MetricName]) -> dict[MetricName, float]:
        """See the function `means`."""
        return _means(self._parts, image_embeddings, metrics, self._map)

    def __call__(self, image_embeddings: ArrayLike) -> BiasResult:
        """The figures of one plan, image embeddings [n, d]."""
        parts, fault, asked = self._parts, self._fault, self._asked
        pictures, n = np.asarray(image_embeddings), len(asked.groups)
        if len(pictures) != n:
            raise InputError(f"There are {len(pictures)} image embeddings for {n} groups.")
        chunks = []
        for part in parts:
            scores = ranking.cosines(part.prompts, part.of(pictures), map=self._map)
            chunks += [(part, scores[i : i + SOME]) for i in range(0, len(scores), SOME)]
        found = list(self._map(lambda chunk: chunk[0].values(chunk[1]), chunks))
        top = np.concatenate([some.top for some in found])
        ties = np.concatenate([some.ties for some in found])
        values: dict[MetricName, tuple[Floats, Floats]] = {}
        for name in parts[0].metrics if fault != "aliased" else ():
            both = [some.of[name] for some in found]
            plain, drawn = (np.concatenate([one[side] for one in both]) for side in (0, 1))
            values[name] = plain, drawn
        if fault == "aliased":
            # Its figures consist of ties, and a resampled pool is full of ties: only prompts are resampled.
            top = np.concatenate(
                [faults.aliased_top(part.of(pictures), part.prompts, part.n_groups, part.k) for part in parts]
            )
            still = max_skew_of(top, parts[0].shares(parts[0].pool))
            values["MaxSkew"] = still, np.tile(still[:, None], len(self._weights))
        pools = np.concatenate([np.tile(part.pool, (len(part.prompts), 1)) for part in parts])
        highest = np.inf if fault else ceiling(pools, asked.k)
        limits: dict[MetricName, tuple[float, Any]] = {
            "MaxSkew": (0.0, highest), "NDKL": (0.0, np.inf), "AUC": (0.5, 1.0), "logit gap": (0.0, np.inf),
            "AUC (cross-fitted)": (0.0, 1.0),
        }  # fmt: skip
        return BiasResult(
            metrics={
                name: _metric(
                    plain, drawn.T, self._weights, limits.get(name, (-np.inf, np.inf)), *self._levels[name]
                )
                for name, (plain, drawn) in values.items()
            },
            groups=asked.group_names,
            pool=np.bincount(asked.codes),
            pools=pools,
            top=top,
            ties=ties,
            k=asked.k,
            n=n,
            fault=fault,
            seed=self._seed,
        )


def means(
    image_embeddings: ArrayLike,
    asked: Ranking,
    metrics: Sequence[MetricName] = ("MaxSkew",),
    *,
    logit_scale: float = 1.0,
    seed: int = 0,
) -> dict[MetricName, float]:
    """Means over the prompts without intervals, for many sets of heads: "MaxSkew" and PREFERENCES.

    They equal those of `measure` for the same question and seed.
    """
    return _means(list(parts_of(asked, tuple(metrics), logit_scale, seed, DRAWS)), image_embeddings, metrics)


def _means(
    parts: Sequence[Part],
    image_embeddings: ArrayLike,
    metrics: Sequence[MetricName],
    map: ranking.Map = map,
) -> dict[MetricName, float]:
    found: dict[MetricName, list[Floats]] = {name: [] for name in metrics}
    for part in parts:
        scores = ranking.cosines(part.prompts, part.of(image_embeddings), map=map)
        once = np.ones((len(part.codes), 1))
        for name in metrics:
            if name == "MaxSkew":
                top = part.counts(ranking.top(scores, part.k))
                found[name].append(max_skew_of(top, target_shares(part.pool)))
            else:
                found[name].append(part.preference(name, scores, once)[:, 0])
    return {name: float(np.concatenate(values).mean()) for name, values in found.items()}


def _chance_levels(
    values: Sequence[Mapping[MetricName, Floats]],
) -> Mapping[MetricName, tuple[Estimate, Estimate]]:
    """Metric -> levels of (one ranking, the mean over prompts) from each part's `random`."""
    found: dict[MetricName, tuple[Estimate, Estimate]] = {}
    for name in values[0]:
        drawn = np.concatenate([part[name] for part in values], axis=1)
        mean = drawn.mean(axis=1)
        value = float(mean.mean())
        single, several = stats.interval(value, drawn.ravel()), stats.interval(value, mean)
        if name in INDIFFERENT:
            single, several = (replace(level, value=INDIFFERENT[name]) for level in (single, several))
        found[name] = single, several
    return found


def _metric(
    values: Floats,
    draws: Floats,
    prompts: Floats,
    limits: tuple[float, float | Floats],
    chance: Estimate,
    chance_mean: Estimate,
) -> Metric:
    """limits: the lowest and the highest value that the metric can have, which its intervals keep to."""
    low, high = stats.intervals(values, draws, center=True)
    mean_draws = (draws * prompts[: len(draws)]).sum(axis=1)
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
