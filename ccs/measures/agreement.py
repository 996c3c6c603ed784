"""Agreement of judges with people, and of raters with one another.

A pair is a text with a concept. Cohen's kappa and the share of equal verdicts compare two yes-or-no verdicts
per pair. Spearman's rho and Kendall's tau-b compare the share of people who say yes with the share of judges
who do. Krippendorff's alpha allows any number of raters and missing ratings. A coefficient that is not
defined (one side never varies) is NaN. Intervals are 95% percentile bootstrap intervals over the pairs.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccs.errors import InputError
from ccs.measures.stats import UNKNOWN, Estimate, Floats, interval, resampled_cells

Verdict = bool | None  # None: not answered, or unscored
Ratings = Sequence[Sequence[Verdict]]  # [raters][pairs]
METRICS = ("same", "cohen_kappa", "spearman_rho", "kendall_tau")
DRAWS = 2000


@dataclass(frozen=True)
class Agreement:
    """Agreement of two sides over the `n` pairs that both have judged."""

    n: int
    same: Estimate
    cohen_kappa: Estimate
    spearman_rho: Estimate
    kendall_tau: Estimate


@dataclass(frozen=True)
class JudgePair:
    """Two judges over the `n` texts that both scored: share of equal verdicts, and kappa; NaN if n is 0."""

    left: str
    right: str
    n: int
    same: float
    cohen_kappa: float


def consensus(ratings: Ratings) -> list[Verdict]:
    """The majority's verdict on each pair; missing answers are not counted, and a tie is None."""
    decided: list[Verdict] = []
    for votes in zip(*ratings, strict=True):
        yes, no = votes.count(True), votes.count(False)
        decided.append(None if yes == no else yes > no)
    return decided


def unanimous(ratings: Ratings) -> list[Verdict]:
    """The panel's verdict on each text: yes if all judges accept it; None if a verdict is missing."""
    return [None if None in votes else all(votes) for votes in zip(*ratings, strict=True)]


def compare(people: Ratings, judges: Ratings, *, draws: int = DRAWS, seed: int = 0) -> Agreement:
    """Agreement between people and a panel; a panel of one is that judge alone.

    `people`, `judges`: [raters][pairs], the same pairs. People's verdicts are combined by `consensus`,
    judges' by `unanimous`; rho and tau compare the share of people with the share of judges who say yes.
    InputError without raters, or if the pairs differ in number.
    """
    lengths = {len(rater) for rater in (*people, *judges)}
    if not people or not judges or len(lengths) != 1:
        raise InputError(f"People and judges must have judged the same pairs, not {sorted(lengths)} of them.")
    said, ruled = consensus(people), unanimous(judges)
    both = [i for i, (p, j) in enumerate(zip(said, ruled, strict=True)) if p is not None and j is not None]
    left, right = [bool(said[i]) for i in both], [bool(ruled[i]) for i in both]
    left_votes, right_votes = _shares(people, both), _shares(judges, both)
    if not both:
        return Agreement(0, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)
    # Everything else follows from how often each (people, panel, people's share, panel's share) occurs.
    rows = list(zip(left, right, left_votes, right_votes, strict=True))
    cells = sorted(set(rows))
    observed = [rows.count(cell) for cell in cells]
    drawn = resampled_cells(observed, draws, np.random.default_rng(seed))
    counts = np.concatenate([[observed], drawn]).astype(np.float64)
    verdicts = _tables(counts, [c[0] for c in cells], [c[1] for c in cells], levels=(False, True))
    votes = _tables(counts, [c[2] for c in cells], [c[3] for c in cells])
    return Agreement(
        len(both),
        _estimate(verdicts.trace(axis1=1, axis2=2) / len(both)),
        _estimate(table_kappa(verdicts)),
        _estimate(table_spearman(votes)),
        _estimate(table_kendall(votes)),
    )


def krippendorff_alpha(
    ratings: Sequence[Sequence[Hashable | None]], *, draws: int = DRAWS, seed: int = 0
) -> Estimate:
    """Krippendorff's alpha for nominal ratings [raters][units], None where a rater has not rated a unit.

    1 - observed over expected disagreement (Krippendorff, Content Analysis, 2004, chapter 11.3). Units with
    fewer than two ratings do not count. NaN if no unit counts or only one value occurs.
    """
    units = [[rating for rating in unit if rating is not None] for unit in zip(*ratings, strict=True)]
    units = [unit for unit in units if len(unit) > 1]
    values = list(dict.fromkeys(rating for unit in units for rating in unit))
    if not units:
        return UNKNOWN
    counts = np.array([[unit.count(value) for value in values] for unit in units], dtype=np.float64)
    chosen = np.random.default_rng(seed).integers(len(units), size=(draws, len(units)))
    return _estimate(_alpha(np.concatenate([counts[None], counts[chosen]])))


