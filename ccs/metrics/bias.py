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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.errors import InputError
from ccs.metrics import ranking, resampling, stats
from ccs.metrics.bias_result import BiasResult, chance_levels, metric_of
from ccs.metrics.group_gaps import halves, levels, preference
from ccs.metrics.ranking import Ranking
from ccs.metrics.skew import (
    METRICS,
    Floats,
    MetricName,
    ceiling,
    max_skew_of,
    ndkl_of,
    skews_of,
    target_shares,
)
from ccs.metrics.stats import Estimate

Scores = NDArray[np.float32]
DRAWS = 500
CHANCE_DRAWS = 1000
_CHANCE, _HALVES, _OF_PROMPT, _TIES, _WITHIN = 2, 3, 4, 5, 7  # parts of seeds
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
    plans: Iterable[ArrayLike],
    question: Ranking,
    changed: NDArray[np.floating] | None = None,
    **settings: Any,
) -> list[BiasResult]:
    """Measure several ablation sets for one question.

    Args:
        plans: each ablation set's image embeddings [n, d], of any length: a list, an array [plans, n, d], or
            a generator, which keeps only one of them in memory.
        question: what is ranked for which prompts.
        changed: text embeddings [names, d] of all names as the last ablation set has them; then only the
            first set and the last are measured.
        **settings: those of `Measuring`.

    Returns:
        A result per ablation set.
    """
    if changed is not None:
        embedded = list(plans)
        last = measure(embedded[-1], replace(question, prompts=changed[question.first_positions]), **settings)
        return [measure(embedded[0], question, **settings), last]
    with ranking.threads() as map:
        measuring = Measuring(question, map=map, **settings)
        return [measuring(images) for images in plans]


