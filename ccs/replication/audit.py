"""What the study says (audit.toml), held against figures, printed or measured.

The claims of the paper's two versions, of its poster and of its page, paraphrased; `source` says where each
stands and which table or figure it is about. A cell is a figure or a pair of figures that the claim refers
to; it supports the claim or contradicts it. Cells without a figure are left out, so the same checks run on
partial measurements. A claim on which no printed figure bears has no cells, and a note that says so.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import combinations
from math import inf, isnan, nan
from typing import Any

import pandas as pd

from ccs import paper
from ccs.replication import REPEATED, TABLES, claims, compare
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


@dataclass(frozen=True)
class Check:
    """A sentence, the number of cells that support it, and those against it; `note`: what they cannot say."""

    statement: str
    source: str
    note: str
    holds: int
    of: int
    exceptions: tuple[str, ...]


@cache
def _sentences() -> list[dict[str, Any]]:
    text = files("ccs.replication").joinpath("audit.toml").read_text("utf-8")
    sentences: list[dict[str, Any]] = tomllib.loads(text)["sentences"]
    return sentences


@cache
def printed() -> Figures:
    return {
        (key, row, column): value
        for key, table in paper.tables().items()
        for row, column, value in table.cells()
    }


def measured(
    results: Mapping[str, Results], agreement: pd.DataFrame | None = None, found_heads: bool = False
) -> Figures:
    """The measured figures of the same cells, with bias by the correct metric. agreement: what `clip-ccs
    annotate import` wrote; OpenAI's model alone is held against the first version's table 2. found_heads: in
    place of those that the study lists.
    """
    values = {}
    for key in (*TABLES, *REPEATED):
        for claim in claims(key):
            compared = compare(claim, results.get(claim.model), found_heads)
            value = compared.correct if claim.measure == "bias" else compared.measured
            if value is not None:
                # Counts that are the printed ones keep the print's digits: its rounding decides nothing.
                same = value is compared.measured and isnan(value.low) and compared.agrees
                place = claim.table, claim.row, claim.column
                values[place] = claim.published if same else round(value.value, 9)
    names = {model.name: model.paper_name for model in paper.models()}
    for row in () if agreement is None else agreement.dropna(subset="value").to_dict("records"):
        table = "table4" if row["judges"] == "panel" else "v1-table2"
        place = table, names.get(row["model"], str(row["model"])), str(row["metric"])
        if place in printed() and (row["judges"] == "panel" or str(row["judges"]).startswith("openai:")):
            values.setdefault(place, float(row["value"]))
    return values


def audit(values: Figures | None = None) -> tuple[Check, ...]:
    """Every sentence over the figures (default: the printed ones), in the study's order."""
    known, checks = printed() if values is None else values, []
    for sentence in _sentences():
        cells = dict[str, bool]()
        for arguments in sentence.get("cells", ()):
            cells |= CHECKS[sentence["check"]](known, **arguments)
        against = tuple(name for name, supports in cells.items() if not supports)
        about = sentence["text"], sentence["source"], sentence.get("note", "")
        checks.append(Check(*about, len(cells) - len(against), len(cells), against))
    return tuple(checks)


# Ways to check a sentence; each yields (the figures, whether they support it) ----------------------


def _figures(values: Figures, table: str, plan: str) -> dict[tuple[str, str], float]:
    """A plan's figures by (data set, attribute or "", model). Figure 2's unpruned ones are in table 5."""
    printed = paper.table(table)
    sets = dict.fromkeys(column[: column.find("/") + 1] for column in printed.columns)
    cells = {}
    for row in printed.rows:
        for name in sets:
            dataset, _, model = f"{name}{row}".rpartition("/")
            place = table, row, f"{name}{plan}"
            if table == "figure2" and plan == "original":
                place = "table5", model, f"{dataset}/original"
            if place in values:
                cells[dataset, model] = values[place]
    return cells


def _pairs(
    values: Figures, table: str, plan: str, other: str, of: str = "", models: Sequence[str] = ("",)
) -> Iterator[tuple[tuple[str, str], float, float]]:
    """Cells with the figures of two plans; `of`, `models`: only sets and models whose names begin so."""
    ours, theirs = _figures(values, table, plan), _figures(values, table, other)
    for cell, value in ours.items():
        if cell in theirs and cell[0].startswith(of) and cell[1].startswith(tuple(models)):
            yield cell, value, theirs[cell]


def _drops(values: Figures, table: str, plan: str) -> dict[tuple[str, str], float]:
    return {cell: before - after for cell, before, after in _pairs(values, table, "original", plan)}


def _place(table: str, cell: tuple[str, str]) -> str:
    dataset, model = cell
    in_rows = "/" in next(iter(paper.table(table).rows))
    return f"{paper.table(table).number}, " + (
        f"{dataset}/{model}" if in_rows else f"{model} {dataset}".rstrip()
    )


def _below(
    values: Figures,
    table: str,
    smaller: str,
    larger: str,
    of: str = "",
    models: Sequence[str] = ("",),
    by: float | None = None,
    percent: float | None = None,
) -> Cells:
    """One plan's figure is below another's, `by` at least so much, or by more than so many percent of it."""
    for cell, low, high in _pairs(values, table, smaller, larger, of, models):
        good = low < high if by is None else round(high - low, 9) >= by
        if percent is not None:
            good = high - low > percent / 100 * high
        yield f"{_place(table, cell)} ({larger} {high:g}, {smaller} {low:g})", good


def _within(values: Figures, table: str, column: str, above: float = -inf, most: float = inf) -> Cells:
    """The figures of a column exceed a limit, or do not exceed one."""
    for cell, value in _figures(values, table, column).items():
        yield f"{_place(table, cell)} {column} {value:g}", above < value <= most


