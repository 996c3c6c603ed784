"""Compare what the paper says (audit.toml) with numbers, printed or measured.

The claims of the paper's two versions, of its poster and of its page, paraphrased; `source` says where each
stands and which table or figure it is about. A cell is a figure or a pair of figures that the claim refers
to; it supports the claim or contradicts it. Cells without a figure are left out, so the same checks run on
partial measurements. A claim on which no printed figure bears has no cells, and a note that says so.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import combinations
from math import inf, isnan, nan
from typing import Any

import pandas as pd

from ccs import paper
from ccs.batch.report import REPEATED, TABLES, claims, compare_claim
from ccs.results import Results

Figures = Mapping[tuple[str, str, str], float]
"""(table, row, column) -> number."""
Cells = Iterator[tuple[str, bool]]

SMALL = 1.0  # points that count as "minimal" or "minor"; the paper gives no limit
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
    text = files("research.paper").joinpath("audit.toml").read_text("utf-8")
    sentences: list[dict[str, Any]] = tomllib.loads(text)["sentences"]
    return sentences


@cache
def printed() -> Figures:
    """Return the paper's printed numbers by table, row, and column."""
    return {
        (key, row, column): value
        for key, table in paper.tables().items()
        for row, column, value in table.cells()
    }


def measured(
    results: Mapping[str, Results], agreement: pd.DataFrame | None = None, found_heads: bool = False
) -> Figures:
    """Read the measured figures of the paper's cells, with bias by the correct metric.

    Args:
        results: model -> its results.
        agreement: the table that `clip-ccs annotate import` wrote; only OpenAI's model is compared with table
            2 of the first version.
        found_heads: use the heads of these results in place of those that the paper lists.
    """
    values = {}
    for key in (*TABLES, *REPEATED):
        for claim in claims(key):
            compared = compare_claim(claim, results.get(claim.model), found_heads)
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
    """Check every sentence against the numbers (default: the printed ones), in the paper's order."""
    known, checks = printed() if values is None else values, []
    for sentence in _sentences():
        cells = dict[str, bool]()
        for arguments in sentence.get("cells", ()):
            cells |= _cells_of(known, sentence["check"], **arguments)
        against = tuple(name for name, supports in cells.items() if not supports)
        sentence_fields = sentence["text"], sentence["source"], sentence.get("note", "")
        checks.append(Check(*sentence_fields, len(cells) - len(against), len(cells), against))
    return tuple(checks)


# Ways to check a sentence over the figures of a table -------------------------------------------------------


def _cells_of(values: Figures, check: str, table: str, **arguments: Any) -> Cells:
    """Return the cells of a table by which a sentence is checked; `check` names a method of `_Table`."""
    cells: Cells = getattr(_Table(values, table), check)(**arguments)
    return cells


