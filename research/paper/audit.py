"""Check the paper's claims (audit.toml) against its printed numbers or measured ones.

audit.toml paraphrases the claims of the paper's two versions, its poster, and its Hub page, and names their
sources. A cell is a number, or a pair of numbers, that supports or contradicts a claim. Cells without numbers
are left out, so the same checks run on partial measurements. A claim that no printed number tests has no
cells.
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

Numbers = Mapping[tuple[str, str, str], float]
"""(table, row, column) -> number."""
Cells = Iterator[tuple[str, bool]]

SMALL = 1.0
"""Maximum loss, in points, that counts as "minimal" or "minor". The paper gives no limit."""
LARGER = (
    ("ViT-L-14-OpenAI", "ViT-B-32-OpenAI"),
    ("ViT-L-14-OpenAI", "ViT-B-16-OpenAI"),
    ("ViT-L-14-LAION", "ViT-B-16-LAION"),
)
"""(larger, smaller) models trained on the same data."""


@dataclass(frozen=True)
class Check:
    """A claim and its cells.

    Attributes:
        statement: The claim.
        source: The place of the claim in the paper.
        note: Context, or what the cells can't test.
        holds: Number of cells that support the claim.
        of: Number of cells.
        exceptions: The cells that contradict the claim.
    """

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
def printed() -> Numbers:
    """Return the paper's printed numbers by table, row, and column."""
    return {
        (key, row, column): value
        for key, table in paper.tables().items()
        for row, column, value in table.cells()
    }


def measured(
    results: Mapping[str, Results], agreement: pd.DataFrame | None = None, rescored: bool = False
) -> Numbers:
    """Read the measured numbers of the paper's cells. Bias is measured by the correct metric.

    Args:
        results: Model -> its results.
        agreement: The table that `clip-ccs annotate import` wrote. Of the single judges, only OpenAI's is
            compared with table 2 of the first version.
        rescored: Use the heads that these results scored instead of those that the paper lists.
    """
    values = {}
    for key in (*TABLES, *REPEATED):
        for claim in claims(key):
            compared = compare_claim(claim, results.get(claim.model), rescored)
            value = compared.correct if claim.measure == "bias" else compared.measured
            if value is not None:
                # An exact count that agrees takes the printed digits, so that rounding decides no check.
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


def audit(values: Numbers | None = None) -> tuple[Check, ...]:
    """Check every claim against numbers (default: the printed ones), in the paper's order."""
    known, checks = printed() if values is None else values, []
    for sentence in _sentences():
        cells = dict[str, bool]()
        for arguments in sentence.get("cells", ()):
            cells |= _cells_of(known, sentence["check"], **arguments)
        against = tuple(name for name, supports in cells.items() if not supports)
        sentence_fields = sentence["text"], sentence["source"], sentence.get("note", "")
        checks.append(Check(*sentence_fields, len(cells) - len(against), len(cells), against))
    return tuple(checks)


# Checks of a claim on the numbers of a table ----------------------------------------------------------------


def _cells_of(values: Numbers, check: str, table: str, **arguments: Any) -> Cells:
    """Return the cells that a method of `_Table`, named by `check`, yields for a claim."""
    cells: Cells = getattr(_Table(values, table), check)(**arguments)
    return cells


