"""Measured plans as points: what each set of heads costs in accuracy, and what it does to bias."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from ccs import paper
from ccs.measures.stats import Effect
from ccs.plans import PlanName
from ccs.results import queries
from ccs.ui.app import App

QUALITY_METRICS = {"top1": "accuracy", "R@1": "R@1"}
PUBLISHED_SET = "cifar100"
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


def quality_rows(app: App) -> pd.DataFrame:
    """Accuracy and retrieval of all models, each row with the `key` of its quantity."""
    frames = []
    for results in app.collection.models.values():
        accuracy, retrieval = queries.top1(results, subset=None), queries.recall(results, ("R@1",))
        frames += [_with_key(accuracy, ["dataset", "subset", "metric"])]
        frames += [_with_key(retrieval, ["dataset", "direction", "metric"])]
    return _joined(frames)


def fairness_rows(app: App) -> pd.DataFrame:
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
    full = [frame for frame in frames if len(frame)]
    return pd.concat(full, ignore_index=True) if full else pd.DataFrame()


def qualities(app: App) -> list[Choice]:
    """The quantities across, the one that the high heads matter most for first."""
    rows = quality_rows(app)
    if not len(rows):
        return []
    change = queries.of_plan(rows, "high").groupby("key")["difference"].mean()
    found = []
    for key in sorted(rows["key"].unique(), key=lambda key: float(change.get(key, 0.0))):
        dataset, extra, metric = key.split("|")
        words = f"{QUALITY_METRICS[metric]} on {dataset}" + (f", {extra}" if extra else "")
        found.append(Choice(key, words))
    return found


def fairnesses(app: App) -> list[Choice]:
    """The quantities up, in the tables' order, the correct measures before the published ones."""
    rows = fairness_rows(app)
    keys = list(rows["key"].unique()) if len(rows) else []
    found = []
    for key in sorted(keys, key=lambda key: key.endswith("as-published")):
        dataset, attribute, target, mode = key.split("|")
        words = f"{attribute} on {dataset}" + ("" if target == "pool" else f", {target} target")
        words += "" if mode == "correct" else ", as the study’s code computed it"
        found.append(Choice(key, words))
    return found


def measured(app: App, x: str, y: str) -> list[Measured]:
    """Plans measured on both axes, those with nothing off left out."""
    keys = ["model", "plan", "seed", "heads", "n_heads"]
    quality, fairness = quality_rows(app), fairness_rows(app)
    # A mean over seeds has no seed: an empty cell is equal to none, so it becomes -1.
    left, right = (
        rows[rows["key"] == key].assign(seed=rows["seed"].astype("Int64").fillna(-1))
        for rows, key in ((quality, x), (fairness, y))
    )
    up = {tuple(row[key] for key in keys): row for row in right.to_dict("records")}
    return [
        Measured(
            row["model"],
            PlanName.parse(row["plan"]),
            None if row["seed"] < 0 else int(row["seed"]),
            row["heads"],
            int(row["n_heads"]),
            queries.difference(row),
            queries.difference(up[place]),
        )
        for row in left.to_dict("records")
        if row["n_heads"] and (place := tuple(row[key] for key in keys)) in up
    ]


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
            found.append(Measured(f"{name} (published)", PlanName(plan), None, "", 0, *both))
    return found
