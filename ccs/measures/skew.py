"""Skew@K, MaxSkew@K and NDKL: how far the top of a ranking is from the groups' target shares.

Source: Geyik, Ambler and Kenthapadi 2019, "Fairness-aware ranking in search and recommendation systems".
For a group g, skew(g) = ln(share of g in the top K / target share of g), natural logarithm. The target is the
share of the pool.

Empty groups. A group missing from the pool has no target and is left out everywhere. A group of the pool that
is missing from the top K has skew -inf and so is never the MaxSkew.

A MaxSkew has a ceiling (`ceiling`: two equal groups cannot exceed ln 2), where more skew no longer shows. Two
measures of the whole ranking have none: `logit_gap_of` (how far apart the groups' mean logits lie) and
`auc_of` (how often an image of one group ranks above one of the others). Their *plain* form takes the groups
that differ most, so it is above 0 and 0.5 by chance alone. In the *cross-fitted* form these groups are chosen
on one half of the images and measured on the other, and vice versa: it averages 0 and 0.5 where a ranking
ignores groups, and falls below where the halves disagree.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.errors import InputError

Floats = NDArray[np.float64]
MetricName = Literal["MaxSkew", "NDKL", "logit gap", "AUC", "plain logit gap", "plain AUC"]
METRICS: tuple[MetricName, ...] = ("MaxSkew", "NDKL")
PREFERENCES: tuple[MetricName, ...] = ("logit gap", "AUC")
"""Measures of whole rankings, which have no ceiling; cross-fitted."""
PLAIN: tuple[MetricName, ...] = ("plain logit gap", "plain AUC")
CALLED: Mapping[MetricName, str] = {
    "plain logit gap": "logit gap",
    "plain AUC": "AUC",
    "logit gap": "logit gap (cross-fitted)",
    "AUC": "AUC (cross-fitted)",
}
"""What people read where a metric's key is not its name."""
NO_PREFERENCE: Mapping[MetricName, float] = {"logit gap": 0.0, "AUC": 0.5}
"""Their values where a ranking ignores groups."""
_POSITIONS = 100_000  # processed at a time: few enough for the processor's cache


def check_k(k: int, n: int) -> int:
    """k as an int; InputError unless 1 <= k <= n."""
    try:
        k = operator.index(k)
    except TypeError:
        raise InputError(f"The cut-off k must be a whole number, not {k!r}.") from None
    if not 1 <= k <= n:
        raise InputError(
            f"The cut-off k is {k}, but it must be at least 1 and at most the {n} ranked images."
        )
    return k


def target_shares(pool: ArrayLike) -> Floats:
    """Target share [..., groups] of each group from its count in the pool; 0 for a group not in the pool."""
    counts = np.asarray(pool, dtype=np.float64)
    shares: Floats = counts / counts.sum(axis=-1, keepdims=True)
    return shares


def max_skew_of(top: ArrayLike, shares: Floats) -> Floats:
    """MaxSkew [...] from counts in the top K [..., groups] and target shares [..., groups]."""
    counts = np.asarray(top, dtype=np.float64)
    ratio = np.divide(counts, shares, out=np.zeros(np.broadcast(counts, shares).shape), where=shares > 0)
    result: Floats = np.log(ratio.max(axis=-1) / counts.sum(axis=-1))
    return result


def ceiling(pool: ArrayLike, k: int) -> Floats:
    """The largest MaxSkew [...] at K that groups of these counts [..., groups] can reach.

    It is reached when the top K holds as many images of the rarest group as possible.
    """
    counts = np.asarray(pool, dtype=np.float64)
    shares = target_shares(counts)
    most = np.minimum(counts, k) / k
    ratio = np.divide(most, shares, out=np.zeros(counts.shape), where=shares > 0)
    result: Floats = np.log(ratio.max(axis=-1))
    return result


