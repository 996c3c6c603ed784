"""The view Paradox: what each measured set of heads costs in accuracy, against what it does to bias."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pandas as pd
from markupsafe import Markup, escape

from ccs.benchmark import planted_models
from ccs.errors import InputError
from ccs.measures.stats import Effect, Estimate
from ccs.pruning.plans import PlanName
from ccs.results import queries
from ccs.ui.actions import Action, Fields, change, parse_heads, set_model, set_off
from ccs.ui.html import program, render
from ccs.ui.service.model_cache import saw_drawings_only
from ccs.ui.session import Session
from ccs.ui.shared import App
from ccs.ui.state import State, one_of
from ccs.ui.views import claims
from ccs.ui.views.base import Empty, Figure, View, run_lines
from ccs.ui.views.screen import Screen

COLUMNS = (
    *("model", "plan", "seed", "heads", "n heads"),
    *(f"{axis} change{end}" for axis in ("accuracy", "MaxSkew") for end in ("", " low", " high")),
)


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
        return app.cache.get(("axes", attribute), lambda: cls._read(app, attribute))

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
        up = {_key(row): row for row in skew[skew["dataset"] == gallery].to_dict("records")}
        found = tuple(
            Measured(
                row["model"],
                PlanName.parse(row["plan"]),
                _key(row)[2],
                row["heads"],
                int(row["n_heads"]),
                queries.difference(row),
                queries.difference(up[_key(row)]),
            )
            for row in accuracy[accuracy["dataset"] == quality].to_dict("records")
            if row["n_heads"] and _key(row) in up
        )
        return cls(quality, gallery, attribute, attributes, found)


def _plans(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """The rows of all models, of few random sets, and of plans at the main K."""
    kept = []
    for rows in filter(len, tables):
        rows = queries.few_sets(rows)
        plans = [PlanName.parse(name) for name in rows["plan"]]
        kept.append(rows[[plan.k is None for plan in plans]])
    return pd.concat(kept, ignore_index=True) if kept else pd.DataFrame()


def _key(row: Mapping[Hashable, Any]) -> tuple[str, str, int | None, str]:
    """The cells that name a plan of a model; a mean over seeds has no seed."""
    return row["model"], row["plan"], None if pd.isna(row["seed"]) else int(row["seed"]), row["heads"]


def _points(app: App, session: Session, fields: Fields) -> None:
    attributes = _axes(app, session.state).attributes
    change(session, attribute=one_of(fields.get("value"), attributes, "attribute"))


def _plan(app: App, session: Session, fields: Fields) -> None:
    model = str(fields.get("model", ""))
    if model != session.state.model:
        set_model(app, session, {"value": model})
    set_off(session, parse_heads(app, session, str(fields.get("heads", ""))))


class Paradox(View):
    """All measured plans in one plot."""

    name = "paradox"
    title = "Paradox"
    purpose = "Every measured set of heads: what it costs in accuracy, what it does to bias."
    actions: ClassVar[Mapping[str, Action]] = {"points": _points, "plan": _plan}

    def models(self, state: State) -> tuple[str, ...]:
        return ()

    def render(self, screen: Screen, complete: bool = True) -> Markup:
        state = screen.state
        try:
            axes = _axes(screen.app, state)
        except InputError:
            words = "This view needs the tables pruning and bias of at least one model. Compute them with: "
            return escape(Empty("Nothing measured yet", words + "clip-ccs compute"))
        points = shown(axes, state)
        models = list(dict.fromkeys(one.model for one in points))
        return render(
            "views/paradox.html",
            axes=axes,
            state=state,
            others=[] if state.model in models else models,
            drawn=all(map(saw_drawings_only, models)),
            now=next((one for one in points if _is_off(one, state)), None),
            figure=plot(points, axes, state),
        )

    def snippet(self, screen: Screen) -> str:
        axes = _axes(screen.app, screen.state)
        quality = {"dataset": axes.quality, "subset": "", "metric": "top1"}
        fairness = {"dataset": axes.gallery, "attribute": axes.attribute, "target": "pool", "mode": "correct"}
        fairness |= {"occupation": "", "metric": "MaxSkew mean"}
        both = [("quality", "pruning", quality), ("fairness", "bias", fairness)]
        return run_lines(screen.app, replace(screen.state, apart="")) + program("paradox", quantities=both)


def _axes(app: App, state: State) -> Axes:
    """The axes of the plot: by the attribute that the other views show."""
    claim = claims.of(app.shown(state))
    return Axes.of(app, state.attribute or (claim.attribute if claim else ""))


def shown(axes: Axes, state: State) -> list[Measured]:
    """The plans that are shown; those of models with planted heads only while one is chosen."""
    return [one for one in axes.points if one.model == state.model or planted_models.known(one.model) is None]


def _is_off(one: Measured, state: State) -> bool:
    """True for the set that is off now."""
    return bool(one.heads) and one.model == state.model and one.heads == str(state.off)


def _cells(found: Sequence[Measured]) -> list[list[Any]]:
    return [
        [r.model, str(r.plan), r.seed, r.heads, r.n_heads]
        + [v for e in (r.x, r.y) for v in (e.value, e.low, e.high)]
        for r in found
    ]


def plot(found: Sequence[Measured], axes: Axes, state: State) -> Figure:
    """The sets as marks."""
    models = list(dict.fromkeys(one.model for one in found))
    points = [
        Point(one, "hollow" if models.index(one.model) else "solid", _is_off(one, state)) for one in found
    ]
    kinds = {one.plan.kind for one in found}
    return Figure(
        "paradox",
        "What switching off costs, and what it does to bias",
        "points; natural log",
        COLUMNS,
        _cells(found),
        {
            "chart": scatter(
                points,
                across=f"change of accuracy on {axes.quality}, points",
                up=f"change of mean MaxSkew, {axes.attribute} on {axes.gallery}",
            ),
            "kinds": [(kind, shape) for kind, shape in SHAPES.items() if kind in kinds],
            "models": models,
            "ring": any(point.chosen for point in points),
        },
    )


# -- the chart: positions in percent, text at its own size on every screen; scatter.html draws it ------------


@dataclass(frozen=True)
class Scale:
    """Values from `low` to `high` as percent of the chart's width, or of its height from above."""

    low: float
    high: float

    def share(self, value: float) -> float:
        """The value's place between the two ends, 0 to 1."""
        return (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)

    def across(self, value: float) -> str:
        """From the left."""
        return f"{100 * self.share(value):.2f}%"

    def down(self, value: float) -> str:
        """From above."""
        return f"{100 * (1 - self.share(value)):.2f}%"


