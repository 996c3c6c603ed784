"""How far apart the groups lie in a whole ranking, which has no ceiling: logit gap and AUC.

The logit gap is the mean logit of the group that a prompt ranks highest minus that of the lowest. The AUC is
the largest one-vs-rest area under the ROC curve: of the group preferred most, how often one of its images
ranks above one of another group (Mann and Whitney 1947; equal scores count half).

Both choose groups, so their *plain* form is above 0 and 0.5 by chance alone. The *cross-fitted* form chooses
the groups on one half of the images and measures them on the other, and vice versa: it averages 0 and 0.5 if
a ranking ignores groups, and falls below if the halves disagree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.errors import InputError
from ccs.metrics.skew import Floats, MetricName

_Floating = NDArray[np.floating]
PLAIN: tuple[MetricName, ...] = ("logit gap", "AUC")
CROSS_FITTED: tuple[MetricName, ...] = ("logit gap (cross-fitted)", "AUC (cross-fitted)")
PREFERENCES = PLAIN + CROSS_FITTED
INDIFFERENT: Mapping[MetricName, float] = {"logit gap (cross-fitted)": 0.0, "AUC (cross-fitted)": 0.5}
"""Their expected values if a ranking ignores groups; the plain form has none that is exact."""
_BLOCK, _RANKINGS = 32, 16  # ranks and rankings summed at a time


def halves(
    codes: NDArray[np.integer], seed: int | Sequence[int], units: ArrayLike | None = None
) -> NDArray[np.bool_]:
    """Draw a random half of each group's images, as nearly as possible.

    Args:
        codes: the images' groups [n].
        seed: random seed.
        units: numbers [n]; images with the same number, which differ only in their group, stay together.

    Returns:
        Whether each image is in the half, bool [n].
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
    """Compute one of PREFERENCES.

    Args:
        name: the metric.
        scores: logits or cosines [rankings, n].
        codes: the images' groups [n].
        n_groups: number of groups.
        half: bool [n], from `halves`; read by the cross-fitted form only.
        weights: how often each image counts, whole numbers [n, draws]; by default once, in one draw.

    Returns:
        Values [rankings, draws].

    Raises:
        InputError: If a cross-fitted metric has no image in one of the halves, as when all are one unit.
    """
    if name in CROSS_FITTED and (half.all() or not half.any()):
        raise InputError(f"{name} needs images of at least two units, one for each half, not of one.")
    if name in PLAIN:
        sides = [levels(name, scores, codes, n_groups, weights)] * 2
    else:
        sides = [
            levels(name, scores[:, side], codes[side], n_groups, None if weights is None else weights[side])
            for side in (half, ~half)
        ]
    across = _chosen(name, *sides) + _chosen(name, *sides[::-1])
    return (0.5 if name.startswith("AUC") else 0.0) + across / 2


def levels(
    name: MetricName,
    scores: NDArray[np.floating],
    codes: NDArray[np.integer],
    n_groups: int,
    weights: NDArray[np.floating] | None = None,
) -> Floats:
    """The level of each group that a metric compares; the preferred group has the highest.

    Args:
        name: the metric.
        scores: logits or cosines [rankings, n].
        codes: the images' groups [n].
        n_groups: number of groups.
        weights: as in `preference`.

    Returns:
        Mean score (logit gap), or one-vs-rest AUC minus a half, of each group [rankings, groups, draws].
    """
    if weights is None and name.startswith("AUC"):
        return _areas_once(scores, codes, n_groups)
    member = np.equal.outer(np.arange(n_groups), codes)
    counts = np.ones((scores.shape[1], 1)) if weights is None else weights
    if name.startswith("AUC"):
        return _areas(scores, member, counts)
    return _means(scores, member, counts, scores.mean(axis=1)[:, None])


def _chosen(name: MetricName, choosing: Floats, measured: Floats) -> Floats:
    """What one half measures of the groups that the other half chooses: [rankings, draws]."""

    def at(groups: NDArray[np.intp]) -> Floats:
        return np.take_along_axis(measured, groups[:, None], axis=1)[:, 0]

    highest = at(choosing.argmax(axis=1))
    return highest if name.startswith("AUC") else highest - at(choosing.argmin(axis=1))


def _means(scores: _Floating, member: NDArray[np.bool_], weights: _Floating, middle: Floats) -> Floats:
    """Each group's mean score [rankings, groups, draws]; `middle` [rankings, 1] for one missing from a draw.

    member: bool [groups, n].
    """
    means = []
    for of_group in member:
        inside = weights[of_group].astype(np.float64)  # or small types of weights would be summed in float32
        columns = scores[:, of_group].astype(np.float64)
        sums = [columns[row : row + _RANKINGS] @ inside for row in range(0, len(columns), _RANKINGS)]
        counts = inside.sum(axis=0)
        means.append(np.where(counts > 0, np.concatenate(sums) / np.maximum(counts, 1), middle))
    return np.stack(means, axis=1)


