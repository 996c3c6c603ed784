"""Skew@K, MaxSkew@K and NDKL: how far the top of a ranking is from the groups' target shares.

Source: Geyik, Ambler and Kenthapadi 2019, "Fairness-aware ranking in search and recommendation systems".
For a group g, skew(g) = ln(share of g in the top K / target share of g), natural logarithm. The target is the
share of the pool.

Empty groups. A group missing from the pool has no target and is left out everywhere. A group of the pool that
is missing from the top K has skew -inf and so is never the MaxSkew.

A MaxSkew has a ceiling (`ceiling`: two equal groups cannot exceed ln 2), where more skew no longer shows. Two
measures of the whole ranking have none (`preference`): the logit gap, how far apart the groups' mean logits
lie, and the AUC, how often an image of one group ranks above one of the others. Their *plain* form takes the
groups that differ most, so it is above 0 and 0.5 by chance alone. In the *cross-fitted* form these groups are
chosen on one half of the images and measured on the other, and vice versa: it averages 0 and 0.5 where a
ranking ignores groups, and falls below where the halves disagree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.errors import InputError
from ccs.metrics import ranking

Floats = NDArray[np.float64]
_Floating = NDArray[np.floating]
MetricName = Literal["MaxSkew", "NDKL", "logit gap", "AUC", "logit gap (cross-fitted)", "AUC (cross-fitted)"]
METRICS: tuple[MetricName, ...] = ("MaxSkew", "NDKL")
PLAIN: tuple[MetricName, ...] = ("logit gap", "AUC")
"""Measures of whole rankings, which have no ceiling, in their plain form."""
CROSS_FITTED: tuple[MetricName, ...] = ("logit gap (cross-fitted)", "AUC (cross-fitted)")
PREFERENCES = PLAIN + CROSS_FITTED
INDIFFERENT: Mapping[MetricName, float] = {"logit gap (cross-fitted)": 0.0, "AUC (cross-fitted)": 0.5}
"""Their values where a ranking ignores groups; the plain form has none that is exact."""
_POSITIONS = 100_000  # processed at a time: few enough for the processor's cache
_BLOCK, _RANKINGS = 32, 16  # ranks and rankings summed at a time
_HALVING = 0.0015
"""More than float16 moves a cosine: each of two unit vectors by 2^-11 of its length, then their product."""


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


def preference(
    name: MetricName,
    scores: NDArray[np.floating],
    codes: NDArray[np.integer],
    n_groups: int,
    half: NDArray[np.bool_],
    weights: NDArray[np.floating] | None = None,
) -> Floats:
    """One of PREFERENCES [rankings, draws] from scores [rankings, n] and the images' groups, codes
    [n].

    half: bool [n], from `halves`. weights: how often each image counts, whole numbers [n, draws]; by default
    each counts once, in one draw.
    """
    middle = scores.mean(axis=1)[:, None]
    sides = []  # of each half, or of all images, a figure per group [rankings, groups, draws]
    for own in [slice(None)] if name in PLAIN else [half, ~half]:
        some, member = scores[:, own], np.equal.outer(np.arange(n_groups), codes[own])
        counts = np.ones((some.shape[1], 1)) if weights is None else weights[own]
        if name.startswith("logit gap"):
            sides.append(_means(some, member, counts, middle))
        elif weights is None:
            sides.append(_areas_once(some, codes[own], n_groups))
        else:
            sides.append(_areas(some, member, counts))
    across = _chosen(name, sides[0], sides[-1]) + _chosen(name, sides[-1], sides[0])
    return (0.5 if name.startswith("AUC") else 0.0) + across / 2


def _chosen(name: MetricName, chosen: Floats, measured: Floats) -> Floats:
    """What one half measures of the groups that the other chooses: [rankings, draws]."""

    def at(side: Floats, groups: NDArray[np.intp]) -> Floats:
        return np.take_along_axis(side, groups[:, None], axis=1)[:, 0]

    if name.startswith("logit gap"):
        return at(measured, chosen.argmax(axis=1)) - at(measured, chosen.argmin(axis=1))
    group = np.abs(chosen).argmax(axis=1)
    return np.sign(at(chosen, group)) * at(measured, group)


def _means(scores: _Floating, member: NDArray[np.bool_], weights: _Floating, middle: Floats) -> Floats:
    """Each group's mean score [rankings, groups, draws]; `middle` [rankings, 1] for one missing from a draw.

    member: bool [groups, n].
    """
    means = []
    for own in member:
        inside = weights[own].astype(np.float64)  # or small types of weights would be summed in float32
        some = scores[:, own].astype(np.float64)
        sums = [some[row : row + _RANKINGS] @ inside for row in range(0, len(some), _RANKINGS)]
        counts = inside.sum(axis=0)
        means.append(np.where(counts > 0, np.concatenate(sums) / np.maximum(counts, 1), middle))
    return np.stack(means, axis=1)


def _areas(scores: _Floating, member: NDArray[np.bool_], weights: _Floating) -> Floats:
    """Area under the curve of each group against the rest, less a half: [rankings, groups, draws].

    It is the share of pairs, one image of the group and one of another, in which the first has the higher
    score; equal ones count half. A group that is missing from a draw, or the only one in it, has 0.
    """
    n, draws = weights.shape
    # Counts are whole numbers, so float32 is exact, and faster, while all images' sum, and a block's squared,
    # is below 2^24.
    most = int(weights.max(initial=0))
    exact: type[np.floating] = np.float32 if max(n * most, (_BLOCK * most) ** 2) < 2**24 else np.float64
    weights, inside = weights.astype(exact), np.ascontiguousarray(member.T, exact)
    size = np.asarray(inside.T @ weights, np.float64)
    pairs = size * (size.sum(axis=0) - size)
    # Arrays for all rankings: new ones of this size cost more than what is done to them. Ranks are summed in
    # blocks, by a product with ones and the sums of the blocks before, five times as fast as np.cumsum.
    shape = -(-n // _BLOCK), _BLOCK
    own, ranked = np.zeros((*shape, draws), exact), np.zeros((*shape, len(member)), exact)
    twice, groups = np.empty_like(own), ranked.transpose(0, 2, 1)
    sorting = [(weights, own.reshape(-1, draws)[:n]), (inside, ranked.reshape(-1, len(member))[:n])]
    around = np.tri(_BLOCK, dtype=exact) + np.tri(_BLOCK, k=-1, dtype=exact)
    found = np.full((len(scores), *size.shape), 0.5)
    for row, score in enumerate(scores):
        order = np.argsort(score)
        for of, out in sorting:
            np.take(of, order, axis=0, out=out, mode="clip")  # the default mode copies once more
        sums = groups @ own  # of each block [blocks, groups, draws]
        whole = sums.sum(axis=1, dtype=np.float64)
        before = np.cumsum(whole, axis=0) - whole
        # An image's weight times twice what is below it, and times half of twice itself.
        np.matmul(around, own, out=twice)
        twice *= own
        above = (groups @ twice).sum(axis=0, dtype=np.float64) + 2 * np.einsum("bgd,bd->gd", sums, before)
        above += _evened(score, order, inside, weights)
        np.divide((above - size**2) / 2, pairs, out=found[row], where=pairs > 0)
    return found - 0.5


def _evened(score: _Floating, order: NDArray[np.intp], inside: _Floating, weights: _Floating) -> Floats:
    """What half of their equals adds to each group's images, twice, where those before them and half of
    themselves were counted: [groups, draws].

    score, order: [n], of one ranking. inside: [n, groups], 1 for the images of a group. weights: [n, draws].
    """
    equal = np.append(False, np.diff(score[order]) == 0)
    tied = np.flatnonzero(equal | np.append(equal[1:], False))
    if not len(tied):
        return np.zeros((1, 1))
    own, first = weights[order[tied]], np.flatnonzero(~equal[tied])  # of each run of equals
    upto = np.cumsum(own, axis=0, dtype=np.float64)
    ends = upto[np.append(first, len(tied))[1:] - 1]
    around = 2 * ends - np.diff(ends, axis=0, prepend=0)
    each = np.repeat(around, np.diff(first, append=len(tied)), axis=0)
    return np.asarray(inside[order[tied]].T @ (own * (each - 2 * upto + own)))


def _areas_once(scores: NDArray[np.floating], codes: NDArray[np.integer], n_groups: int) -> Floats:
    """`_areas` [rankings, groups, 1] where every image counts once: from the sums of ranks (Mann and Whitney
    1947), to the same bits.
    """
    rankings, n = scores.shape
    twice = np.tile(np.arange(1.0, 2 * n, 2), rankings)  # each rank, less a half
    equal = np.diff(np.sort(scores, axis=1), axis=1, prepend=np.nan).ravel() == 0
    tied = np.flatnonzero(equal | np.append(equal[1:], False))
    first = np.flatnonzero(~equal[tied])  # of each run of equals, which share their mean
    last = np.append(first, len(tied))[1:] - 1
    twice[tied] = np.repeat((twice[tied[first]] + twice[tied[last]]) / 2, last - first + 1)
    cells = codes[np.argsort(scores, axis=1)] + n_groups * np.arange(rankings)[:, None]
    above = np.bincount(cells.ravel(), twice, rankings * n_groups).reshape(rankings, n_groups)
    size = np.bincount(codes, minlength=n_groups)
    pairs = size * (n - size)
    found = np.divide((above - size**2) / 2, pairs, out=np.full(above.shape, 0.5), where=pairs > 0)
    return np.asarray(found - 0.5)[:, :, None]


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
    Source: Geyik et al. 2019, doi.org/10.1145/3292500.3330691.

        >>> round(max_skew(["m", "m", "m", "f"], {"m": 50, "f": 50}, k=4), 3)    # ln(0.75 / 0.5)
        0.405
    """
    pool = np.array(list(pool_counts.values()), dtype=np.float64)
    if not np.isfinite(pool).all() or (pool < 0).any() or not pool.any():
        raise InputError(f"The pool's counts must be 0 or more and not all 0, unlike {dict(pool_counts)}.")
    k = ranking.check_k(k, len(groups_ranked))
    for name in groups_ranked:
        if not pool_counts.get(name):
            raise InputError(f"The group {str(name)!r} is ranked, but not in the pool: {dict(pool_counts)}.")
    found = Counter(groups_ranked[:k])
    top = np.array([found[name] for name in pool_counts])
    return float(max_skew_of(top, target_shares(pool)))