def ticks(low: float, high: float, n: int = 5) -> list[float]:
    """About `n` round numbers from low to high."""
    span = (high - low) or 1.0
    step = 10 ** math.floor(math.log10(span / n))
    for factor in (1, 2, 5, 10):
        if span / (step * factor) <= n:
            step *= factor
            break
    first = math.ceil(low / step - 1e-9)
    return [step * i for i in range(first, math.floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Point:
    """A plan in a scatter plot.

    `look` is "solid", for the first model, or "hollow"; `chosen` rings it. With heads it can be clicked, and
    reached by Tab.
    """

    plan: Measured
    look: str
    chosen: bool


SHAPES = {
    "high": "M0-6A6 6 0 1 1 0 6A6 6 0 1 1 0-6Z",
    "low": "M-5.5-5.5H5.5V5.5H-5.5Z",
    "moderate": "M0-6.5L6 5H-6Z",
    "random": "M-5-3L-3-5L0-2L3-5L5-3L2 0L5 3L3 5L0 2L-3 5L-5 3L-2 0Z",
    "concept": "M-2-6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z",
    "equal-high": "M0-7L6.5 0L0 7L-6.5 0Z",
    "equal-low": "M0 6.5L6-5H-6Z",
    "single": "M0-2.6A2.6 2.6 0 1 1 0 2.6A2.6 2.6 0 1 1 0-2.6Z",
}
LEAST = 0.02  # the shortest margin of an axis


def scatter(points: Sequence[Point], *, across: str, up: str) -> Markup:
    """The plot. Small and many marks come first, so that named sets lie on top, the chosen one above all."""
    x = _scale([p.plan.x.times(100) for p in points])
    y = _scale([p.plan.y for p in points])
    order = sorted(
        points,
        key=lambda p: (
            p.chosen,
            p.plan.plan.kind != "single",
            p.plan.plan.kind != "random",
        ),
    )
    return render(
        "scatter.html",
        points=order,
        x=x,
        y=y,
        x_ticks=ticks(x.low, x.high, 6),
        y_ticks=ticks(y.low, y.high, 7),
        across=across,
        up=up,
        shapes=SHAPES,
        named=_labels(points),
    )


def _labels(points: Sequence[Point]) -> list[tuple[Measured, str]]:
    """Names beside marks: the first model's sets of many heads."""
    ours = [p.plan for p in points if p.look == "solid" and p.plan.seed is None]
    return [(one, one.plan.kind) for one in ours if one.plan.kind in ("high", "moderate", "low", "random")]


def _scale(effects: Sequence[Estimate]) -> Scale:
    low, high = min([0.0, *_known(effects)]), max([0.0, *_known(effects)])
    pad = (high - low) * 0.05 or LEAST
    return Scale(low - pad, high + pad)


def _known(values: Sequence[Estimate]) -> list[float]:
    """The values and the ends of their intervals, without NaN."""
    return [v for e in values for v in (e.low, e.value, e.high) if v == v]
