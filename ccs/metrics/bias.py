"""MaxSkew and NDKL of a model's rankings of people for occupations, with their chance levels.

For each prompt the images are ranked by cosine with the prompt's text embedding (`ranking.Ranking`); `skew`
holds the formulas and their treatment of empty groups. Every figure comes with
- a chance level (`chance`): mean and 2.5th and 97.5th percentile over random rankings;
- a 95% interval: images and prompts resampled with replacement, with the same draws for every plan and
  metric, so that differences between plans are paired (`bias_result.compare`).
Equal scores are ranked in the images' order; `BiasResult.ties` counts where that decided who is in the top K.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.errors import InputError
from ccs.metrics import ranking, resampling
from ccs.metrics.bias_result import BiasResult, chance_levels, metric_of
from ccs.metrics.ranking import Ranking
from ccs.metrics.skew import (
    METRICS,
    Fault,
    Floats,
    MetricName,
    aliased_top,
    ceiling,
    halves,
    max_skew_of,
    ndkl_of,
    preference,
    target_shares,
)

Scores = NDArray[np.float32]
DRAWS = 500
SOME = 16  # rankings processed together: few enough for the processor's cache
CHANCE_DRAWS = 1000
_HALVES, _CHANCE, _OF_PROMPT = 3, 2, 4  # parts of seeds
_AUCS = 200  # random rankings, combined at random for the mean


def measure(image_embeddings: ArrayLike, asked: Ranking, **settings: Any) -> BiasResult:
    """The figures of one plan, image embeddings [n, d]; `settings` are those of `Measuring`."""
    return measure_plans([image_embeddings], asked, **settings)[0]


def measure_plans(
    plans: Iterable[ArrayLike], asked: Ranking, changed: NDArray[np.floating] | None = None, **settings: Any
) -> list[BiasResult]:
    """`measure` of several plans for one question: a list, an array [plans, n, d], or a generator, which
    keeps only one plan in memory. Rows need not be of unit length.

    changed: embeddings [names, d] of all that was asked for, as the last plan has them; then only the first
    plan and the last are measured.
    """
    if changed is not None:
        both = list(plans)
        last = measure(both[-1], replace(asked, prompts=changed[asked.first]), **settings)
        return [measure(both[0], asked, **settings), last]
    with ranking.threads() as map:
        one = Measuring(asked, map=map, **settings)
        return [one(images) for images in plans]


class Measuring:
    """Skew metrics for one question, of image embeddings of one plan after another.

    What all plans share is drawn at the start: resampled pools, chance levels.

    Args:
        fault: a fault of the released code to reproduce (`skew`), for MaxSkew only.
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
        fault: Fault | None = None,
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
        self._parts = _parts(asked, wanted, logit_scale, seed, draws, fault)
        for part in self._parts if fault != "aliased" else ():
            _ = part.drawn, part.half  # once, before several threads ask for them
        # Prompts too, so that the interval of the mean generalizes to other prompts like these.
        n, rng = len(asked.prompts), np.random.default_rng([seed, 1])
        self._weights = rng.multinomial(n, np.full(n, 1 / n), size=draws) / n
        self._levels = chance_levels([part.random() for part in self._parts])

    def means(
        self, image_embeddings: ArrayLike, metrics: Sequence[MetricName], scores: Scores | None = None
    ) -> dict[MetricName, float]:
        """See the function `means`; `scores` as below."""
        return _means(self._parts, image_embeddings, metrics, self._map, scores)

    def __call__(self, image_embeddings: ArrayLike, scores: Scores | None = None) -> BiasResult:
        """The figures of one plan, image embeddings [n, d].

        scores: cosines [names, n] of all that was asked for with these embeddings, where they are known.
        """
        parts, fault, asked = self._parts, self._fault, self._asked
        pictures, n = np.asarray(image_embeddings), len(asked.groups)
        if len(pictures) != n:
            raise InputError(f"There are {len(pictures)} image embeddings for {n} groups.")
        ranked = [(part, _scores(part, pictures, self._map, scores)) for part in parts]
        chunks = [(part, own[i : i + SOME]) for part, own in ranked for i in range(0, len(own), SOME)]
        tops, tied, of = zip(*self._map(lambda chunk: chunk[0].values(chunk[1]), chunks), strict=True)
        top, ties = np.concatenate(tops), np.concatenate(tied)
        values: dict[MetricName, tuple[Floats, Floats]] = {}
        for name in parts[0].metrics if fault != "aliased" else ():
            pieces: Iterable[tuple[Floats, Floats]] = (some[name] for some in of)
            if name.startswith("logit gap"):  # of all rankings at once, for which weights are read once
                pieces = self._map(Part.redrawn, *zip(*ranked, strict=True), repeat(name))
            plain, drawn = map(np.concatenate, zip(*pieces, strict=True))
            values[name] = plain, drawn
        if fault == "aliased":
            # Its figures consist of ties, and a resampled pool is full of ties: only prompts are resampled.
            aliased = [
                aliased_top(part.of(pictures), part.prompts, own, part.n_groups, asked.k)
                for part, own in ranked
            ]
            top = np.concatenate(aliased)
            still = max_skew_of(top, parts[0].shares(parts[0].pool))
            values["MaxSkew"] = still, np.tile(still[:, None], len(self._weights))
        pools = np.concatenate([np.tile(part.pool, (len(part.prompts), 1)) for part in parts])
        highest = np.inf if fault else ceiling(pools, asked.k)
        limits: dict[MetricName, tuple[float, Any]] = {
            "MaxSkew": (0.0, highest),
            "NDKL": (0.0, np.inf),
            "AUC": (0.5, 1.0),
            "logit gap": (0.0, np.inf),
            "AUC (cross-fitted)": (0.0, 1.0),
        }
        return BiasResult(
            metrics={
                name: metric_of(
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
    return _means(_parts(asked, metrics, logit_scale, seed, DRAWS), image_embeddings, metrics)


def _means(
    parts: Sequence[Part],
    image_embeddings: ArrayLike,
    metrics: Sequence[MetricName],
    map: ranking.Map = map,
    scores: Scores | None = None,
) -> dict[MetricName, float]:
    found: dict[MetricName, list[Floats]] = {name: [] for name in metrics}
    for part in parts:
        own = _scores(part, image_embeddings, map, scores)
        for name in metrics:
            if name == "MaxSkew":
                top = part.counts(ranking.top(own, part.asked.k))
                found[name].append(max_skew_of(top, target_shares(part.pool)))
            else:
                found[name].append(part.preference(name, own)[:, 0])
    return {name: float(np.concatenate(values).mean()) for name, values in found.items()}


def _scores(part: Part, image_embeddings: ArrayLike, map: ranking.Map, scores: Scores | None) -> Scores:
    """Scores [p, m] of a part's prompts and images, found among all that are known."""
    if scores is None:
        return ranking.cosines(part.prompts, part.of(image_embeddings), map=map)
    own = scores if len(part.names) == len(scores) else scores[part.names]
    return own if len(part.images) == own.shape[1] else own[:, part.images]


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """Prompts [p, d] that rank the same images, intp [m], with all that is the same for all plans.

    `names`: intp [p], the prompts' places among all names asked for. `seed`: of everything that is drawn for
    them. The rest is as in `Measuring`.
    """

    asked: Ranking
    prompts: NDArray[np.floating]
    names: NDArray[np.intp]
    images: NDArray[np.intp]
    seed: list[int]
    metrics: tuple[MetricName, ...]
    logit_scale: float
    draws: int
    fault: Fault | None = None

    @cached_property
    def codes(self) -> NDArray[np.uint8]:
        """The groups of these images [m], as numbers below `n_groups`."""
        return self.asked.codes[self.images]

    @cached_property
    def units(self) -> NDArray[Any] | None:
        """What is resampled together [m]."""
        return None if self.asked.units is None else self.asked.units[self.images]

    @cached_property
    def n_groups(self) -> int:
        return len(self.asked.group_names)

    @cached_property
    def pool(self) -> NDArray[np.int64]:
        """Images of each group [groups]."""
        return np.bincount(self.codes, minlength=self.n_groups)

    @cached_property
    def half(self) -> NDArray[np.bool_]:
        """The half of the images [m] on which groups are chosen, see `skew`."""
        return halves(self.codes, [*self.seed, _HALVES], self.units)

    @cached_property
    def drawn(self) -> resampling.Draws:
        """The resampled pools."""
        return resampling.draw_images(self.codes, self.n_groups, self.draws, self.seed, self.units)

    def of(self, embeddings: ArrayLike) -> NDArray[Any]:
        """The rows [m, d] of these images among embeddings of all."""
        every = np.asarray(embeddings)
        return every if len(self.images) == len(every) else every[self.images]

    def counts(self, ranked: NDArray[np.intp]) -> NDArray[np.int64]:
        """The number of images of each group [p, groups] among ranked images [p, ranks]."""
        codes = self.codes[ranked]
        return np.stack([(codes == group).sum(axis=1) for group in range(self.n_groups)], axis=1)

    def preference(
        self, name: MetricName, scores: NDArray[Any], weights: NDArray[Any] | None = None
    ) -> Floats:
        """One of PREFERENCES [p, draws] where image i counts weights[i] times [m, draws], or once."""
        found = preference(name, scores, self.codes, self.n_groups, self.half, weights)
        return found * (self.logit_scale if name.startswith("logit gap") else 1)

    def shares(self, pool: ArrayLike) -> Floats:
        """Target shares [..., groups] for the pool's counts, with the fault, if any."""
        counts = np.asarray(pool, dtype=np.float64)
        if self.fault == "order":
            # Group codes in the order in which they first appear in the images' order.
            counts = counts[..., np.argsort(np.unique(self.codes, return_index=True)[1])]
        return target_shares(np.ones_like(counts) if self.fault == "aliased" else counts)

    def random(self) -> dict[MetricName, Floats]:
        """The metrics of random, independent rankings of the images: [CHANCE_DRAWS, p].

        A logit gap's chance level depends on the logits and is NaN.
        """
        rng = np.random.default_rng([*self.seed, _CHANCE])
        size, shares = (CHANCE_DRAWS, len(self.prompts)), self.shares(self.pool)
        if self.fault == "aliased":
            # Without ties an image's copies are adjacent, so that only the remainder of k is uneven.
            top = np.bincount(np.arange(self.asked.k) % self.n_groups, minlength=self.n_groups)
            return {"MaxSkew": np.full(size, max_skew_of(top, shares))}
        # NDKL needs whole rankings; a thousand, combined at random for the mean, are as good as one per draw.
        codes = self.codes.astype(np.intp)  # which NumPy shuffles faster
        ranked = np.stack([rng.permutation(codes)[: self.asked.k] for _ in range(CHANCE_DRAWS)])
        found: dict[MetricName, Floats] = {}
        for name in self.metrics:
            if name.startswith("logit gap"):
                found[name] = np.full(size, np.nan)
            elif name.startswith("AUC"):
                scores = rng.random((_AUCS, len(self.codes)))
                found[name] = rng.choice(self.preference(name, scores)[:, 0], size=size)
            elif name == "NDKL":
                found[name] = rng.choice(ndkl_of(ranked.astype(np.uint8), shares), size=size)
            else:
                top = rng.multivariate_hypergeometric(self.pool, self.asked.k, size=size)
                found[name] = max_skew_of(top, shares)
        return found

    def values(
        self, scores: NDArray[np.float32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], dict[MetricName, tuple[Floats, Floats]]]:
        """From scores [p, m]: the top K [p, groups], ties [p], and values [p] with draws [p, draws] of all
        metrics but the logit gaps.
        """
        k = self.asked.k
        order = ranking.top(scores, resampling.window(scores.shape[1], k)[1])
        inside = np.take_along_axis(scores, order[:, :k], axis=1)
        last = inside[:, -1:]
        ties = (scores == last).sum(axis=1) - (inside == last).sum(axis=1)
        top, found = self.counts(order[:, :k]), dict[MetricName, tuple[Floats, Floats]]()
        if self.fault == "aliased":
            return top, ties, found
        shares, drawn_shares = self.shares(self.pool), self.shares(self.drawn.pool)
        if "MaxSkew" in self.metrics:
            drawn = resampling.top_counts(self.drawn, scores, order, k)
            found["MaxSkew"] = max_skew_of(top, shares), max_skew_of(drawn, drawn_shares)
        if "NDKL" in self.metrics:
            tops = resampling.first_tops(self.drawn, scores, order, k)
            rankings, few, _ = tops.shape
            redrawn = ndkl_of(tops.reshape(-1, k), np.tile(drawn_shares[:few], (rankings, 1)))
            found["NDKL"] = ndkl_of(self.codes[order[:, :k]], shares), redrawn.reshape(rankings, few)
        found |= {name: self.redrawn(scores, name) for name in self.metrics if name.startswith("AUC")}
        return top, ties, found

    def redrawn(self, scores: Scores, name: MetricName) -> tuple[Floats, Floats]:
        """One of PREFERENCES [p], with draws [p, draws]."""
        drawn = self.drawn.weights[:, : resampling.FEW if name.startswith("AUC") else None]
        both = self.preference(name, scores, np.hstack([np.ones_like(drawn[:, :1]), drawn]))
        return both[:, 0], both[:, 1:]


def _parts(
    asked: Ranking,
    metrics: Sequence[MetricName],
    logit_scale: float,
    seed: int,
    draws: int,
    fault: Fault | None = None,
) -> list[Part]:
    """All prompts together, or each with the images of its own pool."""
    names = asked.first
    every = [(asked.prompts, names, np.arange(len(asked.groups)), [seed])]
    if asked.pools is not None:
        every = [
            (asked.prompts[[prompt]], names[[prompt]], np.flatnonzero(pool), [seed, _OF_PROMPT, prompt])
            for prompt, pool in enumerate(asked.pools)
        ]
    return [
        Part(
            asked=asked,
            prompts=prompts,
            names=own,
            images=images,
            seed=drawn,
            metrics=tuple(metrics),
            logit_scale=logit_scale,
            draws=draws,
            fault=fault,
        )
        for prompts, own, images, drawn in every
    ]
