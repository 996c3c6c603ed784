"""The view Paradox: what each measured set of heads costs in accuracy, against what it does to bias."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from ccs.ui.charts import Point, scatter
from ccs.ui.parts import button, csv_text, empty, esc, figure, head_row, interval, options
from ccs.ui.session import Session

if TYPE_CHECKING:
    from ccs.ui.core import App

QUALITY_METRICS = {"top1": "accuracy", "R@1": "R@1"}
SHOWN_ROWS = 24
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
    def words(self) -> str:
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"{self.model}, {self.plan}{seed}"


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
    """The quantities there are, in words; the correct measure of bias before the published one."""
    found = []
    for key in sorted(rows["key"].unique(), key=lambda key: (key.endswith("as-published"), key)):
        parts = key.split("|")
        if kind == "quality":
            dataset, extra, metric = parts
            words = f"{QUALITY_METRICS[metric]} on {dataset}" + (f", {extra}" if extra else "")
        else:
            dataset, attribute, target, mode = parts
            words = f"{attribute} on {dataset}" + ("" if target == "pool" else f", {target} target")
            words += "" if mode == "correct" else ", with the published code’s fault"
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
                _number(row.difference_low),
                _number(row.difference_high),
                float(row.difference_y),
                _number(row.difference_low_y),
                _number(row.difference_high_y),
            )
        )
    return found


def _number(value: object) -> float:
    return float("nan") if value is None or value is pd.NA else float(value)  # type: ignore[arg-type]


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


def render(app: App, session: Session) -> str:
    """The view as HTML."""
    quality, fairness = quality_rows(app), fairness_rows(app)
    if not len(quality) or not len(fairness):
        return empty(
            "Nothing measured yet",
            "This view needs the tables pruning and bias of at least one model. Compute them with: python -m "
            "batch.compute",
        )
    first, second = choices(quality, "quality"), choices(fairness, "fairness")
    x = next((c for c in first if c.key == session.state.quality), first[0])
    y = next((c for c in second if c.key == session.state.fairness), second[0])
    ours = measured(quality, fairness, x.key, y.key)
    printed = published(y.key.split("|")[1]) if y.key.endswith("|correct") else []
    form = (
        '<form class="panel ask" data-do="points" data-live="1"><div class="row">'
        '<label class="field grow"><span>Across: change of</span><select name="quality">'
        f"{_options(first, x)}</select></label>"
        '<label class="field grow"><span>Up: change of MaxSkew by</span><select name="fairness">'
        f"{_options(second, y)}</select></label></div></form>"
    )
    return form + _plot(ours, printed, x, y) + _table(ours, printed)


def _options(listed: Sequence[Choice], chosen: Choice) -> str:
    return options([(one.key, one.words) for one in listed], chosen.key)


def _plot(ours: Sequence[Measured], printed: Sequence[Measured], x: Choice, y: Choice) -> str:
    models = list(dict.fromkeys(one.model for one in ours))
    points = [
        Point(
            one.x * 100,
            one.x_low * 100,
            one.x_high * 100,
            one.y,
            one.y_low,
            one.y_high,
            one.kind,
            models.index(one.model) if one in ours else -1,
            one.words,
            one.heads,
            one.model,
        )
        for one in (*printed, *ours)
    ]
    chart, kinds = scatter(
        points, across=f"change of {x.words}, points", up=f"change of mean MaxSkew, {y.words}"
    )
    filled = " · ".join(
        f"{'filled' if i == 0 else 'hollow'}: {esc(name)}" for i, name in enumerate(models[:2])
    )
    more = f" · also hollow: {esc(', '.join(models[2:]))}" if len(models) > 2 else ""
    note = f" · small diamonds: published, {PUBLISHED_SET} and FairFace" if printed else ""
    what = (
        "One mark a set of heads switched off together. <b>Across</b>: change of accuracy to the whole "
        "model, in percentage points. "
        "<b>Up</b>: change of MaxSkew, the mean over occupations; below 0 is less skewed. The lines are 95% "
        "intervals (paired bootstrap; over "
        "seeds for random sets). The paradox the study reports would be marks on the left and low: high-CCS "
        "heads carry accuracy "
        "and bias together. Marks whose lines cross 0 show no change. Click a mark to switch its heads off "
        "here."
    )
    return figure(
        "What switching off costs, and what it does to bias",
        f'<p class="keys-line">{kinds}</p><p class="muted small">{filled}{more}{note}</p>{chart}',
        what=what,
        unit="points; natural log",
        name="paradox",
        table=_csv([*ours, *printed]),
    )


def _csv(rows: Sequence[Measured]) -> str:
    return csv_text(
        [
            "model",
            "plan",
            "seed",
            "heads",
            "n heads",
            "accuracy change",
            "low",
            "high",
            "MaxSkew change",
            "low",
            "high",
        ],
        [
            [
                r.model,
                r.plan,
                "" if r.seed is None else r.seed,
                r.heads,
                r.n_heads,
                r.x,
                r.x_low,
                r.x_high,
                r.y,
                r.y_low,
                r.y_high,
            ]
            for r in rows
        ],
    )


def _table(ours: Sequence[Measured], printed: Sequence[Measured]) -> str:
    """The same in words; a plan with heads has a button, for those who do not click on dots."""
    order = sorted(ours, key=lambda one: (one.kind == "single", one.seed is not None, one.model, one.plan))
    rows = []
    for one in [*order[:SHOWN_ROWS], *printed]:
        load = (
            button("Switch off", "plan", css="quiet", model=one.model, heads=one.heads) if one.heads else ""
        )
        rows.append(
            f'<tr><th scope="row">{esc(one.words)}</th><td class=num>{one.n_heads or "–"}</td>'
            f"<td class=num>{interval(100 * one.x, 100 * one.x_low, 100 * one.x_high, 1)}</td>"
            f"<td class=num>{interval(one.y, one.y_low, one.y_high, 3)}</td><td>{load}</td></tr>"
        )
    header = head_row("model and set", "#heads off", "#accuracy change (95%)", "#MaxSkew change (95%)", "")
    rest = (
        f'<p class="muted small">and {len(order) - SHOWN_ROWS} more in the CSV</p>'
        if len(order) > SHOWN_ROWS
        else ""
    )
    return figure(
        "The same in numbers",
        f'<div class="scroll" tabindex="0"><table class="nums">{header}<tbody>{"".join(rows)}</tbody></table>'
        f"</div>{rest}",
        what="The marks above, one a row. p-values and everything else stand in the tables pruning and bias.",
        unit="points; natural log",
        name="paradox-table",
        table=_csv([*ours, *printed]),
    )