Fault = Literal["order", "aliased"]
"""The two faults of the study's released bias code, reproduced so that its figures can be explained. They are
never a default: a result made with one is marked "as-published". Its figures measure the code, not the model.

"order" (FairFace, race; the gender columns are free of it): the pool's counts stand in the order in which
groups first appear in the file, the top K's counts in alphabetical order, and the i-th is divided by the
i-th. Random rankings then sum to about 56 over 104 occupations instead of about 10.

"aliased" (SocialCounterfactuals): one list stands for all groups, so each group holds every image and an
image is ranked once per group, with equal scores. The skew of that ranking is 0 but for remainders of K; what
is left is ties of different images in float16. A tie at the cut-off gives 3/12 instead of 2/12 (or 3/4
instead of 2/4): printed values are multiples of ln 1.5, or ln 2 where four images tie.
"""
_ALIASED: dict[tuple[str, str], Fault] = {
    ("socialcounterfactuals", "race"): "aliased",
    ("socialcounterfactuals-gender", "gender"): "aliased",
}
"""The pools that the code ranks: by race the sets varying race and gender, by gender all varying gender."""


def fault_of(dataset: str, attribute: str) -> Fault | None:
    """The fault of the study's figures for this data set and attribute, if they have one."""
    if dataset.startswith("fairface") and attribute == "race":
        return "order"
    return _ALIASED.get((dataset, attribute))