@dataclass(frozen=True)
class _Table:
    """The figures of a printed table.

    Its public methods are the words for `check` in audit.toml: each is called with each of a sentence's
    `cells`, and yields the figures and whether they support it.
    """

    values: Figures
    key: str

    @property
    def _printed(self) -> paper.PaperTable:
        return paper.table(self.key)

    def _figures(self, plan: str) -> dict[tuple[str, str], float]:
        """Return numbers by (dataset, attribute or "", model); figure 2's unpruned ones are in table 5."""
        sets = dict.fromkeys(column[: column.find("/") + 1] for column in self._printed.columns)
        cells = {}
        for row in self._printed.rows:
            for name in sets:
                dataset, _, model = f"{name}{row}".rpartition("/")
                place = self.key, row, f"{name}{plan}"
                if self.key == "figure2" and plan == "original":
                    place = "table5", model, f"{dataset}/original"
                if place in self.values:
                    cells[dataset, model] = self.values[place]
        return cells

    def _pairs(
        self, plan: str, other: str, of: str = "", models: Sequence[str] = ("",)
    ) -> Iterator[tuple[tuple[str, str], float, float]]:
        """Return cells with the numbers of two ablation sets; `of`, `models`: how their names begin."""
        ours, theirs = self._figures(plan), self._figures(other)
        for cell, value in ours.items():
            if cell in theirs and cell[0].startswith(of) and cell[1].startswith(tuple(models)):
                yield cell, value, theirs[cell]

    def _drops(self, plan: str) -> dict[tuple[str, str], float]:
        return {cell: before - after for cell, before, after in self._pairs("original", plan)}

    def _printed_cells(self) -> Iterator[tuple[str, str, float]]:
        """Return row, column, and number of each printed cell for which there is a number."""
        for row, column, _ in self._printed.cells():
            if (self.key, row, column) in self.values:
                yield row, column, self.values[self.key, row, column]

    def _place(self, cell: tuple[str, str]) -> str:
        dataset, model = cell
        in_rows = "/" in next(iter(self._printed.rows))
        label = f"{dataset}/{model}" if in_rows else f"{model} {dataset}".rstrip()
        return f"{self._printed.number}, {label}"

    def below(
        self,
        smaller: str,
        larger: str,
        of: str = "",
        models: Sequence[str] = ("",),
        by: float | None = None,
        percent: float | None = None,
    ) -> Cells:
        """Check that one ablation set's figure is below another's.

        Args:
            smaller: the ablation set with the smaller figure.
            larger: the other one.
            of: start of the names of the data sets.
            models: starts of the models' names.
            by: the least difference.
            percent: the least difference in percent of the larger figure.
        """
        for cell, low, high in self._pairs(smaller, larger, of, models):
            good = low < high if by is None else round(high - low, 9) >= by
            if percent is not None:
                good = high - low > percent / 100 * high
            yield f"{self._place(cell)} ({larger} {high:g}, {smaller} {low:g})", good

    def within(self, column: str, above: float = -inf, limit: float = inf) -> Cells:
        """Check that the figures of a column lie within limits.

        Args:
            column: its name.
            above: they exceed this one.
            limit: they don't exceed this one.
        """
        for cell, value in self._figures(column).items():
            yield f"{self._place(cell)} {column} {value:g}", above < value <= limit

    def equal(self, other: str) -> Cells:
        """Check that two tables have the same numbers."""
        for row, column, ours in self._printed_cells():
            if (theirs := self.values.get((other, row, column))) is not None:
                yield f"{self._place(('', row))} {column} ({ours:g} and {theirs:g})", ours == theirs

    def counted(self) -> Cells:
        """Check that shares are those of a whole number of the model's heads, to the last digit."""
        for row, column, share in self._printed_cells():
            heads = len(paper.model(row).heads)
            count = round(share * heads)
            description = f"{row} {column} {share:g} ({count} of {heads}: {count / heads:.4f})"
            yield description, abs(share - count / heads) <= 0.0005 + 1e-9

    def name_endings(self, column: str, endings: Sequence[str]) -> Cells:
        """Check the ends of the models' names.

        Args:
            column: with the models.
            endings: of which each name has one.
        """
        for _, model in self._figures(column):
            yield model, model.endswith(tuple(endings))

    def covered(self) -> Cells:
        """Check that the table has every model of which there are numbers."""
        there = {row for _, row, _ in self.values}
        for name in (model.paper_name for model in paper.models() if model.paper_name in there):
            yield name, any(key == self.key and row == name for key, row, _ in self.values)

    def small_change(self, plan: str, gain: float = SMALL, models: Sequence[str] = ("",)) -> Cells:
        """Check that an ablation set's figure is at most SMALL below the original.

        Args:
            plan: the ablation set.
            gain: the most that it may lie above the original.
            models: starts of the models' names.
        """
        for cell, before, after in self._pairs("original", plan, models=models):
            yield f"{self._place(cell)} {plan} ({after - before:+.2f})", -gain <= before - after <= SMALL

    def smaller_change(self, plan: str, other: str) -> Cells:
        """Check that one ablation set's figure is nearer to the original than another's.

        Args:
            plan: the nearer one.
            other: the other one.
        """
        theirs = self._drops(other)
        for cell, drop in self._drops(plan).items():
            if cell in theirs:
                place = f"{self._place(cell)} ({plan} {-drop:+.1f}, {other} {-theirs[cell]:+.1f})"
                yield place, abs(drop) < abs(theirs[cell])

    def _falls(self, plan: str) -> dict[tuple[str, str], float]:
        """Return an ablation set's losses, in percent of the values before, if these are above 0."""
        before = self._figures("original")
        return {cell: 100 * drop / before[cell] for cell, drop in self._drops(plan).items() if before[cell]}

    def larger_fall(self, other: str, plan: str) -> Cells:
        """Check that a fall, in percent of an original above 0, is larger than in another table.

        Args:
            other: the other table.
            plan: the ablation set.
        """
        theirs = _Table(self.values, other)._falls(plan)
        for cell, fall in self._falls(plan).items():
            if cell in theirs:
                place = f"{cell[1]} {cell[0]} ({fall:.0f}% against {theirs[cell]:.0f}%)"
                yield place, fall > theirs[cell]

    def _excess(self, larger: str, smaller: str, of: str = "") -> Iterator[tuple[str, dict[str, float]]]:
        """Yield each set and model -> a column's figure, or its excess over the `smaller` one's."""
        cells = [(cell, value, 0.0) for cell, value in self._figures(larger).items()]
        by_set: dict[str, dict[str, float]] = {}
        for (dataset, model), high, low in self._pairs(larger, smaller) if smaller else cells:
            if dataset.startswith(of):
                by_set.setdefault(dataset, {})[model] = round(high - low, 9)
        for dataset, excess in by_set.items():
            yield ", ".join(filter(None, (self._printed.number, dataset))), excess

    def less_in_larger(
        self, larger: str, smaller: str = "", pairs: Sequence[Sequence[str]] = LARGER
    ) -> Cells:
        """Check that a column's figure, or its excess, is less in the first model of each pair.

        Args:
            larger: the column.
            smaller: the column that is subtracted.
            pairs: of starts of models' names, the larger model first.
        """
        for set_name, excess in self._excess(larger, smaller):
            for model, other in pairs:
                if model in excess and other in excess:
                    description = (
                        f"{set_name}, {model} against {other} ({excess[model]:g}, {excess[other]:g})"
                    )
                    yield description, excess[model] < excess[other]

    def largest(self, larger: str, models: Sequence[str], smaller: str = "", of: str = "") -> Cells:
        """Check that, set by set, a column's figure (or its excess) is largest in some models.

        Args:
            larger: the column.
            models: starts of their names.
            smaller: the column that is subtracted.
            of: start of the names of the data sets.
        """
        for set_name, excess in self._excess(larger, smaller, of):
            best = max(excess, key=lambda model: excess[model])
            if len(excess) > 1:
                yield f"{set_name}: {best} ({excess[best]:g})", best.startswith(tuple(models))

    def _series(self) -> dict[tuple[str, str], list[float]]:
        """Return each model's pruned numbers of a set, from first column to last, if all are there."""
        by_row: dict[tuple[str, str], list[float]] = {}
        for row, column, _ in self._printed.cells():
            if not column.endswith("original"):
                cell = column.rpartition("/")[0], row
                by_row.setdefault(cell, []).append(self.values.get((self.key, row, column), nan))
        return {cell: series for cell, series in by_row.items() if not any(map(isnan, series))}

    def close(self, points: float) -> Cells:
        """Check that the numbers of a row lie within this many points."""
        for cell, series in self._series().items():
            spread = max(series) - min(series)
            yield f"{self._place(cell)} (range {spread:.2f})", spread <= points

    def rising(self, models: Sequence[str] = ("",), never: bool = False) -> Cells:
        """Check whether the figures of a row fall nowhere.

        Args:
            models: starts of the models' names.
            never: check that they fall somewhere.
        """
        for cell, series in self._series().items():
            if cell[1].startswith(tuple(models)):
                series_text = ", ".join(f"{value:g}" for value in series)
                yield f"{self._place(cell)} ({series_text})", (series == sorted(series)) != never

    def same_order(self) -> Cells:
        """Check that two models are in the same order in every column."""
        for (first, ours), (second, theirs) in combinations(self._series().items(), 2):
            if first[0] == second[0]:
                same = {a < b for a, b in zip(ours, theirs, strict=True)}
                yield f"{self._printed.number}, {first[0]}, {first[1]} against {second[1]}", len(same) == 1
