"""What the published figures say of one another: every check is computed from the package data."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ccs.paper import figures
from ccs.paper.comparison import repeated_labels


@dataclass(frozen=True)
class Check:
    """A statement about the printed figures, how many of them bear it out, and those that do not."""

    statement: str
    holds: int
    of: int
    exceptions: tuple[str, ...] = ()


def checks() -> tuple[Check, ...]:
    """All of them, in the order of the tables."""
    return (
        _counts(),
        _shares(),
        _ratios(),
        _swapped(),
        _multiples(),
        _unpruned(),
    )


def _check(statement: str, outcomes: dict[str, bool]) -> Check:
    failed = tuple(name for name, good in outcomes.items() if not good)
    return Check(statement, sum(outcomes.values()), len(outcomes), failed)


def _counts() -> Check:
    table = figures.table("table2")
    outcomes = {
        f"{model.paper_name} {level}": len(figures.head_sets(model.name)[level])
        == table.value(model.paper_name, level)
        for model in figures.models()
        for level in figures.LEVELS
    }
    return _check("The counts of table 2 are the numbers of heads in tables 12 to 14.", outcomes)


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
    return _check("The shares of table 10 follow from tables 12 to 14 (to their last digit).", outcomes)


def _ratios() -> Check:
    table = figures.table("table11")
    outcomes: dict[str, bool] = {}
    for model in figures.models():
        labels = list(figures.head_labels(model.name)["high"].values())
        printed = table.value(model.paper_name, "CCR")
        ratio = repeated_labels(labels) / len(labels)
        outcomes[f"{model.paper_name} ({ratio:.3f} from the labels)"] = (
            printed is not None and abs(printed - ratio) < 0.0006
        )
    return _check("The ratios of table 11 follow from the labels of table 12.", outcomes)


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
    return _check("Table 7's column headed high repeats the column low of tables 5 and 6.", outcomes)


def _multiples() -> Check:
    table = figures.table("table9")
    outcomes: dict[str, bool] = {}
    for row, values in table.rows.items():
        for column, value in zip(table.columns, values, strict=True):
            if column.startswith("race") and value is not None:
                steps = round(value / math.log(1.5))
                outcomes[f"{row} {column}"] = abs(value - steps * math.log(1.5)) < 0.051
    return _check("Table 9's race values are whole multiples of ln 1.5.", outcomes)


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
    return _check("Unpruned accuracies are within one point of open_clip's own figures.", outcomes)
