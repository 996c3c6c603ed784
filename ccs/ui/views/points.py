"""Measured plans as points: what each set of heads costs in accuracy, and what it does to bias."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ccs.errors import InputError
from ccs.measures.stats import Effect
from ccs.paper import figures as paper
from ccs.plans import PlanName
from ccs.results import queries
from ccs.ui.shared import App

QUALITY_METRICS = {"top1": "accuracy", "R@1": "R@1"}
PUBLISHED_SET, PUBLISHED_FACES = "cifar100", "fairface"
PUBLISHED = " (published)"  # after a model's name
NONE = float("nan")


@dataclass(frozen=True, eq=False)
class Choice:
    """One measured quantity, an axis of the plot. key: the columns that choose its rows; links hold it."""

    key: str
    words: str
    rows: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False)

    @property
    def columns(self) -> list[str]:
        """Dataset, subset or direction, metric; or dataset, attribute, target, mode."""
        return self.key.split("|")


@dataclass(frozen=True)
class Measured:
    """One plan of one model on both axes: differences from nothing off (intervals NaN if none)."""

    model: str
    plan: PlanName
    seed: int | None
    heads: str
    n_heads: int
    x: Effect
    y: Effect

    @property
    def words(self) -> str:
        """The model and the plan in words."""
        return f"{self.model}: {self.plan.words(self.seed)}"


def _choices(tables: Sequence[tuple[pd.DataFrame, list[str]]], words: Callable[..., str]) -> list[Choice]:
    """The quantities that tables hold, in their order: each table with the columns that name a quantity."""
    keyed = []
    for rows, columns in tables:
        names = rows[columns].fillna("").itertuples(index=False, name=None)
        if len(rows):
            keyed.append(queries.few_sets(rows.assign(key=["|".join(row) for row in names])))
    if not keyed:
        return []
    groups = pd.concat(keyed, ignore_index=True).groupby("key", sort=False)
    return [Choice(str(key), words(*str(key).split("|")), rows) for key, rows in groups]


def _qualities(app: App) -> list[Choice]:
    """Accuracy and retrieval of all models, the quantity that the high heads matter most for first."""
    tables = []
    for results in app.collection.models.values():
        tables.append((queries.top1(results, subset=None), ["dataset", "subset", "metric"]))
        tables.append((queries.recall(results, ("R@1",)), ["dataset", "direction", "metric"]))

    def words(dataset: str, extra: str, metric: str) -> str:
        return f"{QUALITY_METRICS[metric]} on {dataset}" + (f", {extra}" if extra else "")

    def change(one: Choice) -> float:
        high = queries.of_plan(one.rows, "high")["difference"]
        return float(high.mean()) if len(high) else 0.0

    return sorted(_choices(tables, words), key=change)


def _fairnesses(app: App) -> list[Choice]:
    """Mean MaxSkew over occupations of all models, the correct measures before the published ones."""
    columns = ["dataset", "attribute", "target", "mode"]
    tables = [
        (queries.max_skew(results, mode=None, target=None), columns)
        for results in app.collection.models.values()
    ]

    def words(dataset: str, attribute: str, target: str, mode: str) -> str:
        found = f"{attribute} on {dataset}" + ("" if target == "pool" else f", {target} target")
        return found + ("" if mode == "correct" else ", as the study’s code computed it")

    return sorted(_choices(tables, words), key=lambda one: one.key.endswith("as-published"))


@dataclass(frozen=True)
class Axes:
    """All quantities that were measured, across and up."""

    qualities: Sequence[Choice]
    fairnesses: Sequence[Choice]

    @classmethod
    def of(cls, app: App) -> Axes:
        """Those of the tables of all models, made once."""
        return app.derived.get("axes", lambda: cls(_qualities(app), _fairnesses(app)))

    def chosen(self, quality: str, fairness: str, attribute: str = "") -> tuple[Choice, Choice]:
        """The quantities of these keys; for a key that is none the first, by this attribute if there is one.

        InputError without any.
        """
        if not self.qualities or not self.fairnesses:
            raise InputError("There are no tables pruning and bias yet.")
        x = next((c for c in self.qualities if c.key == quality), self.qualities[0])
        first = next((c for c in self.fairnesses if c.columns[1] == attribute), self.fairnesses[0])
        y = next((c for c in self.fairnesses if c.key == fairness), first)
        return x, y


def measured(x: Choice, y: Choice) -> list[Measured]:
    """Plans measured on both axes, those with nothing off left out."""
    up = {_plan(row): row for row in y.rows.to_dict("records")}
    return [
        Measured(
            row["model"],
            PlanName.parse(row["plan"]),
            _plan(row)[2],
            row["heads"],
            int(row["n_heads"]),
            queries.difference(row),
            queries.difference(up[_plan(row)]),
        )
        for row in x.rows.to_dict("records")
        if row["n_heads"] and _plan(row) in up
    ]


def _plan(row: Mapping[Hashable, Any]) -> tuple[str, str, int | None, str]:
    """The cells that name a plan of a model; a mean over seeds has no seed."""
    return row["model"], row["plan"], None if pd.isna(row["seed"]) else int(row["seed"]), row["heads"]


def published(attribute: str) -> list[Measured]:
    """The study's own high and low sets: CIFAR-100 accuracy against FairFace MaxSkew per occupation.

    Only gender: the printed figures by race come from a fault of the code (docs/reproduction.md).
    """
    if attribute != "gender":
        return []
    found = []
    accuracy, skew, n = paper.table("table5"), paper.table("table8"), len(paper.occupations())
    for name in skew.rows:
        for plan in ("high", "low"):
            cells = [accuracy.value(name, f"{PUBLISHED_SET}/{part}") for part in (plan, "original")]
            bias = [skew.value(name, f"gender/{part}") for part in (plan, "original")]
            if None in cells or None in bias:
                continue
            x, y = (float(pair[0] or 0) - float(pair[1] or 0) for pair in (cells, bias))
            both = (Effect(change, NONE, NONE, NONE) for change in (x / 100, y / n))
            found.append(Measured(f"{name}{PUBLISHED}", PlanName(plan), None, "", 0, *both))
    return found
