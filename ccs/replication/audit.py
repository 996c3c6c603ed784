"""Directional sentences of the study (audit.toml) as checks over figures, printed or measured.

The sentences are paraphrased from the abstracts of the three versions, from the project page (docs/index.html
of the released repository), which repeats sections of the paper, and from the authors' summary of it
(Thoughtworks AI Labs, "Concept consistency score"), and were checked against both; `source` says which, and
which table or figure the sentence is about. A cell is a figure or a pair of figures that the sentence refers
to; it supports the sentence or contradicts it. Cells without a figure are left out, so the same checks run on
partial measurements.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import combinations
from typing import Any

from ccs.paper import figures
from ccs.replication.checks import Check
from ccs.replication.comparison import TABLES, claims, compare
from ccs.results import Results

Figures = Mapping[tuple[str, str, str], float]
"""(table, row, column) -> number."""
Cells = Iterator[tuple[str, bool]]

SMALL = 1.0  # points that count as "minimal" or "minor"; the study gives no limit
LARGER = (
    ("ViT-L-14-OpenAI", "ViT-B-32-OpenAI"),
    ("ViT-L-14-OpenAI", "ViT-B-16-OpenAI"),
    ("ViT-L-14-LAION", "ViT-B-16-LAION"),
)
"""(larger, smaller) models trained on the same data."""
KS = ("K=5", "K=7", "K=9", "K=11", "K=13")


@dataclass(frozen=True)
class Sentence:
    """A sentence of the study. `check`: a function in CHECKS, called with each of `cells`."""

    source: str
    text: str
    check: str
    cells: tuple[Mapping[str, Any], ...]

    def over(self, values: Figures) -> Check:
        """The number of cells that support the sentence, and those that contradict it."""
        outcomes = dict(one for cell in self.cells for one in CHECKS[self.check](values, **cell))
        return Check.of_outcomes(self.text, outcomes, self.source)


@cache
def sentences() -> tuple[Sentence, ...]:
    """Every sentence, in the study's order."""
    text = files("ccs.replication").joinpath("audit.toml").read_text("utf-8")
    return tuple(Sentence(**one | {"cells": tuple(one["cells"])}) for one in tomllib.loads(text)["sentences"])


@cache
def printed() -> Figures:
    """The study's own figures."""
    return {
        (key, row, column): value
        for key, table in figures.tables().items()
        for row, column, value in table.cells()
    }


def measured(results: Mapping[str, Results]) -> Figures:
    """The measured figures of the same cells, with bias by the correct metric; `results`: by model."""
    found = {}
    for key in TABLES:
        for claim in claims(key):
            one = compare(claim, results.get(claim.model))
            value = one.correct if claim.measure == "bias" else one.measured
            if value is not None:
                found[claim.table, claim.row, claim.column] = value.value
    return found


def audit(values: Figures | None = None) -> tuple[Check, ...]:
    """Every sentence over the figures (default: the printed ones), in the study's order."""
    return tuple(one.over(printed() if values is None else values) for one in sentences())


# Ways to check a sentence; each yields (the figures, whether they support it) ----------------------


def _figures(values: Figures, table: str, plan: str) -> dict[tuple[str, str], float]:
    """A plan's figures by (data set or attribute, model); the set is "" in a table with only one.

    Figure 2 prints no unpruned accuracies; they are in table 5.
    """
    printed = figures.table(table)
    sets = dict.fromkeys(column[: column.find("/") + 1] for column in printed.columns)
    found = {}
    for row in printed.rows:
        for name in sets:
            dataset, _, model = f"{name}{row}".rpartition("/")
            place = table, row, f"{name}{plan}"
            if table == "figure2" and plan == "original":
                place = "table5", model, f"{dataset}/original"
            if place in values:
                found[dataset, model] = values[place]
    return found


def _pairs(
    values: Figures, table: str, one: str, other: str, of: str = ""
) -> Iterator[tuple[tuple[str, str], float, float]]:
    """Cells with the figures of two plans; `of`: only sets whose names begin with this."""
    ours, theirs = _figures(values, table, one), _figures(values, table, other)
    for cell, value in ours.items():
        if cell in theirs and cell[0].startswith(of):
            yield cell, value, theirs[cell]


def _drops(values: Figures, table: str, plan: str) -> dict[tuple[str, str], float]:
    return {cell: before - after for cell, before, after in _pairs(values, table, "original", plan)}