class Measuring:
    """Bias metrics for one question, of image embeddings of one ablation set after another.

    What all ablation sets share is drawn at the start: resampled pools, chance levels. If prompts have their
    own pools, each pool is resampled by itself. The intervals are centered percentiles (`stats.interval`),
    since resampling by itself raises a MaxSkew, within what the metric can be (a MaxSkew: 0 to its ceiling).

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
        wanted: tuple[MetricName, ...] = ("MaxSkew",) if as_published else tuple(metrics)
        self._question, self._as_published, self._seed, self._map = question, as_published, seed, map
        self._parts = _parts(question, wanted, logit_scale, seed, draws, as_published)
        for part in self._parts:
            _ = part.drawn, part.half  # once, before several threads ask for them
        # Prompts too, so that the interval of the mean generalizes to other prompts like these.
        n, rng = len(question.prompts), np.random.default_rng([seed, 1])
        self._weights = rng.multinomial(n, np.full(n, 1 / n), size=draws) / n
        self._levels = chance_levels([part.random() for part in self._parts])

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
        return _means(self._parts, image_embeddings, metrics, self._map, scores)

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
        parts, question = self._parts, self._question
        pictures, n = np.asarray(image_embeddings), len(question.groups)
        if len(pictures) != n:
            raise InputError(f"There are {len(pictures)} image embeddings for {n} groups.")
        ranked = [(part, _scores(part, pictures, self._map, scores)) for part in parts]
        cases = [(part, row, prompt) for part, rows in ranked for prompt, row in enumerate(rows)]
        wanted = parts[0].metrics if metrics is None else tuple(metrics)
        prompts = list(self._map(lambda case: case[0].measure_prompt(*case[1:], wanted), cases))
        values: dict[MetricName, tuple[Floats, Floats]] = {}
        for name in wanted:
            if name.startswith("logit gap"):  # of all prompts at once, for which weights are read once
                gaps = self._map(lambda of, name=name: of[0].redrawn(of[1], name), ranked)
                plain, drawn = map(np.concatenate, zip(*gaps, strict=True))
            else:
                plain, drawn = (np.stack([of.values[name][side] for of in prompts]) for side in (0, 1))
            values[name] = plain, drawn
        pools = np.concatenate([np.tile(part.pool, (len(part.prompts), 1)) for part in parts])
        highest = np.inf if self._as_published else ceiling(pools, question.k)
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
            preferred={
                name: np.array([of.preferred[name] for of in prompts]) for name in prompts[0].preferred
            },
            groups=question.group_names,
            pool=np.bincount(question.codes),
            pools=pools,
            top=np.stack([of.top for of in prompts]),
            ties=np.array([of.ties for of in prompts]),
            k=question.k,
            n=n,
            as_published=self._as_published,
            seed=self._seed,
        )


def means(
    image_embeddings: ArrayLike,
    question: Ranking,
    metrics: Sequence[MetricName] = ("MaxSkew",),
    *,
    logit_scale: float = 1.0,
    seed: int = 0,
) -> dict[MetricName, float]:
    """Measure means over prompts without intervals, for many sets of heads.

    They equal those of `measure` for the same question and seed.

    Args:
        image_embeddings: an array [n, d].
        question: what is ranked for which prompts.
        metrics: "MaxSkew" and PREFERENCES.
        logit_scale: the factor from a cosine to a logit.
        seed: random seed for the halves and for the order of equal scores.

    Returns:
        A mean per metric.
    """
    return _means(_parts(question, metrics, logit_scale, seed, DRAWS), image_embeddings, metrics)


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
    if question.units is None or len(np.unique(question.units)) == len(
        np.unique(np.stack([question.units, question.codes]), axis=1).T
    ):
        return None
    rng, skews = np.random.default_rng([seed, _WITHIN]), []
    for part in _parts(question, ("MaxSkew",), 1.0, seed, DRAWS):
        rows = _scores(part, image_embeddings, map, None)
        ranked = ranking.top(rows, question.k, [part.tie_seed(prompt) for prompt in range(len(rows))])
        units, of_draws, codes = question.units[part.images], [], np.empty_like(part.group_codes)
        by_unit = np.argsort(units, kind="stable")
        for _ in range(draws):
            codes[by_unit] = part.group_codes[np.lexsort((rng.random(len(units)), units))]
            of_draws.append(max_skew_of(part.counts(codes[ranked]), target_shares(part.pool)))
        skews.append(of_draws)
    means = np.concatenate(skews, axis=1).mean(axis=1)
    return stats.interval(float(means.mean()), means)


def _means(
    parts: Sequence[Part],
    image_embeddings: ArrayLike,
    metrics: Sequence[MetricName],
    map: ranking.Map = map,
    scores: Scores | None = None,
) -> dict[MetricName, float]:
    values: dict[MetricName, list[Floats]] = {name: [] for name in metrics}
    for part in parts:
        rows = _scores(part, image_embeddings, map, scores)
        for name in metrics:
            if name == "MaxSkew":
                seeds = [part.tie_seed(prompt) for prompt in range(len(rows))]
                top = part.counts(part.group_codes[ranking.top(rows, part.question.k, seeds)])
                values[name].append(max_skew_of(top, target_shares(part.pool)))
            else:
                values[name].append(part.preference(name, rows)[:, 0])
    return {name: float(np.concatenate(of_parts).mean()) for name, of_parts in values.items()}


def _scores(part: Part, image_embeddings: ArrayLike, map: ranking.Map, scores: Scores | None) -> Scores:
    """Scores [p, m] of a part's prompts and images, taken from all that are known."""
    if scores is None:
        return ranking.cosines(part.prompts, part.rows_of(image_embeddings), map=map)
    rows = scores if len(part.names) == len(scores) else scores[part.names]
    return rows if len(part.images) == rows.shape[1] else rows[:, part.images]