@dataclass(frozen=True)
class _Table:
    """The numbers of a printed table.

    A `check` in audit.toml names a public method. It is called with the arguments of each entry of `cells`.
    It yields a description of each cell and whether the cell supports the claim.
    """

    values: Numbers
    key: str

    @property
    def _printed(self) -> paper.PaperTable:
        return paper.table(self.key)

    def _numbers(self, column_name: str) -> dict[tuple[str, str], float]:
        """Return numbers by (dataset, attribute or "", model); figure 2's unpruned ones are in table 5."""
        sets = dict.fromkeys(column[: column.find("/") + 1] for column in self._printed.columns)
        cells = {}
        for row in self._printed.rows:
            for name in sets:
                dataset, _, model = f"{name}{row}".rpartition("/")
                place = self.key, row, f"{name}{column_name}"
                if self.key == "figure2" and column_name == "original":
                    place = "table5", model, f"{dataset}/original"
                if place in self.values:
                    cells[dataset, model] = self.values[place]
        return cells

    def _pairs(
        self, ablation_set: str, other: str, of: str = "", models: Sequence[str] = ("",)
    ) -> Iterator[tuple[tuple[str, str], float, float]]:
        """Return the cells of two ablation sets; `of`, `models`: starts of names of datasets and models."""
        ours, theirs = self._numbers(ablation_set), self._numbers(other)
        for cell, value in ours.items():
            if cell in theirs and cell[0].startswith(of) and cell[1].startswith(tuple(models)):
                yield cell, value, theirs[cell]

    def _drops(self, ablation_set: str) -> dict[tuple[str, str], float]:
        return {cell: before - after for cell, before, after in self._pairs("original", ablation_set)}

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
        """Check that one ablation set's number is below another's.

        Args:
            smaller: The ablation set with the smaller number.
            larger: The other ablation set.
            of: Start of the datasets' names.
            models: Starts of the models' names.
            by: Minimum difference.
            percent: Minimum difference in percent of the larger number.
        """
        for cell, low, high in self._pairs(smaller, larger, of, models):
            good = low < high if by is None else round(high - low, 9) >= by
            if percent is not None:
                good = high - low > percent / 100 * high
            yield f"{self._place(cell)} ({larger} {high:g}, {smaller} {low:g})", good

    def within(self, column: str, above: float = -inf, limit: float = inf) -> Cells:
        """Check that the numbers of a column lie within limits.

        Args:
            column: The column.
            above: Lower limit, excluded.
            limit: Upper limit, included.
        """
        for cell, value in self._numbers(column).items():
            yield f"{self._place(cell)} {column} {value:g}", above < value <= limit

    def equal(self, other: str) -> Cells:
        """Check that two tables have the same numbers."""
        for row, column, ours in self._printed_cells():
            if (theirs := self.values.get((other, row, column))) is not None:
                yield f"{self._place(('', row))} {column} ({ours:g} and {theirs:g})", ours == theirs

    def counted(self) -> Cells:
        """Check that each share is a whole number of heads over the model's heads, to the last digit."""
        for row, column, share in self._printed_cells():
            heads = len(paper.model(row).heads)
            count = round(share * heads)
            description = f"{row} {column} {share:g} ({count} of {heads}: {count / heads:.4f})"
            yield description, abs(share - count / heads) <= 0.0005 + 1e-9

    def name_endings(self, column: str, endings: Sequence[str]) -> Cells:
        """Check that each model's name has one of some endings.

        Args:
            column: A column with numbers of the models.
            endings: The endings.
        """
        for _, model in self._numbers(column):
            yield model, model.endswith(tuple(endings))

    def covered(self) -> Cells:
        """Check that the table has every model that has numbers in any table."""
        measured_models = {row for _, row, _ in self.values}
        for name in (model.paper_name for model in paper.models() if model.paper_name in measured_models):
            yield name, any(key == self.key and row == name for key, row, _ in self.values)

    def small_change(self, ablation_set: str, gain: float = SMALL, models: Sequence[str] = ("",)) -> Cells:
        """Check that an ablation set's number is at most SMALL below the original.

        Args:
            ablation_set: The ablation set.
            gain: Maximum by which it may exceed the original.
            models: Starts of the models' names.
        """
        for cell, before, after in self._pairs("original", ablation_set, models=models):
            description = f"{self._place(cell)} {ablation_set} ({after - before:+.2f})"
            yield description, -gain <= before - after <= SMALL

    def smaller_change(self, ablation_set: str, other: str) -> Cells:
        """Check that one ablation set's number is closer to the original than another's.

        Args:
            ablation_set: The ablation set that should be closer.
            other: The other ablation set.
        """
        theirs = self._drops(other)
        for cell, drop in self._drops(ablation_set).items():
            if cell in theirs:
                place = f"{self._place(cell)} ({ablation_set} {-drop:+.1f}, {other} {-theirs[cell]:+.1f})"
                yield place, abs(drop) < abs(theirs[cell])

    def _falls(self, ablation_set: str) -> dict[tuple[str, str], float]:
        """Return an ablation set's losses in percent of the original numbers, for those above 0."""
        before, drops = self._numbers("original"), self._drops(ablation_set).items()
        return {cell: 100 * drop / before[cell] for cell, drop in drops if before[cell]}

    def larger_fall(self, other: str, ablation_set: str) -> Cells:
        """Check that the loss in percent of the original is larger than in another table.

        Args:
            other: The other table.
            ablation_set: The ablation set.
        """
        theirs = _Table(self.values, other)._falls(ablation_set)
        for cell, fall in self._falls(ablation_set).items():
            if cell in theirs:
                place = f"{cell[1]} {cell[0]} ({fall:.0f}% against {theirs[cell]:.0f}%)"
                yield place, fall > theirs[cell]

    def _excess(self, larger: str, smaller: str, of: str = "") -> Iterator[tuple[str, dict[str, float]]]:
        """Yield each dataset, and model -> the number in `larger` minus that in `smaller` (if given)."""
        cells = [(cell, value, 0.0) for cell, value in self._numbers(larger).items()]
        by_set: dict[str, dict[str, float]] = {}
        for (dataset, model), high, low in self._pairs(larger, smaller) if smaller else cells:
            if dataset.startswith(of):
                by_set.setdefault(dataset, {})[model] = round(high - low, 9)
        for dataset, excess in by_set.items():
            yield ", ".join(filter(None, (self._printed.number, dataset))), excess

    def less_in_larger(
        self, larger: str, smaller: str = "", pairs: Sequence[Sequence[str]] = LARGER
    ) -> Cells:
        """Check that a column's number, or its excess, is smaller in the first model of each pair.

        Args:
            larger: The column.
            smaller: The column to subtract.
            pairs: Pairs of models, the larger model first.
        """
        for set_name, excess in self._excess(larger, smaller):
            for model, other in pairs:
                if model in excess and other in excess:
                    description = (
                        f"{set_name}, {model} against {other} ({excess[model]:g}, {excess[other]:g})"
                    )
                    yield description, excess[model] < excess[other]

    def largest(self, larger: str, models: Sequence[str], smaller: str = "", of: str = "") -> Cells:
        """Check that on each dataset a column's number, or its excess, is largest in one of some models.

        Args:
            larger: The column.
            models: Starts of the models' names.
            smaller: The column to subtract.
            of: Start of the datasets' names.
        """
        for set_name, excess in self._excess(larger, smaller, of):
            best = max(excess, key=lambda model: excess[model])
            if len(excess) > 1:
                yield f"{set_name}: {best} ({excess[best]:g})", best.startswith(tuple(models))

    def _series(self) -> dict[tuple[str, str], list[float]]:
        """Return each model's numbers on a dataset in column order, without the original, if complete."""
        by_row: dict[tuple[str, str], list[float]] = {}
        for row, column, _ in self._printed.cells():
            if not column.endswith("original"):
                cell = column.rpartition("/")[0], row
                by_row.setdefault(cell, []).append(self.values.get((self.key, row, column), nan))
        return {cell: series for cell, series in by_row.items() if not any(map(isnan, series))}

    def close(self, points: float) -> Cells:
        """Check that the range of a row's numbers is at most this many points."""
        for cell, series in self._series().items():
            spread = max(series) - min(series)
            yield f"{self._place(cell)} (range {spread:.2f})", spread <= points

    def rising(self, models: Sequence[str] = ("",), never: bool = False) -> Cells:
        """Check that the numbers of a row never fall.

        Args:
            models: Starts of the models' names.
            never: Check instead that they fall at least once.
        """
        for cell, series in self._series().items():
            if cell[1].startswith(tuple(models)):
                series_text = ", ".join(f"{value:g}" for value in series)
                yield f"{self._place(cell)} ({series_text})", (series == sorted(series)) != never

    def same_order(self) -> Cells:
        """Check for each pair of models that their order is the same in every column."""
        for (first, ours), (second, theirs) in combinations(self._series().items(), 2):
            if first[0] == second[0]:
                same = {a < b for a, b in zip(ours, theirs, strict=True)}
                yield f"{self._printed.number}, {first[0]}, {first[1]} against {second[1]}", len(same) == 1