def _place(table: str, cell: tuple[str, str]) -> str:
    dataset, model = cell
    in_rows = "/" in next(iter(figures.table(table).rows))
    return f"{figures.table(table).number}, " + (
        f"{dataset}/{model}" if in_rows else f"{model} {dataset}".rstrip()
    )


def _below(values: Figures, table: str, smaller: str, larger: str, of: str = "") -> Cells:
    """One plan's figure is below another's."""
    for cell, low, high in _pairs(values, table, smaller, larger, of):
        yield f"{_place(table, cell)} ({larger} {high:g}, {smaller} {low:g})", low < high


def _above(values: Figures, table: str, column: str, limit: float) -> Cells:
    """The figures of a column exceed a limit."""
    for cell, value in _figures(values, table, column).items():
        yield f"{_place(table, cell)} {column} {value:g}", value > limit


def _small_change(values: Figures, table: str, plan: str, gain: float = SMALL) -> Cells:
    """A plan's figure is at most SMALL below the original and at most `gain` above it."""
    for cell, drop in _drops(values, table, plan).items():
        yield f"{_place(table, cell)} ({-drop:+.2f})", -gain <= drop <= SMALL


def _smaller_change(values: Figures, table: str, plan: str, other: str) -> Cells:
    """One plan's figure is nearer to the original than another's."""
    theirs = _drops(values, table, other)
    for cell, drop in _drops(values, table, plan).items():
        if cell in theirs:
            place = f"{_place(table, cell)} ({plan} {-drop:+.1f}, {other} {-theirs[cell]:+.1f})"
            yield place, abs(drop) < abs(theirs[cell])


def _larger_fall(values: Figures, table: str, other: str, plan: str) -> Cells:
    """A plan's fall, in percent of an original above 0, is larger in one table than in another."""
    ours, theirs = (
        {
            cell: 100 * drop / before
            for cell, drop in _drops(values, key, plan).items()
            if (before := _figures(values, key, "original")[cell])
        }
        for key in (table, other)
    )
    for cell, fall in ours.items():
        if cell in theirs:
            place = f"{cell[1]} {cell[0]} ({fall:.0f}% against {theirs[cell]:.0f}%)"
            yield place, fall > theirs[cell]


def _less_in_larger(values: Figures, table: str, larger: str, smaller: str = "") -> Cells:
    """A column's figure, or its excess over the `smaller` one's, is less in larger models."""
    found, digits = _figures(values, table, larger), "g"
    if smaller:
        found = {cell: high - low for cell, high, low in _pairs(values, table, larger, smaller)}
        digits = ".2f"
    for dataset in dict.fromkeys(dataset for dataset, _ in found):
        for large, small in LARGER:
            if (dataset, large) in found and (dataset, small) in found:
                ours, theirs = found[dataset, large], found[dataset, small]
                where = ", ".join(filter(None, (figures.table(table).number, dataset)))
                yield f"{where}, {large} against {small} ({ours:{digits}}, {theirs:{digits}})", ours < theirs


def _by_k(values: Figures, table: str) -> dict[tuple[str, str], list[float]]:
    """The figures at every K in KS, for the cells that have all of them."""
    columns = [_figures(values, table, k) for k in KS]
    return {
        cell: [column[cell] for column in columns]
        for cell in columns[0]
        if all(cell in column for column in columns)
    }


def _close(values: Figures, table: str, points: float) -> Cells:
    """The figures at all K lie within this many points."""
    for cell, found in _by_k(values, table).items():
        spread = max(found) - min(found)
        yield f"{_place(table, cell)} (range {spread:.2f})", spread <= points


def _not_rising(values: Figures, table: str) -> Cells:
    """The figures do not rise steadily with K."""
    for cell, found in _by_k(values, table).items():
        yield _place(table, cell), found != sorted(found)


def _same_order(values: Figures, table: str) -> Cells:
    """Two models are in the same order at every K."""
    for (one, ours), (other, theirs) in combinations(_by_k(values, table).items(), 2):
        if one[0] == other[0]:
            same = {a < b for a, b in zip(ours, theirs, strict=True)}
            yield f"{figures.table(table).number}, {one[0]}, {one[1]} against {other[1]}", len(same) == 1


CHECKS: Mapping[str, Callable[..., Cells]] = {
    "above": _above,
    "below": _below,
    "close": _close,
    "larger_fall": _larger_fall,
    "less_in_larger": _less_in_larger,
    "not_rising": _not_rising,
    "same_order": _same_order,
    "small_change": _small_change,
    "smaller_change": _smaller_change,
}
"""Functions by their name in `check` of audit.toml."""
