"""Measured plans as points: what each set of heads costs in accuracy, and what it does to bias."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ccs.errors import InputError
from ccs.measures.stats import Effect
from ccs.paper import figures as paper
from ccs.plans import PlanName
from ccs.results import queries
from ccs.ui.app import App

QUALITY_METRICS = {"top1": "accuracy", "R@1": "R@1"}
PUBLISHED_SET, PUBLISHED_FACES = "cifar100", "fairface"
PUBLISHED = " (published)"  # after a model's name
NONE = float("nan")


@dataclass(frozen=True)
class Choice:
    """One measured quantity, an axis of the plot. key: the columns that choose its rows; links hold it."""

    key: str
    words: str

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


def _quality_rows(app: App) -> pd.DataFrame:
    """Accuracy and retrieval of all models, each row with the `key` of its quantity."""
    frames = []
    for results in app.collection.models.values():
        accuracy, retrieval = queries.top1(results, subset=None), queries.recall(results, ("R@1",))
        frames += [_with_key(accuracy, ["dataset", "subset", "metric"])]
        frames += [_with_key(retrieval, ["dataset", "direction", "metric"])]
    return _joined(frames)


def _fairness_rows(app: App) -> pd.DataFrame:
    """Mean MaxSkew over occupations of all models, each row with the `key` of its quantity."""
    columns = ["dataset", "attribute", "target", "mode"]
    models = app.collection.models.values()
    return _joined(
        [_with_key(queries.max_skew(results, mode=None, target=None), columns) for results in models]
    )


def _with_key(rows: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    keys = ["|".join(row) for row in rows[columns].fillna("").itertuples(index=False, name=None)]
    return rows.assign(key=keys)


def _joined(frames: list[pd.DataFrame]) -> pd.DataFrame:
    full = [queries.few_sets(frame) for frame in frames if len(frame)]
    return pd.concat(full, ignore_index=True) if full else pd.DataFrame()


def _qualities(rows: pd.DataFrame) -> list[Choice]:
    """The quantities across, the one that the high heads matter most for first."""
    if not len(rows):
        return []
    change = queries.of_plan(rows, "high").groupby("key")["difference"].mean()
    found = []
    for key in sorted(rows["key"].unique(), key=lambda key: float(change.get(key, 0.0))):
        dataset, extra, metric = key.split("|")
        words = f"{QUALITY_METRICS[metric]} on {dataset}" + (f", {extra}" if extra else "")
        found.append(Choice(key, words))
    return found


def _fairnesses(rows: pd.DataFrame) -> list[Choice]:
    """The quantities up, in the tables' order, the correct measures before the published ones."""
    keys = list(rows["key"].unique()) if len(rows) else []
    found = []
    for key in sorted(keys, key=lambda key: key.endswith("as-published")):
        dataset, attribute, target, mode = key.split("|")
        words = f"{attribute} on {dataset}" + ("" if target == "pool" else f", {target} target")
        words += "" if mode == "correct" else ", as the study’s code computed it"
        found.append(Choice(key, words))
    return found


@dataclass(frozen=True)
class Axes:
    """All quantities that were measured, across and up, with their rows."""

    qualities: Sequence[Choice]
    fairnesses: Sequence[Choice]
    quality_rows: pd.DataFrame
    fairness_rows: pd.DataFrame

    @classmethod
    def of(cls, app: App) -> Axes:
        """Those of the tables of all models, made once."""
        return app.derived.get("axes", lambda: cls._made(_quality_rows(app), _fairness_rows(app)))

    @classmethod
    def _made(cls, quality: pd.DataFrame, fairness: pd.DataFrame) -> Axes:
        return cls(_qualities(quality), _fairnesses(fairness), quality, fairness)

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

    def measured(self, x: Choice, y: Choice) -> list[Measured]:
        """Plans measured on both axes, those with nothing off left out."""
        quality, fairness = self.quality_rows, self.fairness_rows
        right = fairness[fairness["key"] == y.key].to_dict("records")
        up = {_plan(row): row for row in right}
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
            for row in quality[quality["key"] == x.key].to_dict("records")
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