def halves(
    codes: NDArray[np.integer], seed: int | Sequence[int], units: ArrayLike | None = None
) -> NDArray[np.bool_]:
    """A random half of each group's images, as nearly as possible: bool [n].

    units: [n] numbers; images with the same number, which differ only in their group, stay together.
    """
    if units is not None:
        unit = np.unique(np.asarray(units), return_inverse=True)[1]
        return halves(np.zeros(int(unit.max()) + 1, dtype=int), seed)[unit]
    shuffled = np.random.default_rng(seed).permutation(len(codes))
    by_group = shuffled[np.argsort(codes[shuffled], kind="stable")]
    half = np.zeros(len(codes), dtype=bool)
    half[by_group[::2]] = True
    return half


def logit_gap_of(
    scores: NDArray[np.floating],
    codes: NDArray[np.integer],
    n_groups: int,
    half: NDArray[np.bool_] | None,
    weights: NDArray[np.floating],
) -> Floats:
    """Gap [rankings, draws] between the mean scores [rankings, n] of the most and least preferred group.

    half: bool [n], where groups are chosen; None for the plain gap. weights: how often each image counts, [n,
    draws]. A group missing from a draw gets the ranking's mean.
    """
    middle = scores.mean(axis=1)[:, None]
    means = []
    for own in _parts(half, len(codes)):
        by_group = []
        for group in range(n_groups):
            rows = np.flatnonzero(own & (codes == group))
            sums, counts = scores[:, rows] @ weights[rows], weights[rows].sum(axis=0)
            by_group.append(np.where(counts > 0, sums / np.maximum(counts, 1), middle))
        means.append(np.stack(by_group, axis=1))

    def gap(chosen: Floats, measured: Floats) -> Floats:
        return _at(measured, chosen.argmax(axis=1)) - _at(measured, chosen.argmin(axis=1))

    return (gap(means[0], means[-1]) + gap(means[-1], means[0])) / 2


def _parts(half: NDArray[np.bool_] | None, n: int) -> list[NDArray[np.bool_]]:
    return [np.ones(n, dtype=bool)] if half is None else [half, ~half]


def _at(values: Floats, groups: NDArray[np.intp]) -> Floats:
    """The values [rankings, draws] of given groups [rankings, draws] in [rankings, groups, draws]."""
    return np.take_along_axis(values, groups[:, None], axis=1)[:, 0]


def auc_of(
    scores: NDArray[np.floating],
    codes: NDArray[np.integer],
    n_groups: int,
    half: NDArray[np.bool_] | None,
    weights: NDArray[np.floating],
) -> Floats:
    """Area under the curve [rankings, draws] of one group against the rest, chosen as described above.

    It is the share of pairs, one image of the group and one of another, that are ordered in the direction in
    which the other half leans (without `half`, all images: the plain AUC); equal scores [rankings, n] count
    half. weights: [n, draws]. A group that is missing from a draw, or the only one in it, has 0.5.
    """
    sides = []
    for own in _parts(half, len(codes)):
        kept, weight = codes[own], weights[own]
        member = np.equal.outer(np.arange(n_groups), kept).astype(np.float64)
        size = member @ weight
        pairs = size * (weight.sum(axis=0) - size)
        found = np.full((len(scores), *size.shape), 0.5)
        for row, score in enumerate(scores[:, own]):
            order = np.argsort(score, kind="stable")
            drawn = weight[order]
            starts = np.flatnonzero(np.diff(score[order], prepend=-np.inf))
            tied = np.add.reduceat(drawn, starts, axis=0)
            below = np.repeat(np.cumsum(tied, axis=0) - tied / 2, np.diff([*starts, len(order)]), axis=0)
            wins = member[:, order] @ (drawn * below) - size**2 / 2
            np.divide(wins, pairs, out=found[row], where=pairs > 0)
        sides.append(found - 0.5)

    def lean(chosen: Floats, measured: Floats) -> Floats:
        group = np.abs(chosen).argmax(axis=1)
        return np.sign(_at(chosen, group)) * _at(measured, group)

    return 0.5 + (lean(sides[0], sides[-1]) + lean(sides[-1], sides[0])) / 2


def preference(
    name: MetricName,
    scores: NDArray[np.floating],
    codes: NDArray[np.integer],
    n_groups: int,
    half: NDArray[np.bool_],
    weights: NDArray[np.floating],
) -> Floats:
    """One of PREFERENCES or PLAIN, by its name: [rankings, draws]."""
    measure = auc_of if name.endswith("AUC") else logit_gap_of
    return measure(scores, codes, n_groups, None if name in PLAIN else half, weights)


