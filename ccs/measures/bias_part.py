"""Prompts that rank the same images: the figures of their rankings, of resampled images, and of chance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.measures import faults, ranking, resampling
from ccs.measures.ranking import Ranking
from ccs.measures.skew import (
    PREFERENCES,
    Floats,
    MetricName,
    halves,
    max_skew_of,
    ndkl_of,
    preference,
    target_shares,
)

CHANCE_DRAWS = 1000
_HALVES, _CHANCE, _OF_PROMPT = 3, 2, 4  # parts of seeds
_AUCS = 200  # random rankings, combined at random for the mean


@dataclass(frozen=True, eq=False)
class Values:
    """`top` [p, groups] and `ties` [p] of some rankings, and `of`: metric -> values [p], resampled [p,
    draws].
    """

    top: NDArray[np.int64]
    ties: NDArray[np.int64]
    of: dict[MetricName, tuple[Floats, Floats]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """Prompts that rank the same images, with everything that is the same for all plans.

    `prompts`: [p, d]. `images`: intp [m], the images that they rank. `codes`: uint8 [m], the groups of these
    as numbers below `n_groups`. `units`: [m] or None. `seed`: of everything that is drawn for them.
    """

    prompts: NDArray[np.floating]
    images: NDArray[np.intp]
    codes: NDArray[np.uint8]
    n_groups: int
    k: int
    units: NDArray[Any] | None
    metrics: tuple[MetricName, ...]
    logit_scale: float
    seed: list[int]
    n_draws: int
    fault: faults.Fault | None

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
        return resampling.draw_images(self.codes, self.n_groups, self.n_draws, self.seed, self.units)

    def of(self, embeddings: ArrayLike) -> NDArray[Any]:
        """The rows [m, d] of these images among embeddings of all."""
        every = np.asarray(embeddings)
        return every if len(self.images) == len(every) else every[self.images]

    def counts(self, ranked: NDArray[np.intp]) -> NDArray[np.int64]:
        """The number of images of each group [p, groups] among ranked images [p, ranks]."""
        codes = self.codes[ranked]
        return np.stack([(codes == group).sum(axis=1) for group in range(self.n_groups)], axis=1)

    def preference(self, name: MetricName, scores: NDArray[Any], weights: NDArray[Any]) -> Floats:
        """One of PREFERENCES [p, draws] where image i counts weights[i] times [m, draws]."""
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
        # NDKL needs whole rankings; a thousand, combined at random for the mean, are as good as one per draw.
        ranked = np.stack([rng.permutation(self.codes)[: self.k] for _ in range(CHANCE_DRAWS)])
        found: dict[MetricName, Floats] = {}
        for name in self.metrics:
            if self.fault == "aliased":
                # Without ties an image's copies are adjacent, so that only the remainder of k is uneven.
                top = np.bincount(np.arange(self.k) % self.n_groups, minlength=self.n_groups)
                found[name] = np.full(size, max_skew_of(top, shares))
            elif name.startswith("logit gap"):
                found[name] = np.full(size, np.nan)
            elif name.startswith("AUC"):
                scores, once = rng.random((_AUCS, len(self.codes))), np.ones((len(self.codes), 1))
                found[name] = rng.choice(self.preference(name, scores, once)[:, 0], size=size)
            elif name == "NDKL":
                found[name] = rng.choice(ndkl_of(ranked, shares), size=size)
            else:
                top = rng.multivariate_hypergeometric(self.pool, self.k, size=size)
                found[name] = max_skew_of(top, shares)
        return found

    def values(self, scores: NDArray[np.float32]) -> Values:
        """The figures of scores [p, m]."""
        k = self.k
        order = ranking.top(scores, resampling.window(scores.shape[1], k)[1])
        inside = np.take_along_axis(scores, order[:, :k], axis=1)
        last = inside[:, -1:]
        ties = (scores == last).sum(axis=1) - (inside == last).sum(axis=1)
        found = Values(self.counts(order[:, :k]), ties, {})
        if self.fault == "aliased":
            return found
        shares, drawn_shares = self.shares(self.pool), self.shares(self.drawn.pool)
        if "MaxSkew" in self.metrics:
            drawn = resampling.top_counts(self.drawn, scores, order, k)
            found.of["MaxSkew"] = max_skew_of(found.top, shares), max_skew_of(drawn, drawn_shares)
        if "NDKL" in self.metrics:
            tops = resampling.first_tops(self.drawn, scores, order, k)
            rankings, few, _ = tops.shape
            redrawn = ndkl_of(tops.reshape(-1, k), np.tile(drawn_shares[:few], (rankings, 1)))
            found.of["NDKL"] = ndkl_of(self.codes[order[:, :k]], shares), redrawn.reshape(rankings, few)
        if wanted := {*PREFERENCES} & {*self.metrics}:
            weights = np.concatenate([np.ones((len(self.codes), 1)), self.drawn.weights], axis=1)
            for name in wanted:
                some = weights[:, : resampling.FEW + 1 if name.startswith("AUC") else None]
                both = self.preference(name, scores, some)
                found.of[name] = both[:, 0], both[:, 1:]
        return found


def parts_of(
    asked: Ranking,
    metrics: tuple[MetricName, ...],
    logit_scale: float,
    seed: int,
    draws: int,
    fault: faults.Fault | None = None,
) -> Iterator[Part]:
    """All prompts together, or each with the images of its own pool."""
    every = [(slice(None), np.arange(len(asked.groups)), [seed])]
    if asked.pools is not None:
        every = [
            (slice(prompt, prompt + 1), np.flatnonzero(pool), [seed, _OF_PROMPT, prompt])
            for prompt, pool in enumerate(asked.pools)
        ]
    for prompts, images, own_seed in every:
        yield Part(
            prompts=asked.prompts[prompts],
            images=images,
            codes=asked.codes[images],
            n_groups=len(asked.group_names),
            k=asked.k,
            units=None if asked.units is None else asked.units[images],
            metrics=metrics,
            logit_scale=logit_scale,
            seed=own_seed,
            n_draws=draws,
            fault=fault,
        )
