"""Measured plans as points: what each set of heads costs in accuracy, and what it does to bias."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ccs.errors import InputError
from ccs.measures.stats import Effect
from ccs.plans import PlanName
from ccs.results import queries
from ccs.ui.shared import App


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


@dataclass(frozen=True)
class Axes:
    """What the plot shows of all models' tables: top-1 accuracy on the set `quality` across, and mean MaxSkew
    by the attribute of the gallery up. attributes: those that could be asked for.
    """

    quality: str
    gallery: str
    attribute: str
    attributes: tuple[str, ...]
    points: tuple[Measured, ...]

    @classmethod
    def of(cls, app: App, attribute: str = "") -> Axes:
        """On the set that the high heads matter most for, by this attribute or else the first.

        InputError without tables of both.
        """
        return app.derived.get(("axes", attribute), lambda: cls._read(app, attribute))

    @classmethod
    def _read(cls, app: App, attribute: str) -> Axes:
        models = app.collection.models.values()
        accuracy = _plans(queries.top1(results) for results in models)
        skew = _plans(queries.max_skew(results) for results in models)
        if not len(accuracy) or not len(skew):
            raise InputError("There are no tables pruning and bias yet.")
        high = queries.of_plan(accuracy, "high").groupby("dataset")["difference"].mean()
        quality = str(high.idxmin()) if high.notna().any() else str(accuracy["dataset"].iloc[0])
        attributes = tuple(map(str, skew["attribute"].unique()))
        attribute = attribute if attribute in attributes else attributes[0]
        skew = skew[skew["attribute"] == attribute]
        gallery = str(skew["dataset"].iloc[0])
        up = {_plan(row): row for row in skew[skew["dataset"] == gallery].to_dict("records")}
        found = tuple(
            Measured(
                row["model"],
                PlanName.parse(row["plan"]),
                _plan(row)[2],
                row["heads"],
                int(row["n_heads"]),
                queries.difference(row),
                queries.difference(up[_plan(row)]),
            )
            for row in accuracy[accuracy["dataset"] == quality].to_dict("records")
            if row["n_heads"] and _plan(row) in up
        )
        return cls(quality, gallery, attribute, attributes, found)


def _plans(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """The rows of all models, of few random sets, and of plans at the main K with outputs at zero."""
    kept = []
    for rows in filter(len, tables):
        rows = queries.few_sets(rows)
        plans = [PlanName.parse(name) for name in rows["plan"]]
        kept.append(rows[[plan.k is None and plan.ablation == "zero" for plan in plans]])
    return pd.concat(kept, ignore_index=True) if kept else pd.DataFrame()


def _plan(row: Mapping[Hashable, Any]) -> tuple[str, str, int | None, str]:
    """The cells that name a plan of a model; a mean over seeds has no seed."""
    return row["model"], row["plan"], None if pd.isna(row["seed"]) else int(row["seed"]), row["heads"]