def _areas(scores: _Floating, member: NDArray[np.bool_], weights: _Floating) -> Floats:
    """Area under the ROC curve of each group against the rest, minus a half: [rankings, groups, draws].

    It is the share of pairs, one image of the group and one of another, in which the first has the higher
    score; equal ones count half. A group that is missing from a draw, or the only one in it, has 0.
    """
    n, draws = weights.shape
    # Counts are whole numbers, so float32 is exact, and faster, while all images' sum, and a block's squared,
    # is below 2^24.
    largest = int(weights.max(initial=0))
    small = max(n * largest, (_BLOCK * largest) ** 2) < 2**24
    exact: type[np.floating] = np.float32 if small else np.float64
    weights, inside = weights.astype(exact), np.ascontiguousarray(member.T, exact)
    size = np.asarray(inside.T @ weights, np.float64)
    pairs = size * (size.sum(axis=0) - size)
    # Arrays for all rankings: new ones of this size cost more than what is done to them. Ranks are summed in
    # blocks, by a product with ones and the sums of the blocks before, five times as fast as np.cumsum.
    shape = -(-n // _BLOCK), _BLOCK
    weighted, ranked = np.zeros((*shape, draws), exact), np.zeros((*shape, len(member)), exact)
    twice, groups = np.empty_like(weighted), ranked.transpose(0, 2, 1)
    sorting = [(weights, weighted.reshape(-1, draws)[:n]), (inside, ranked.reshape(-1, len(member))[:n])]
    around = np.tri(_BLOCK, dtype=exact) + np.tri(_BLOCK, k=-1, dtype=exact)
    areas = np.full((len(scores), *size.shape), 0.5)
    for row, score in enumerate(scores):
        order = np.argsort(score)
        for of, out in sorting:
            np.take(of, order, axis=0, out=out, mode="clip")  # the default mode copies once more
        sums = groups @ weighted  # of each block [blocks, groups, draws]
        whole = sums.sum(axis=1, dtype=np.float64)
        before = np.cumsum(whole, axis=0) - whole
        # An image's weight times twice what is below it, and times half of twice itself.
        np.matmul(around, weighted, out=twice)
        twice *= weighted
        above = (groups @ twice).sum(axis=0, dtype=np.float64) + 2 * np.einsum("bgd,bd->gd", sums, before)
        above += _evened(score, order, inside, weights)
        np.divide((above - size**2) / 2, pairs, out=areas[row], where=pairs > 0)
    return areas - 0.5


def _evened(score: _Floating, order: NDArray[np.intp], inside: _Floating, weights: _Floating) -> Floats:
    """What half of their equals adds to each group's images, twice, where those before them and half of
    themselves were counted: [groups, draws].

    score, order: [n], of one ranking. inside: [n, groups], 1 for the images of a group. weights: [n, draws].
    """
    equal = np.append(False, np.diff(score[order]) == 0)
    tied = np.flatnonzero(equal | np.append(equal[1:], False))
    if not len(tied):
        return np.zeros((1, 1))
    counts, first = weights[order[tied]], np.flatnonzero(~equal[tied])  # of each run of equals
    upto = np.cumsum(counts, axis=0, dtype=np.float64)
    ends = upto[np.append(first, len(tied))[1:] - 1]
    around = 2 * ends - np.diff(ends, axis=0, prepend=0)
    around = np.repeat(around, np.diff(first, append=len(tied)), axis=0)
    return np.asarray(inside[order[tied]].T @ (counts * (around - 2 * upto + counts)))


def _areas_once(scores: NDArray[np.floating], codes: NDArray[np.integer], n_groups: int) -> Floats:
    """`_areas` [rankings, groups, 1] if each image counts once: from sums of ranks, to the same bits."""
    rankings, n = scores.shape
    twice = np.tile(np.arange(1.0, 2 * n, 2), rankings)  # each rank, minus a half
    equal = np.diff(np.sort(scores, axis=1), axis=1, prepend=np.nan).ravel() == 0
    tied = np.flatnonzero(equal | np.append(equal[1:], False))
    first = np.flatnonzero(~equal[tied])  # of each run of equals, which share their mean
    last = np.append(first, len(tied))[1:] - 1
    twice[tied] = np.repeat((twice[tied[first]] + twice[tied[last]]) / 2, last - first + 1)
    cells = codes[np.argsort(scores, axis=1)] + n_groups * np.arange(rankings)[:, None]
    above = np.bincount(cells.ravel(), twice, rankings * n_groups).reshape(rankings, n_groups)
    size = np.bincount(codes, minlength=n_groups)
    pairs = size * (n - size)
    areas = np.divide((above - size**2) / 2, pairs, out=np.full(above.shape, 0.5), where=pairs > 0)
    return np.asarray(areas - 0.5)[:, :, None]
