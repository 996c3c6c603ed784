"""What the published figures say of one another: every check is computed from the package data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ccs.paper import figures
from ccs.texts import score


@dataclass(frozen=True)
class Check:
    """A statement about figures, how many cells bear it out, and those that go against it.

    `source`: where the study says so; empty for what the figures should say of one another.
    """

    statement: str
    holds: int
    of: int
    exceptions: tuple[str, ...] = ()
    source: str = ""

    @classmethod
    def of_outcomes(cls, statement: str, outcomes: Mapping[str, bool], source: str = "") -> Check:
        """The check of cells by name."""
        failed = tuple(name for name, good in outcomes.items() if not good)
        return cls(statement, sum(outcomes.values()), len(outcomes), failed, source)


def checks() -> tuple[Check, ...]:
    """All of them, in the order of the tables."""
    return (
        _counts(),
        _shares(),
        _ratios(),
        _repeated(),
        _swapped(),
        _raters(),
        _examples(),
        _text(),
        _poster(),
        _multiples(),
        _unpruned(),
    )


def _counts() -> Check:
    table = figures.table("table2")
    outcomes = {
        f"{model.paper_name} {level}": len(figures.head_sets(model.name)[level])
        == table.value(model.paper_name, level)
        for model in figures.models()
        for level in figures.LEVELS
    }
    return Check.of_outcomes("The counts of table 2 are the numbers of heads in tables 12 to 14.", outcomes)


def _shares() -> Check:
    table = figures.table("table10")
    outcomes: dict[str, bool] = {}
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
            outcomes[f"{model.paper_name} {column}"] = good
    return Check.of_outcomes(
        "The shares of table 10 follow from tables 12 to 14 (to their last digit).", outcomes
    )


def _ratios() -> Check:
    table = figures.table("table11")
    outcomes: dict[str, bool] = {}
    for model in figures.models():
        labels = list(figures.head_labels(model.name)["high"].values())
        printed = table.value(model.paper_name, "CCR")
        ratio = score.ccr(labels) or 0.0
        outcomes[f"{model.paper_name} ({ratio:.3f} from the labels)"] = (
            printed is not None and abs(printed - ratio) < 0.0006
        )
    return Check.of_outcomes("The ratios of table 11 follow from the labels of table 12.", outcomes)


def _swapped() -> Check:
    equal = figures.table("table7")
    outcomes: dict[str, bool] = {}
    for model in figures.models():
        for dataset in ("cifar100", "food101", "country211"):
            other = figures.table("table6" if dataset == "country211" else "table5")
            same = equal.value(model.paper_name, f"{dataset}/high") == other.value(
                model.paper_name, f"{dataset}/low"
            )
            outcomes[f"{model.paper_name} {dataset}"] = same
    return Check.of_outcomes(
        "Table 7's column headed high repeats the column low of tables 5 and 6.", outcomes
    )


def _repeated() -> Check:
    """Figures that stand in two places: tables 3 and 5, figures 2 to 5 and the tables."""
    outcomes: dict[str, bool] = {}

    def same(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
        ours, theirs = (figures.table(key).value(row, column) for key, row, column in (one, other))
        outcomes[f"{one[0]} {one[1]} {one[2]} ({ours:g}) and {other[0]} ({theirs:g})"] = ours == theirs

    for model in figures.models():
        for dataset in ("cifar10", "cifar100"):
            for column, plan in (("original", "original"), ("K=5", "high")):
                row = model.paper_name
                same(("table3", row, f"{dataset}/{column}"), ("table5", row, f"{dataset}/{plan}"))
    for row in figures.table("figure2").rows:
        dataset, name = row.split("/")
        same(("figure2", row, "high"), ("table5", name, f"{dataset}/high"))
    for row in figures.table("figure3").rows:
        same(("figure3", row, "original"), ("table6", row, "country211/original"))
    return Check.of_outcomes("Figures that are printed twice are equal.", outcomes)


def _raters() -> Check:
    outcomes: dict[str, bool] = {}
    for key in ("table4", "v1-table2"):
        table = figures.table(key)
        for row in table.rows:
            kappa, rho, tau = (table.value(row, column) or 0.0 for column in table.columns)
            outcomes[f"{table.number}, {row}: rho {rho:g}, tau {tau:g}"] = rho == tau
            outcomes[f"{table.number}, {row}: kappa {kappa:g}, rho {rho:g}"] = kappa <= rho
    return Check.of_outcomes(
        "Two yes/no raters: Spearman's rho is Kendall's tau-b, and kappa is at most both.", outcomes
    )


def _examples() -> Check:
    listed = {
        (level, head, label.removesuffix("s"))
        for model in figures.models()
        for level, labels in figures.head_labels(model.name).items()
        for head, label in labels.items()
    }
    outcomes = {
        f"{one.head} ({one.label}, {one.level})": (one.level, one.head, one.label.removesuffix("s")) in listed
        for one in figures.examples()
    }
    return Check.of_outcomes("Table 1's heads stand in tables 12 to 14 with that label and level.", outcomes)


def _text() -> Check:
    """Section 4.4 beside figures 3 and 4."""
    table = figures.table("section4.4")
    outcomes: dict[str, bool] = {}
    for row, values in table.rows.items():
        dataset, model = row.split("/")
        figure = figures.table("figure3" if dataset == "country211" else "figure4")
        for column, value in zip(table.columns, values, strict=True):
            if value is not None:
                shown = figure.value(model, column) if column in figure.columns else None
                told = "no such bar" if shown is None else f"{shown:g}"
                outcomes[f"{row} {column} ({value:g}, {figure.number}: {told})"] = value == shown
    return Check.of_outcomes("The figures in section 4.4's text are those of figures 3 and 4.", outcomes)


def _poster() -> Check:
    poster, table = figures.table("poster"), figures.table("table9")
    exchanged = {"race": "gender", "gender": "race"}
    outcomes: dict[str, bool] = {}
    for row, values in poster.rows.items():
        for column, value in zip(poster.columns, values, strict=True):
            attribute, plan = column.split("/")
            other = table.value(row, f"{exchanged[attribute]}/{plan}")
            assert value is not None
            assert other is not None
            name = f"{row} {column} ({value:g}, table 9's {exchanged[attribute]} {other:g})"
            outcomes[name] = abs(value - other) < 0.051
    return Check.of_outcomes("The poster's bias table is table 9 with race and gender exchanged.", outcomes)


def _multiples() -> Check:
    table = figures.table("table9")
    outcomes: dict[str, bool] = {}
    for row, values in table.rows.items():
        for column, value in zip(table.columns, values, strict=True):
            if column.startswith("race") and value is not None:
                steps = round(value / math.log(1.5))
                outcomes[f"{row} {column}"] = abs(value - steps * math.log(1.5)) < 0.051
    return Check.of_outcomes("Table 9's race values are whole multiples of ln 1.5.", outcomes)


def _unpruned() -> Check:
    anchor = figures.table("open_clip")
    outcomes: dict[str, bool] = {}
    for model in figures.models():
        for dataset in anchor.columns:
            table = figures.table("table5" if dataset in ("cifar10", "cifar100", "food101") else "table6")
            printed = table.value(model.paper_name, f"{dataset}/original")
            known = anchor.value(model.paper_name, dataset)
            good = printed is not None and known is not None and abs(printed - known) <= 1
            outcomes[f"{model.paper_name} {dataset}"] = good
    return Check.of_outcomes("Unpruned accuracies are within one point of open_clip's own figures.", outcomes)