@lru_cache(maxsize=8)
def _depths(k: int) -> tuple[Floats, Floats, float]:
    """The parts of `ndkl_of` that depend only on the position: (onwards [k], step [k], constant)."""
    position = np.arange(1, k + 1, dtype=np.float64)
    weight = 1 / np.log2(position + 1)
    weight /= weight.sum()
    onwards = np.cumsum((weight / position)[::-1])[::-1].copy()
    step = np.diff(np.concatenate([[0.0], position * np.log(position)]))
    return onwards, step, -float(weight @ np.log(position))


def ndkl_of(ranked: NDArray[np.integer], shares: Floats) -> Floats:
    """NDKL [rankings] of group codes in ranked order [rankings, K].

    `shares`: the target's, [groups] or one row per ranking [rankings, groups].

    NDKL = (1/Z) sum over i = 1..K of KL(groups among the first i || target) / log2(i + 1), in nats,
    Z = sum over i of 1 / log2(i + 1). With c_g the count of g among the first i, KL is
    (1/i) sum over g of c_g (ln c_g - ln q_g) - ln i, and one step changes only one c_g; so the double sum
    becomes a single one over the K positions, each weighted by the sum of weight/i from there on ("onwards")
    and, for c_g, by c ln c - (c-1) ln(c-1) ("step").
    """
    (rankings, k), groups = ranked.shape, shares.shape[-1]
    onwards, step, constant = _depths(k)
    # A group without a target cannot be ranked; its cost is only ever multiplied by zero.
    cost = np.log(shares, out=np.zeros(shares.shape), where=shares > 0)
    cost = np.broadcast_to(cost, (rankings, groups))
    found, at_once = np.empty(rankings), max(1, _POSITIONS // k)
    for start in range(0, rankings, at_once):
        rows = slice(start, start + at_once)
        some = ranked[rows]
        # Positions by group, in each group from the top; codes of up to 16 bits get a radix sort.
        position = np.argsort(some, axis=1, kind="stable")
        weight = onwards.take(position).ravel()
        cells = some + np.arange(0, len(some) * groups, groups)[:, None]
        counts = np.bincount(cells.ravel(), minlength=len(some) * groups)
        starts = np.cumsum(counts) - counts
        before = np.arange(weight.size) - np.repeat(starts, counts)  # of the same group
        entropy = (weight * step.take(before)).reshape(some.shape).sum(axis=1)
        depth = np.zeros(counts.shape)
        depth[counts > 0] = np.add.reduceat(weight, starts[counts > 0])
        found[rows] = constant + entropy - (depth.reshape(-1, groups) * cost[rows]).sum(axis=1)
    return found


def max_skew(groups_ranked: Sequence[str], pool_counts: Mapping[str, float], k: int) -> float:
    """MaxSkew@K of one prompt's ranking: the largest skew of a group (natural logarithm, 0 is fair).

    Args:
        groups_ranked: the images' groups, best match first; at least k of them. The caller orders equal
        scores; `ranking.top` does so by the images' order.
        pool_counts: images of each group in the pool; only their ratios matter.
        k: the cut-off of the ranking.

    A group without an image in the top K has skew -inf and so is never the largest, as in the study, which
    leaves it out. InputError: k below 1 or above the ranked images, a ranked group that is not in the pool.
    """
    pool = np.array(list(pool_counts.values()), dtype=np.float64)
    if not np.isfinite(pool).all() or (pool < 0).any() or not pool.any():
        raise InputError(f"The pool's counts must be 0 or more and not all 0, unlike {dict(pool_counts)}.")
    k = check_k(k, len(groups_ranked))
    for name in groups_ranked:
        if not pool_counts.get(name):
            raise InputError(f"The group {str(name)!r} is ranked, but not in the pool: {dict(pool_counts)}.")
    found = Counter(groups_ranked[:k])
    top = np.array([found[name] for name in pool_counts])
    return float(max_skew_of(top, target_shares(pool)))