@dataclass(frozen=True)
class MeasuredPrompt:
    """One prompt's ranking.

    Attributes:
        top: images of each group in the top K [groups].
        ties: images outside the top K with the score of the last one inside.
        preferred: each metric's preferred group, as its number.
        values: each metric's value, with draws [draws]; without the logit gaps.
    """

    top: NDArray[np.int64]
    ties: int
    preferred: dict[MetricName, int]
    values: dict[MetricName, tuple[float, Floats]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """Prompts that rank the same images, with all that is the same for all ablation sets.

    Attributes:
        question: the question of which this is a part.
        prompts: text embeddings [p, d].
        names: the prompts' positions among all names, intp [p].
        images: the images' positions among all images, intp [m].
        seed: random seed of whatever is drawn for them.
        metrics, logit_scale, draws, as_published: as in `Measuring`.
    """

    question: Ranking
    prompts: NDArray[np.floating]
    names: NDArray[np.intp]
    images: NDArray[np.intp]
    seed: list[int]
    metrics: tuple[MetricName, ...]
    logit_scale: float
    draws: int
    as_published: bool = False

    @cached_property
    def group_codes(self) -> NDArray[np.uint8]:
        """The groups of these images [m], as numbers below `n_groups`."""
        return self.question.codes[self.images]

    @cached_property
    def units(self) -> NDArray[Any] | None:
        """What is resampled together [m]."""
        return None if self.question.units is None else self.question.units[self.images]

    @cached_property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.question.group_names)

    @cached_property
    def pool(self) -> NDArray[np.int64]:
        """Images of each group [groups]."""
        return np.bincount(self.group_codes, minlength=self.n_groups)

    @cached_property
    def half(self) -> NDArray[np.bool_]:
        """The half of the images [m] on which groups are chosen (`group_gaps`)."""
        return halves(self.group_codes, [*self.seed, _HALVES], self.units)

    @cached_property
    def drawn(self) -> resampling.Draws:
        """The resampled pools."""
        return resampling.draw_images(self.group_codes, self.n_groups, self.draws, self.seed, self.units)

    def rows_of(self, embeddings: ArrayLike) -> NDArray[Any]:
        """The rows [m, d] of these images among embeddings of all."""
        rows = np.asarray(embeddings)
        return rows if len(self.images) == len(rows) else rows[self.images]

    def tie_seed(self, prompt: int) -> list[int]:
        """The seed for a prompt's order of equal scores."""
        return [*self.seed, _TIES, prompt]

    def counts(self, codes: NDArray[np.integer]) -> NDArray[np.int64]:
        """Count images of each group [p, groups] among the groups of ranked images [p, ranks]."""
        return np.stack([(codes == group).sum(axis=1) for group in range(self.n_groups)], axis=1)

    def preference(
        self, name: MetricName, scores: NDArray[Any], weights: NDArray[Any] | None = None
    ) -> Floats:
        """Compute one of PREFERENCES [p, draws].

        Args:
            name: the metric.
            scores: cosines [p, m].
            weights: how often each image counts [m, draws]; by default once.
        """
        values = preference(name, scores, self.group_codes, self.n_groups, self.half, weights)
        return values * (self.logit_scale if name.startswith("logit gap") else 1)

    def shares(self, pool: ArrayLike) -> Floats:
        """Target shares [..., groups] for the pool's counts, in the wrong order if as published."""
        counts = np.asarray(pool, dtype=np.float64)
        if self.as_published:  # groups in the order in which they first appear
            counts = counts[..., np.argsort(np.unique(self.group_codes, return_index=True)[1])]
        return target_shares(counts)

    def random(self) -> dict[MetricName, Floats]:
        """The metrics of random, independent rankings of the images: [CHANCE_DRAWS, p].

        A logit gap's chance level depends on the logits and is NaN.
        """
        rng = np.random.default_rng([*self.seed, _CHANCE])
        size, shares = (CHANCE_DRAWS, len(self.prompts)), self.shares(self.pool)
        # NDKL needs whole rankings; a thousand, combined at random for the mean, are as good as one per draw.
        codes = self.group_codes.astype(np.intp)  # which NumPy shuffles faster
        ranked = np.stack([rng.permutation(codes)[: self.question.k] for _ in range(CHANCE_DRAWS)])
        values: dict[MetricName, Floats] = {}
        for name in self.metrics:
            if name.startswith("logit gap"):
                values[name] = np.full(size, np.nan)
            elif name.startswith("AUC"):
                scores = rng.random((_AUCS, len(self.group_codes)))
                values[name] = rng.choice(self.preference(name, scores)[:, 0], size=size)
            elif name == "NDKL":
                values[name] = rng.choice(ndkl_of(ranked.astype(np.uint8), shares), size=size)
            else:
                top = rng.multivariate_hypergeometric(self.pool, self.question.k, size=size)
                values[name] = max_skew_of(top, shares)
        return values

    def measure_prompt(self, scores: Scores, prompt: int, metrics: Sequence[MetricName]) -> MeasuredPrompt:
        """Measure one of the prompts.

        Args:
            scores: cosines [m].
            prompt: its position among the prompts.
            metrics: some of the metrics.
        """
        k, shares, drawn_shares = self.question.k, self.shares(self.pool), self.shares(self.drawn.pool)
        order = resampling.rank_images(self.drawn, scores, k, self.tie_seed(prompt))
        inside, last = scores[order[:k]], scores[order[k - 1]]
        top = np.bincount(self.group_codes[order[:k]], minlength=self.n_groups)
        preferred: dict[MetricName, int] = {"MaxSkew": int(skews_of(top, shares).argmax())}
        values: dict[MetricName, tuple[float, Floats]] = {}
        for name in metrics:
            if name == "MaxSkew":
                drawn = resampling.top_counts(self.drawn, order, k)
                values[name] = float(max_skew_of(top, shares)), max_skew_of(drawn, drawn_shares)
            elif name == "NDKL":
                drawn_tops = resampling.first_tops(self.drawn, order, k)
                value = ndkl_of(self.group_codes[order[None, :k]], shares)[0]
                values[name] = float(value), ndkl_of(drawn_tops, drawn_shares[: len(drawn_tops)])
            else:
                means = levels(name, scores[None], self.group_codes, self.n_groups)[0, :, 0]
                preferred[name] = int(means.argmax())
            if name.startswith("AUC"):
                plain, redrawn = self.redrawn(scores[None], name)
                values[name] = float(plain[0]), redrawn[0]
        return MeasuredPrompt(top, int((scores == last).sum() - (inside == last).sum()), preferred, values)

    def redrawn(self, scores: Scores, name: MetricName) -> tuple[Floats, Floats]:
        """Compute one of PREFERENCES [p], with draws [p, draws].

        Args:
            scores: cosines [p, m].
            name: the metric.
        """
        drawn = self.drawn.weights[:, : resampling.FEW if name.startswith("AUC") else None]
        values = self.preference(name, scores, np.hstack([np.ones_like(drawn[:, :1]), drawn]))
        return values[:, 0], values[:, 1:]


def _parts(
    question: Ranking,
    metrics: Sequence[MetricName],
    logit_scale: float,
    seed: int,
    draws: int,
    as_published: bool = False,
) -> list[Part]:
    """All prompts together, or each with the images of its own pool."""
    names = question.first_positions
    members = [(question.prompts, names, np.arange(len(question.groups)), [seed])]
    if question.pools is not None:
        members = [
            (question.prompts[[prompt]], names[[prompt]], np.flatnonzero(pool), [seed, _OF_PROMPT, prompt])
            for prompt, pool in enumerate(question.pools)
        ]
    return [
        Part(
            question=question,
            prompts=prompts,
            names=of_part,
            images=images,
            seed=part_seed,
            metrics=tuple(metrics),
            logit_scale=logit_scale,
            draws=draws,
            as_published=as_published,
        )
        for prompts, of_part, images, part_seed in members
    ]
