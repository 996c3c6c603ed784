"""The view Paradox: what each measured set of heads costs in accuracy, against what it does to bias."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pandas as pd
from markupsafe import Markup, escape

from ccs.benchmark import planted_models
from ccs.errors import InputError
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
from ccs.ui.views.charts import SHAPES, Measured, Point, scatter

COLUMNS = (
    *("model", "plan", "seed", "heads", "n heads"),
    *(f"{axis} change{end}" for axis in ("accuracy", "MaxSkew") for end in ("", " low", " high")),
)


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

    def render(self, app: App, session: Session, complete: bool = True) -> Markup:
        state = session.state
        try:
            axes = _axes(app, state)
        except InputError:
            words = "This view needs the tables pruning and bias of at least one model. Compute them with: "
            return escape(Empty("Nothing measured yet", words + "python -m batch.compute"))
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

    def snippet(self, app: App, session: Session) -> str:
        axes = _axes(app, session.state)
        quality = {"dataset": axes.quality, "subset": "", "metric": "top1"}
        fairness = {"dataset": axes.gallery, "attribute": axes.attribute, "target": "pool", "mode": "correct"}
        fairness |= {"occupation": "", "metric": "MaxSkew mean"}
        both = [("quality", "pruning", quality), ("fairness", "bias", fairness)]
        return run_lines(app, replace(session.state, apart="")) + program("paradox", quantities=both)


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