def _equal(values: Figures, table: str, other: str) -> Cells:
    """Two tables have the same figures."""
    for row, column, _ in paper.table(table).cells():
        if (table, row, column) in values and (other, row, column) in values:
            ours, theirs = values[table, row, column], values[other, row, column]
            yield f"{_place(table, ('', row))} {column} ({ours:g} and {theirs:g})", ours == theirs


def _counted(values: Figures, table: str) -> Cells:
    """Shares are those of a whole number of the model's heads, to the last digit."""
    for row, column, _ in paper.table(table).cells():
        if (table, row, column) in values:
            share, heads = values[table, row, column], len(paper.model(row).heads)
            count = round(share * heads)
            about = f"{row} {column} {share:g} ({count} of {heads}: {count / heads:.4f})"
            yield about, abs(share - count / heads) <= 0.0005 + 1e-9


def _named(values: Figures, table: str, column: str, endings: Sequence[str]) -> Cells:
    """The models of a table are named for one of these."""
    for _, model in _figures(values, table, column):
        yield model, model.endswith(tuple(endings))


def _covered(values: Figures, table: str) -> Cells:
    """The table has every model of which there are figures."""
    there = {row for _, row, _ in values}
    for model in paper.models():
        if model.paper_name in there:
            yield model.paper_name, any(key == table and row == model.paper_name for key, row, _ in values)


def _small_change(
    values: Figures, table: str, plan: str, gain: float = SMALL, models: Sequence[str] = ("",)
) -> Cells:
    """A plan's figure is at most SMALL below the original and at most `gain` above it."""
    for cell, before, after in _pairs(values, table, "original", plan, models=models):
        yield f"{_place(table, cell)} {plan} ({after - before:+.2f})", -gain <= before - after <= SMALL


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


def _excess(
    values: Figures, table: str, larger: str, smaller: str, of: str = ""
) -> dict[str, dict[str, float]]:
    """Set -> model -> a column's figure, or its excess over the `smaller` one's."""
    cells = [(cell, value, 0.0) for cell, value in _figures(values, table, larger).items()]
    by_set: dict[str, dict[str, float]] = {}
    for (dataset, model), high, low in _pairs(values, table, larger, smaller) if smaller else cells:
        if dataset.startswith(of):
            by_set.setdefault(dataset, {})[model] = round(high - low, 9)
    return by_set


def _less_in_larger(
    values: Figures, table: str, larger: str, smaller: str = "", pairs: Sequence[Sequence[str]] = LARGER
) -> Cells:
    """A column's figure, or its excess over the `smaller` one's, is less in the first model of each pair."""
    for dataset, excess in _excess(values, table, larger, smaller).items():
        for model, other in pairs:
            if model in excess and other in excess:
                where = ", ".join(filter(None, (paper.table(table).number, dataset)))
                about = f"{where}, {model} against {other} ({excess[model]:g}, {excess[other]:g})"
                yield about, excess[model] < excess[other]


def _largest(
    values: Figures, table: str, larger: str, models: Sequence[str], smaller: str = "", of: str = ""
) -> Cells:
    """Set by set, a column's figure (or its excess) is largest in a model whose name begins so."""
    for dataset, excess in _excess(values, table, larger, smaller, of).items():
        best = max(excess, key=lambda model: excess[model])
        if len(excess) > 1:
            where = ", ".join(filter(None, (paper.table(table).number, dataset)))
            yield f"{where}: {best} ({excess[best]:g})", best.startswith(tuple(models))


def _series(values: Figures, table: str) -> dict[tuple[str, str], list[float]]:
    """Each model's pruned figures of a set, from first column to last, where all of them are there."""
    by_row: dict[tuple[str, str], list[float]] = {}
    for row, column, _ in paper.table(table).cells():
        if not column.endswith("original"):
            cell = column.rpartition("/")[0], row
            by_row.setdefault(cell, []).append(values.get((table, row, column), nan))
    return {cell: series for cell, series in by_row.items() if not any(map(isnan, series))}


def _close(values: Figures, table: str, points: float) -> Cells:
    """The figures of a row lie within this many points."""
    for cell, series in _series(values, table).items():
        spread = max(series) - min(series)
        yield f"{_place(table, cell)} (range {spread:.2f})", spread <= points


def _rising(values: Figures, table: str, models: Sequence[str] = ("",), never: bool = False) -> Cells:
    """The figures of a row fall nowhere; `never`: somewhere."""
    for cell, series in _series(values, table).items():
        if cell[1].startswith(tuple(models)):
            shown = ", ".join(f"{value:g}" for value in series)
            yield f"{_place(table, cell)} ({shown})", (series == sorted(series)) != never


def _same_order(values: Figures, table: str) -> Cells:
    """Two models are in the same order in every column."""
    for (first, ours), (second, theirs) in combinations(_series(values, table).items(), 2):
        if first[0] == second[0]:
            same = {a < b for a, b in zip(ours, theirs, strict=True)}
            yield f"{paper.table(table).number}, {first[0]}, {first[1]} against {second[1]}", len(same) == 1


CHECKS: Mapping[str, Callable[..., Cells]] = {
    "below": _below,
    "close": _close,
    "counted": _counted,
    "covered": _covered,
    "equal": _equal,
    "larger_fall": _larger_fall,
    "largest": _largest,
    "less_in_larger": _less_in_larger,
    "named": _named,
    "rising": _rising,
    "same_order": _same_order,
    "small_change": _small_change,
    "smaller_change": _smaller_change,
    "within": _within,
}
"""Functions by their name in `check` of audit.toml; each is called with each of a sentence's `cells`."""
