"""MaxSkew@K and NDKL: how far the top of a ranking is from the groups' target shares.

Source: Geyik, Ambler, and Kenthapadi 2019, "Fairness-aware ranking in search and recommendation systems",
doi.org/10.1145/3292500.3330691. For a group g,

    skew@K(g) = ln(share of g in the top K / target share of g),    MaxSkew@K = max over g of skew@K(g)

with the natural logarithm. The target is the share of the pool.

Empty groups: a group missing from the pool has no target and is left out. A group of the pool that is missing
from the top K has skew -inf and so is never the MaxSkew.

MaxSkew has a ceiling (`ceiling`; ln 2 for two equal groups), above which more skew no longer shows.
`group_gaps` has measures without a ceiling.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.errors import InputError
from ccs.metrics import ranking

Floats = NDArray[np.float64]
MetricName = Literal["MaxSkew", "NDKL", "logit gap", "AUC", "logit gap (cross-fitted)", "AUC (cross-fitted)"]
METRICS: tuple[MetricName, ...] = ("MaxSkew", "NDKL")
_POSITIONS = 100_000  # processed at a time: few enough for the processor's cache


def target_shares(pool: ArrayLike) -> Floats:
    """Compute target shares [..., groups] from counts in the pool; 0 for a group not in the pool."""
    counts = np.asarray(pool, dtype=np.float64)
    return np.asarray(counts / counts.sum(axis=-1, keepdims=True))


def skews_of(top: ArrayLike, shares: Floats) -> Floats:
    """Return skew of each group; -inf for a group that is missing from the top K or has no target.

    Args:
        top: Number of images of each group in the top K [..., groups].
        shares: Target share of each group [..., groups].

    Returns:
        Skews [..., groups].
    """
    counts = np.asarray(top, dtype=np.float64)
    ratio = np.divide(counts, shares, out=np.zeros(np.broadcast(counts, shares).shape), where=shares > 0)
    total = counts.sum(axis=-1, keepdims=True)
    return np.asarray(np.log(ratio / total, out=np.full(ratio.shape, -np.inf), where=ratio > 0))


def max_skew_of(top: ArrayLike, shares: Floats) -> Floats:
    """Compute MaxSkew [...], the largest of `skews_of`.

    Args:
        top: Number of images of each group in the top K [..., groups].
        shares: Target share of each group [..., groups].
    """
    return np.asarray(skews_of(top, shares).max(axis=-1))


def ceiling(pool: ArrayLike, k: int) -> Floats:
    """Return the largest MaxSkew that a ranking can reach, with the rarest group filling the top K.

    Args:
        pool: Number of images of each group in the pool [..., groups].
        k: Length of the top list.

    Returns:
        Ceilings [...].
    """
    counts = np.asarray(pool, dtype=np.float64)
    shares = target_shares(counts)
    ratio = np.divide(np.minimum(counts, k) / k, shares, out=np.zeros(counts.shape), where=shares > 0)
    return np.asarray(np.log(ratio.max(axis=-1)))


@lru_cache(maxsize=8)
def _depths(k: int) -> tuple[Floats, Floats, float]:
    """Return the parts of `ndkl_of` that depend only on the position: (onwards [k], step [k], constant)."""
    position = np.arange(1, k + 1, dtype=np.float64)
    weight = 1 / np.log2(position + 1)
    weight /= weight.sum()
    onwards = np.cumsum((weight / position)[::-1])[::-1].copy()
    step = np.diff(np.concatenate([[0.0], position * np.log(position)]))
    return onwards, step, -float(weight @ np.log(position))


def ndkl_of(ranked: NDArray[np.integer], shares: Floats) -> Floats:
    """Compute NDKL, each ranking's normalized discounted KL divergence (Geyik et al. 2019).

    NDKL = (1/Z) sum over i = 1..K of KL(groups among the first i || target) / log2(i + 1), in nats,
    Z = sum over i of 1 / log2(i + 1). With c_g the count of g among the first i, KL is
    (1/i) sum over g of c_g (ln c_g - ln q_g) - ln i, and one step changes only one c_g; so the double sum
    becomes a single one over the K positions, each weighted by the sum of weight/i from there on ("onwards")
    and, for c_g, by c ln c - (c-1) ln(c-1) ("step").

    Args:
        ranked: Group codes in ranked order [rankings, K].
        shares: Target shares [groups], or one row for each ranking [rankings, groups].

    Returns:
        NDKL [rankings].
    """
    (rankings, k), groups = ranked.shape, shares.shape[-1]
    onwards, step, constant = _depths(k)
    # A group without a target cannot be ranked; its cost is only ever multiplied by zero.
    cost = np.log(shares, out=np.zeros(shares.shape), where=shares > 0)
    cost = np.broadcast_to(cost, (rankings, groups))
    values, at_once = np.empty(rankings), max(1, _POSITIONS // k)
    for start in range(0, rankings, at_once):
        rows = slice(start, start + at_once)
        block = ranked[rows]
        # Positions by group, in each group from the top; codes of up to 16 bits get a radix sort.
        position = np.argsort(block, axis=1, kind="stable")
        weight = onwards.take(position).ravel()
        cells = block + np.arange(0, len(block) * groups, groups)[:, None]
        counts = np.bincount(cells.ravel(), minlength=len(block) * groups)
        starts = np.cumsum(counts) - counts
        before = np.arange(weight.size) - np.repeat(starts, counts)  # of the same group
        entropy = (weight * step.take(before)).reshape(block.shape).sum(axis=1)
        depth = np.zeros(counts.shape)
        depth[counts > 0] = np.add.reduceat(weight, starts[counts > 0])
        values[rows] = constant + entropy - (depth.reshape(-1, groups) * cost[rows]).sum(axis=1)
    return values


def max_skew(groups_ranked: Iterable[Any], pool_counts: Mapping[Any, float], k: int) -> float:
    """Compute MaxSkew@K of a ranking: the largest skew of a group (natural logarithm, 0 is fair).

    A group without an image in the top K has skew -inf and so is never the largest, as in the paper, which
    leaves it out.

    Args:
        groups_ranked: Group of each ranked image, best first, at least `k` of them: a list, array, or Series.
            Order equal scores at random, not by file. Otherwise the first folder is favored.
        pool_counts: Group -> number of images in the pool: a mapping, or the result of
            `Series.value_counts()`. Only the ratios matter.
        k: Length of the top list.

    Returns:
        The MaxSkew.

    Raises:
        InputError: If `k` is below 1 or above the number of ranked images, a ranked group isn't in the pool,
            or the counts aren't numbers of 0 or more.

    Examples:
        >>> round(max_skew(["m", "m", "m", "f"], {"m": 50, "f": 50}, k=4), 3)    # ln(0.75 / 0.5)
        0.405
    """
    try:
        counts = dict(pool_counts.items())
        pool = np.array(list(counts.values()), dtype=np.float64)
    except (AttributeError, TypeError, ValueError):
        raise InputError(
            "The pool's counts must map each group to its number of images, such as {'f': 50, 'm': 50} or a "
            f"Series' value_counts(), not {type(pool_counts).__name__}."
        ) from None
    if pool.ndim != 1 or not np.isfinite(pool).all() or (pool < 0).any() or not pool.any():
        raise InputError(f"The pool's counts must be 0 or more and not all 0; got {counts}.")
    ranked = np.asarray(groups_ranked if hasattr(groups_ranked, "__len__") else list(groups_ranked), object)
    if isinstance(groups_ranked, str | bytes) or ranked.ndim != 1:
        raise InputError("The ranked groups must be a list with one group per image, best match first.")
    k = ranking.check_k(k, len(ranked))
    for name in ranked:
        if not isinstance(name, Hashable) or not counts.get(name):
            raise InputError(f"The group {str(name)!r} is ranked, but not in the pool: {counts}.")
    top = Counter(ranked[:k])
    return float(max_skew_of([top[name] for name in counts], target_shares(pool)))
