"""Agreement of judges with people, and of raters with one another.

A pair is a text with a concept. The share of equal verdicts, Cohen's kappa, Spearman's rho and Kendall's
tau-b all compare the same two yes-or-no verdicts per pair. For such verdicts rho, tau-b, and phi are equal,
and kappa is at most as large. Krippendorff's alpha allows any number of raters and missing ratings. A
coefficient that is not defined (one side never varies) is NaN. Intervals are 95% percentile bootstrap
intervals over the pairs.

    >>> consensus([[True, True], [True, False], [False, None]]), unanimous([[True, True], [True, None]])
    ([True, None], [True, None])
"""

from collections.abc import Hashable, Sequence

import numpy as np

from ccs.errors import InputError, require
from ccs.metrics.stats import UNKNOWN, Estimate, Floats, interval

Verdict = bool | None  # None: not answered, or unscored
Ratings = Sequence[Sequence[Verdict]]  # [raters][pairs]
DRAWS = 500


def consensus(ratings: Ratings) -> list[Verdict]:
    """Return the majority's verdict on each pair; missing answers are not counted, and a tie is None."""
    decided: list[Verdict] = []
    for votes in zip(*ratings, strict=True):
        yes, no = votes.count(True), votes.count(False)
        decided.append(None if yes == no else yes > no)
    return decided


def unanimous(ratings: Ratings) -> list[Verdict]:
    """Return the panel's verdict on each text: yes if all judges accept it; None if a verdict is missing."""
    return [None if None in votes else all(votes) for votes in zip(*ratings, strict=True)]


def compare_with_people(
    people: Ratings, judges: Ratings, *, draws: int = DRAWS, seed: int = 0
) -> tuple[int, dict[str, Estimate]]:
    """Compare people with a panel of judges.

    Args:
        people: Verdicts of people `[raters][pairs]`, combined by `consensus`.
        judges: Verdicts of judges `[judges][pairs]` on the same pairs, combined by `unanimous`.
        draws: Number of resamples.
        seed: Random seed for resampling.

    Returns:
        The number of pairs that have a verdict on both sides, and each of METRICS over them.

    Raises:
        InputError: If there are no people or judges, or the numbers of pairs differ.
    """
    lengths = {len(rater) for rater in (*people, *judges)}
    if not people or not judges or len(lengths) != 1:
        raise InputError(f"People and judges must have judged the same pairs, not {sorted(lengths)} of them.")
    both = zip(consensus(people), unanimous(judges), strict=True)
    if not (pairs := [pair for pair in both if None not in pair]):
        return 0, dict.fromkeys(METRICS, UNKNOWN)
    verdicts = np.array(pairs, dtype=np.float64).T
    rows = np.random.default_rng(seed).integers(len(pairs), size=(draws, len(pairs)))
    drawn = [verdicts[:, row] for row in rows]
    return len(pairs), {
        name: _estimate(metric(*verdicts), [metric(*of_draw) for of_draw in drawn])
        for name, metric in METRICS.items()
    }


def krippendorff_alpha(
    ratings: Sequence[Sequence[Hashable | None]], *, draws: int = DRAWS, seed: int = 0
) -> Estimate:
    """Compute Krippendorff's alpha for nominal ratings.

    Args:
        ratings: Ratings `[raters][units]`; None for a unit that a rater has not rated. Units with fewer than
            two ratings do not count.
        draws: Number of resamples.
        seed: Random seed for resampling.

    Returns:
        Alpha with its interval; NaN if no unit counts or only one value occurs.
    """
    require("judges", "krippendorff")
    import krippendorff

    units = [[rating for rating in unit if rating is not None] for unit in zip(*ratings, strict=True)]
    units = [unit for unit in units if len(unit) > 1]
    values = list(dict.fromkeys(rating for unit in units for rating in unit))
    counts = np.array([[unit.count(value) for value in values] for unit in units])

    def alpha(rows: np.ndarray) -> float:
        if np.count_nonzero(counts[rows].sum(axis=0)) < 2:
            return float("nan")
        return float(krippendorff.alpha(value_counts=counts[rows], level_of_measurement="nominal"))

    if not units:
        return UNKNOWN
    drawn = np.random.default_rng(seed).integers(len(units), size=(draws, len(units)))
    return _estimate(alpha(np.arange(len(units))), [alpha(rows) for rows in drawn])


def _same(left: Floats, right: Floats) -> float:
    return float((left == right).mean())


def _kappa(left: Floats, right: Floats) -> float:
    """Compute Cohen's kappa; NaN if neither side varies.

    scikit-learn's function takes 1.7 ms per call, 50 times as long, and an interval needs hundreds of calls.
    """
    p, q = left.mean(), right.mean()
    expected = p * q + (1 - p) * (1 - q)
    return float((_same(left, right) - expected) / (1 - expected)) if expected < 1 else float("nan")


def _phi(left: Floats, right: Floats) -> float:
    """Compute Spearman's rho, which equals Kendall's tau-b."""
    varied = np.ptp(left) > 0 and np.ptp(right) > 0
    return float(np.corrcoef(left, right)[0, 1]) if varied else float("nan")


METRICS = {"same": _same, "cohen_kappa": _kappa, "spearman_rho": _phi, "kendall_tau": _phi}
"""Metrics of two sides' verdicts [pairs], 0 or 1."""


def _estimate(value: float, drawn: Sequence[float]) -> Estimate:
    """Return the value with the percentile interval of its draws.

    Undefined draws are left out; the interval is NaN if more than half are undefined.
    """
    draws = np.array(drawn)
    defined = draws[~np.isnan(draws)]
    if np.isnan(value) or len(defined) < len(draws) / 2:
        return Estimate(value, float("nan"), float("nan"))
    return interval(value, defined)
