"""Consistency checks of the published figures with one another, computed from the package data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ccs.paper import figures
from ccs.texts import score

Outcomes = Iterator[tuple[str, bool]]  # (the cells, whether the statement is true of them)


@dataclass(frozen=True)
class Check:
    """A statement about figures, the number of cells that support it, and those that contradict it.

    `source`: where the study makes the statement; empty if consistency alone demands it. `note`: what else is
    to be known of it.
    """

    statement: str
    holds: int
    of: int
    exceptions: tuple[str, ...] = ()
    source: str = ""
    note: str = ""

    @classmethod
    def of_outcomes(
        cls, statement: str, outcomes: Mapping[str, bool], source: str = "", note: str = ""
    ) -> Check:
        """The check from the outcomes of cells by name."""
        failed = tuple(name for name, good in outcomes.items() if not good)
        return cls(statement, sum(outcomes.values()), len(outcomes), failed, source, note)


def checks() -> tuple[Check, ...]:
    """All checks, in the order of the tables."""
    return tuple(Check.of_outcomes(statement, dict(outcomes())) for statement, outcomes in CHECKS.items())


def _counts() -> Outcomes:
    table = figures.table("table2")
    for model in figures.models():
        for level, heads in figures.head_sets(model.name).items():
            yield f"{model.paper_name} {level}", len(heads) == table.value(model.paper_name, level)


def _shares() -> Outcomes:
    table = figures.table("table10")
    for model in figures.models():
        heads, sets = len(model.heads), figures.head_sets(model.name)
        printed = dict(zip(table.columns, table.rows[model.paper_name], strict=True))
        low = (printed["CCS@0"] or 0) + (printed["CCS@1"] or 0)
        for column, got, level in (
            ("CCS@5", printed["CCS@5"], "high"),
            ("CCS@3", printed["CCS@3"], "moderate"),
            ("CCS@0 + CCS@1", low, "low"),
        ):
            good = got is not None and abs(got - len(sets[level]) / heads) < 0.0016
            yield f"{model.paper_name} {column}", good


def _ratios() -> Outcomes:
    table = figures.table("table11")
    for model in figures.models():
        labels = list(figures.head_labels(model.name)["high"].values())
        printed = table.value(model.paper_name, "CCR")
        ratio = score.ccr(labels) or 0.0
        good = printed is not None and abs(printed - ratio) < 0.0006
        yield f"{model.paper_name} ({ratio:.3f} from the labels)", good


def _swapped() -> Outcomes:
    equal = figures.table("table7")
    for model in figures.models():
        for dataset in ("cifar100", "food101", "country211"):
            other = figures.table("table6" if dataset == "country211" else "table5")
            same = equal.value(model.paper_name, f"{dataset}/high") == other.value(
                model.paper_name, f"{dataset}/low"
            )
            yield f"{model.paper_name} {dataset}", same


def _repeated() -> Outcomes:
    """Figures printed in two places: tables 3 and 5, figures 2 to 5 and the tables."""
    pairs = []
    for model in figures.models():
        row = model.paper_name
        for dataset in ("cifar10", "cifar100"):
            for column, plan in (("original", "original"), ("K=5", "high")):
                pairs.append((("table3", row, f"{dataset}/{column}"), ("table5", row, f"{dataset}/{plan}")))
    for row in figures.table("figure2").rows:
        dataset, name = row.split("/")
        pairs.append((("figure2", row, "high"), ("table5", name, f"{dataset}/high")))
    pairs += [
        (("figure3", row, "original"), ("table6", row, "country211/original"))
        for row in figures.table("figure3").rows
    ]
    for one, other in pairs:
        ours, theirs = (figures.table(key).value(row, column) for key, row, column in (one, other))
        yield f"{one[0]} {one[1]} {one[2]} ({ours:g}) and {other[0]} ({theirs:g})", ours == theirs


def _raters() -> Outcomes:
    for key in ("table4", "v1-table2"):
        table = figures.table(key)
        for row in table.rows:
            kappa, rho, tau = (table.value(row, column) or 0.0 for column in table.columns)
            yield f"{table.number}, {row}: rho {rho:g}, tau {tau:g}", rho == tau
            yield f"{table.number}, {row}: kappa {kappa:g}, rho {rho:g}", kappa <= rho


def _ordinal() -> Outcomes:
    for key in ("table4", "v1-table2"):
        table = figures.table(key)
        for row in table.rows:
            rho, tau = (table.value(row, column) or 0.0 for column in table.columns[1:])
            yield f"{table.number}, {row}: rho {rho:g}, tau {tau:g}", rho >= tau


def _examples() -> Outcomes:
    listed = {
        (level, head, label.removesuffix("s"))
        for model in figures.models()
        for level, labels in figures.head_labels(model.name).items()
        for head, label in labels.items()
    }
    for one in figures.examples():
        known = (one.level, one.head, one.label.removesuffix("s")) in listed
        yield f"{one.head} ({one.label}, {one.level})", known


def _text() -> Outcomes:
    """Section 4.4 beside figures 3 and 4."""
    for row, column, value in figures.table("section4.4").cells():
        dataset, model = row.split("/")
        figure = figures.table("figure3" if dataset == "country211" else "figure4")
        shown = figure.value(model, column) if column in figure.columns else None
        told = "no such bar" if shown is None else f"{shown:g}"
        yield f"{row} {column} ({value:g}, {figure.number}: {told})", value == shown


def _poster() -> Outcomes:
    printed = {(row, column): value for row, column, value in figures.table("table9").cells()}
    exchanged = {"race": "gender", "gender": "race"}
    for row, column, value in figures.table("poster").cells():
        attribute, plan = column.split("/")
        other = printed[row, f"{exchanged[attribute]}/{plan}"]
        name = f"{row} {column} ({value:g}, table 9's {exchanged[attribute]} {other:g})"
        yield name, abs(value - other) < 0.051


def _multiples() -> Outcomes:
    for row, column, value in figures.table("table9").cells():
        if column.startswith("race"):
            steps = round(value / math.log(1.5))
            yield f"{row} {column}", abs(value - steps * math.log(1.5)) < 0.051


def _unpruned() -> Outcomes:
    anchor = figures.table("open_clip")
    for model in figures.models():
        for dataset in anchor.columns:
            table = figures.table("table5" if dataset in ("cifar10", "cifar100", "food101") else "table6")
            printed = table.value(model.paper_name, f"{dataset}/original")
            known = anchor.value(model.paper_name, dataset)
            good = printed is not None and known is not None and abs(printed - known) <= 1
            yield f"{model.paper_name} {dataset}", good


CHECKS: Mapping[str, Callable[[], Outcomes]] = {
    "The counts of table 2 are the numbers of heads in tables 12 to 14.": _counts,
    "The shares of table 10 follow from tables 12 to 14 (to their last digit).": _shares,
    "The ratios of table 11 follow from the labels of table 12.": _ratios,
    "Figures that are printed twice are equal.": _repeated,
    "Table 7's column headed high repeats the column low of tables 5 and 6.": _swapped,
    "Two yes/no raters: Spearman's rho is Kendall's tau-b, and kappa is at most both.": _raters,
    "One yes/no rater against any ordinal score: Spearman's rho is at least Kendall's tau-b.": _ordinal,
    "Table 1's heads stand in tables 12 to 14 with that label and level.": _examples,
    "The figures in section 4.4's text are those of figures 3 and 4.": _text,
    "The poster's bias table is table 9 with race and gender exchanged.": _poster,
    "Table 9's race values are whole multiples of ln 1.5.": _multiples,
    "Unpruned accuracies are within one point of open_clip's own figures.": _unpruned,
}