def aliased_top(
    images: ArrayLike, occupations: ArrayLike, scores: _Floating, n_groups: int, k: int
) -> NDArray[np.int64]:
    """Counts [occupations, groups] in the top k where every image [n, d] is ranked once per group.

    Their scores are rounded to float16. The sort is stable over a list of all images for the first group,
    then all for the second, and so on: among equal scores all first copies come before any second copy.
    scores: cosines [occupations, n], which tell the images that rounding may bring to the top.
    """
    ranking.check_k(k, scores.shape[1] * n_groups)
    needed = -(-k // n_groups)
    least = np.partition(scores, -needed, axis=1)[:, [-needed]] - 2 * _HALVING
    rows = np.asarray(images)[(scores >= least).any(axis=0)]
    texts = _halved(occupations, "occupation embeddings")
    halved = ranking.products(texts, _halved(rows, "image embeddings")).astype(np.float16)
    counts = np.empty((len(halved), n_groups), dtype=np.int64)
    for row, score in enumerate(halved):
        # Only images at or above the last score needed can be in the top k; ties may add more of them.
        candidates = np.flatnonzero(score >= np.partition(score, -needed)[-needed])
        copies = np.tile(score[candidates].astype(np.float32), n_groups)
        ranked = np.argsort(-copies, kind="stable")[:k]
        counts[row] = np.bincount(ranked // len(candidates), minlength=n_groups)
    return counts


def _halved(embeddings: ArrayLike, name: str) -> Floats:
    """Unit rows [n, d], rounded to float16."""
    return ranking.unit(embeddings, name).astype(np.float16).astype(np.float64)
