"""The distance between groups in a whole ranking, without the ceiling of MaxSkew: logit gap and AUC.

The logit gap is the difference between the mean logits of the highest and the lowest group. The AUC is the
largest one-vs-rest area under the ROC curve. For the most preferred group, it is the share of pairs in which
an image of the group ranks above an image of another group (Mann and Whitney 1947; equal scores count half).

Both choose groups, so their *plain* form is above 0 and 0.5 by chance alone. The *cross-fitted* form chooses
the groups on one half of the images and measures them on the other, and vice versa: it averages 0 and 0.5 if
a ranking ignores groups, and falls below if the halves disagree.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.errors import InputError
from ccs.metrics.skew import Floats, MetricName

PLAIN: tuple[MetricName, ...] = ("logit gap", "AUC")
CROSS_FITTED: tuple[MetricName, ...] = ("logit gap (cross-fitted)", "AUC (cross-fitted)")
PREFERENCES = PLAIN + CROSS_FITTED
INDIFFERENT: Mapping[MetricName, float] = {"logit gap (cross-fitted)": 0.0, "AUC (cross-fitted)": 0.5}
"""Their expected values if a ranking ignores groups; the plain form has none that is exact."""


def halves(
    codes: NDArray[np.integer], seed: int | Sequence[int], units: ArrayLike | None = None
) -> NDArray[np.bool_]:
    """Draw a random half of each group's images, as nearly as possible.

    Args:
        codes: Group of each image [n].
        seed: Random seed.
        units: Unit number of each image [n]. Images with the same number, which differ only in their group,
            stay together.

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
    member: NDArray[np.bool_],
    half: NDArray[np.bool_],
    weights: NDArray[Any] | None = None,
) -> Floats:
    """Compute one of PREFERENCES.

    Args:
        name: Name of the metric.
        scores: Logits or cosines [rankings, n].
        member: Whether each image is in each group, bool [groups, n].
        half: Half of the images on which groups are chosen, bool [n], from `halves`. Only the cross-fitted
            form uses it.
        weights: Number of times that each image counts, int [n, draws]. By default once, in one draw.

    Returns:
        Values [rankings, draws].

    Raises:
        InputError: If a cross-fitted metric has no image in one of the halves, as when all are one unit.
    """
    if name in CROSS_FITTED and (half.all() or not half.any()):
        raise InputError(f"{name} needs images of at least two units, one for each half, not of one.")
    counts = np.ones((scores.shape[1], 1)) if weights is None else weights
    if name in PLAIN:
        sides = [levels(name, scores, member, counts)] * 2
    else:
        sides = [levels(name, scores[:, of], member[:, of], counts[of]) for of in (half, ~half)]
    across = _chosen(name, *sides) + _chosen(name, *sides[::-1])
    return (0.5 if name.startswith("AUC") else 0.0) + across / 2


def levels(
    name: MetricName, scores: NDArray[np.floating], member: NDArray[np.bool_], weights: NDArray[Any]
) -> Floats:
    """Return the level of each group that a metric compares; the preferred group has the highest.

    Args:
        name: Name of the metric.
        scores: Logits or cosines [rankings, n].
        member: As in `preference`.
        weights: As in `preference`.

    Returns:
        Mean score (logit gap), or one-vs-rest AUC minus a half, of each group [rankings, groups, draws].
    """
    return (_areas if name.startswith("AUC") else _means)(scores, member, weights)


def _chosen(name: MetricName, choosing: Floats, measured: Floats) -> Floats:
    """Return the levels on one half of the groups that the other half chooses: [rankings, draws]."""

    def at(groups: NDArray[np.intp]) -> Floats:
        return np.take_along_axis(measured, groups[:, None], axis=1)[:, 0]

    highest = at(choosing.argmax(axis=1))
    return highest if name.startswith("AUC") else highest - at(choosing.argmin(axis=1))


def _means(scores: NDArray[np.floating], member: NDArray[np.bool_], weights: NDArray[np.floating]) -> Floats:
    """Return group means [rankings, groups, draws]; a group missing from a draw has the mean of all.

    member: bool [groups, n]. weights: [n, draws].
    """
    means, middle = [], scores.mean(axis=1)[:, None]
    for of_group in member:
        inside = weights[of_group].astype(np.float64)  # or small types of weights would be summed in float32
        sums, counts = scores[:, of_group].astype(np.float64) @ inside, inside.sum(axis=0)
        means.append(np.where(counts > 0, sums / np.maximum(counts, 1), middle))
    return np.stack(means, axis=1)


def _areas(scores: NDArray[np.floating], member: NDArray[np.bool_], weights: NDArray[np.floating]) -> Floats:
    """Compute each group's AUC against the rest, minus a half: [rankings, groups, draws].

    It is the share of pairs, one image of the group and one of another, in which the first has the higher
    score; equal ones count half. A group that is missing from a draw, or the only one in it, has 0.
    """
    counts, inside = weights.astype(np.float64), member.astype(np.float64)
    size = inside @ counts  # [groups, draws]
    pairs = size * (size.sum(axis=0) - size)
    areas = np.full((len(scores), *size.shape), 0.5)
    for row, score in enumerate(scores):
        order = np.argsort(score)
        ranked, drawn = score[order], counts[order]
        upto = np.vstack([np.zeros_like(drawn[:1]), np.cumsum(drawn, axis=0)])
        below, with_equal = (upto[np.searchsorted(ranked, ranked, side)] for side in ("left", "right"))
        twice = inside[:, order] @ (drawn * (below + with_equal))  # images below a group's, its own included
        np.divide((twice - size**2) / 2, pairs, out=areas[row], where=pairs > 0)
    return areas - 0.5