def judge_pairs(verdicts: Mapping[str, Sequence[Verdict]]) -> list[JudgePair]:
    """Every pair of judges of a panel. `verdicts`: judge -> one verdict per text, for the same texts."""
    if len({len(said) for said in verdicts.values()}) != 1:
        raise InputError("The judges of a panel must have judged the same texts.")
    pairs = []
    for (left, first), (right, second) in itertools.combinations(verdicts.items(), 2):
        both = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
        ones = np.ones((1, len(both)))
        table = _tables(ones, [a for a, _ in both], [b for _, b in both], levels=(False, True))
        same = sum(a == b for a, b in both) / len(both) if both else float("nan")
        kappa = float(table_kappa(table)[0]) if both else float("nan")
        pairs.append(JudgePair(left, right, len(both), same, kappa))
    return pairs


# Many draws at once: tables of counts [draws, left levels, right levels], levels in ascending order.


def table_kappa(tables: Floats) -> Floats:
    """Cohen's kappa of each table [draws, c, c]; NaN where it is not defined."""
    n = tables.sum(axis=(1, 2))
    observed = tables.trace(axis1=1, axis2=2) / n
    expected = (tables.sum(axis=2) * tables.sum(axis=1)).sum(axis=1) / n**2
    return _ratio(observed - expected, 1 - expected)


def table_spearman(tables: Floats) -> Floats:
    """Spearman's rho of each table [draws, r, c]: Pearson's correlation of the mid-ranks."""
    n = tables.sum(axis=(1, 2))
    left, right = tables.sum(axis=2), tables.sum(axis=1)
    # A level's mid-rank, less the mean rank (n + 1) / 2.
    x = left.cumsum(axis=1) - left / 2 - n[:, None] / 2
    y = right.cumsum(axis=1) - right / 2 - n[:, None] / 2
    covariance = np.einsum("dij,di,dj->d", tables, x, y)
    return _ratio(covariance, np.sqrt((left * x**2).sum(axis=1) * (right * y**2).sum(axis=1)))


def table_kendall(tables: Floats) -> Floats:
    """Kendall's tau-b of each table [draws, r, c]."""
    n = tables.sum(axis=(1, 2))
    difference = np.zeros(len(tables))
    for i, j in itertools.product(range(tables.shape[1]), range(tables.shape[2])):
        above = tables[:, i + 1 :, j + 1 :].sum(axis=(1, 2)) - tables[:, i + 1 :, :j].sum(axis=(1, 2))
        difference += tables[:, i, j] * above
    pairs = n * (n - 1) / 2
    left, right = tables.sum(axis=2), tables.sum(axis=1)
    untied_left = pairs - (left * (left - 1) / 2).sum(axis=1)
    untied_right = pairs - (right * (right - 1) / 2).sum(axis=1)
    return _ratio(difference, np.sqrt(untied_left * untied_right))


def _tables(drawn: Floats, left: Sequence[Any], right: Sequence[Any], levels: Sequence[Any] = ()) -> Floats:
    """Tables [draws, left levels, right levels] from draws of cells [draws, cells] and each cell's levels."""
    rows, columns = levels or sorted(set(left)), levels or sorted(set(right))
    tables = np.zeros((len(drawn), len(rows), len(columns)))
    for cell, (a, b) in enumerate(zip(left, right, strict=True)):
        tables[:, rows.index(a), columns.index(b)] += drawn[:, cell]
    return tables


def _alpha(counts: Floats) -> Floats:
    """Alpha of each draw; counts [draws, units, values] of units with two ratings or more."""
    rated = counts.sum(axis=2)
    matching = ((counts**2).sum(axis=2) - rated) / (rated - 1)  # coincidences of equal values in a unit
    totals = counts.sum(axis=1)
    n = totals.sum(axis=1)
    observed = n - matching.sum(axis=1)
    expected = (n**2 - (totals**2).sum(axis=1)) / (n - 1)
    return np.asarray(1 - _ratio(observed, expected), dtype=np.float64)


def _ratio(above: Floats, below: Floats) -> Floats:
    # These are differences of counts or shares: any that is not 0 is far above float64's rounding.
    defined = np.abs(below) > 1e-9
    ratio: Floats = np.full(len(above), np.nan)
    np.divide(above, below, out=ratio, where=defined)
    return ratio


def _estimate(found: Floats) -> Estimate:
    """The first value with the percentile interval of the others, which are its draws.

    Undefined draws are left out; the interval is NaN if more than half are undefined.
    """
    value, draws = float(found[0]), found[1:]
    defined = draws[~np.isnan(draws)]
    if np.isnan(value) or len(defined) < len(draws) / 2:
        return Estimate(value, float("nan"), float("nan"))
    return interval(value, defined)


def _shares(ratings: Ratings, pairs: Sequence[int]) -> list[float]:
    """For each of these pairs, the share of yes among the raters who answered."""
    answered = [[rater[i] for rater in ratings if rater[i] is not None] for i in pairs]
    return [votes.count(True) / len(votes) for votes in answered]
