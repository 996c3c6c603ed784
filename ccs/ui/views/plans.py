"""The plans that runs measured: what each set of heads costs in accuracy, and what it does to bias."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from ccs.ui.views.effects import nan

if TYPE_CHECKING:
    from ccs.ui.app import App

QUALITY_METRICS = {"top1": "accuracy", "R@1": "R@1"}
PUBLISHED_SET = "cifar100"


@dataclass(frozen=True)
class Choice:
    """One measured quantity: a column of the scatter plot. `key` is what the link holds."""

    key: str
    words: str


@dataclass(frozen=True)
class Measured:
    """One plan of one model on both axes: differences to nothing off, with 95% intervals (NaN if none)."""

    model: str
    plan: str
    seed: int | None
    heads: str
    n_heads: int
    x: float
    x_low: float
    x_high: float
    y: float
    y_low: float
    y_high: float

    @property
    def kind(self) -> str:
        """The plan's family: high, low, random, concept, single ..."""
        return self.plan.split("@")[0].split(":")[0]

    @property
    def at_k(self) -> str:
        """The number of texts that the plan's levels go by, where it is not the main one."""
        return self.plan.partition("@")[2]

    @property
    def words(self) -> str:
        return f"{self.model}: {plan_words(self.plan, self.seed)}"


def plan_words(plan: str, seed: int | None) -> str:
    """A plan in words: "high-CCS heads", "concept Colors, high CCS", "random heads, mean over seeds"."""
    base, _, k = plan.partition("@")
    name, _, of = base.partition(":")
    words = {
        **{level: f"{level}-CCS heads" for level in ("high", "moderate", "low")},
        "equal-high": "high-CCS heads, equal number",
        "equal-low": "low-CCS heads, equal number",
        "concept": f"concept {of}, high CCS",
        "single": f"{of} alone",
        "random": "random heads" + (", mean over seeds" if seed is None else ""),
    }.get(name, base)
    return words + (f" at K = {k}" if k else "") + ("" if seed is None else f", seed {seed}")


def quality_rows(app: App) -> pd.DataFrame:
    """Accuracy and retrieval of all models, each row with the `key` of its quantity."""
    frames = []
    for name in app.models:
        sheet = app.sheet(name)
        for table, extra in (("pruning", "subset"), ("retrieval", "direction")):
            rows = sheet.table(table)
            if len(rows):
                rows = rows[rows["metric"].isin(list(QUALITY_METRICS))].copy()
                rows["key"] = rows["dataset"] + "|" + rows[extra].fillna("") + "|" + rows["metric"]
                frames.append(rows)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def fairness_rows(app: App) -> pd.DataFrame:
    """Mean MaxSkew over occupations of all models, each row with the `key` of its quantity."""
    frames = []
    for name in app.models:
        rows = app.sheet(name).table("bias")
        if len(rows):
            rows = rows[(rows["metric"] == "MaxSkew mean") & (rows["occupation"] == "")].copy()
            rows["key"] = (
                rows["dataset"] + "|" + rows["attribute"] + "|" + rows["target"] + "|" + rows["mode"]
            )
            frames.append(rows)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def choices(rows: pd.DataFrame, kind: str) -> list[Choice]:
    """The quantities there are, in words; the correct measure of bias before the published one.

    Quality begins with what the high heads matter most for, fairness in the tables' order.
    """
    found = []
    keys = list(rows["key"].unique())
    if kind == "quality":
        change = rows[rows["plan"] == "high"].groupby("key")["difference"].mean()
        keys.sort(key=lambda key: float(change.get(key, 0.0)))
    for key in sorted(keys, key=lambda key: key.endswith("as-published")):
        parts = key.split("|")
        if kind == "quality":
            dataset, extra, metric = parts
            words = f"{QUALITY_METRICS[metric]} on {dataset}" + (f", {extra}" if extra else "")
        else:
            dataset, attribute, target, mode = parts
            words = f"{attribute} on {dataset}" + ("" if target == "pool" else f", {target} target")
            words += "" if mode == "correct" else ", as the study’s code computed it"
        found.append(Choice(key, words))
    return found


def measured(quality: pd.DataFrame, fairness: pd.DataFrame, x: str, y: str) -> list[Measured]:
    """Plans measured on both axes, those with nothing off left out."""
    keys = ["model", "plan", "seed", "heads", "n_heads"]
    columns = [*keys, "difference", "difference_low", "difference_high"]
    left = quality[quality["key"] == x][columns]
    right = fairness[fairness["key"] == y][columns]
    # A mean over seeds has no seed: a join on an empty cell would drop it, so it is joined as -1.
    left, right = (part.assign(seed=part["seed"].astype("Int64").fillna(-1)) for part in (left, right))
    both = left.merge(right, on=keys, suffixes=("", "_y"))
    found = []
    for row in both.itertuples():
        if row.plan == "none":
            continue
        found.append(
            Measured(
                str(row.model),
                str(row.plan),
                None if row.seed < 0 else int(row.seed),
                str(row.heads),
                int(row.n_heads),
                float(row.difference),
                nan(row.difference_low),
                nan(row.difference_high),
                float(row.difference_y),
                nan(row.difference_low_y),
                nan(row.difference_high_y),
            )
        )
    return found


def published(attribute: str) -> list[Measured]:
    """The study's own high and low sets: CIFAR-100 accuracy against FairFace MaxSkew an occupation.

    Only gender: the printed figures by race come from a fault of the code (docs/reproduction.md).
    """
    from ccs import paper

    if attribute != "gender":
        return []
    nan, found = float("nan"), []
    accuracy, skew, n = paper.table("table5"), paper.table("table8"), len(paper.occupations())
    for name in skew.rows:
        for plan in ("high", "low"):
            cells = [accuracy.value(name, f"{PUBLISHED_SET}/{part}") for part in (plan, "original")]
            bias = [skew.value(name, f"gender/{part}") for part in (plan, "original")]
            if None in cells or None in bias:
                continue
            x = (float(cells[0] or 0) - float(cells[1] or 0)) / 100
            y = (float(bias[0] or 0) - float(bias[1] or 0)) / n
            found.append(Measured(f"{name} (published)", plan, None, "", 0, x, nan, nan, y, nan, nan))
    return found
