"""The view Paradox: what each measured set of heads costs in accuracy, against what it does to bias."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from markupsafe import Markup, escape

from ccs.benchmark import planted_models
from ccs.errors import InputError
from ccs.ui.actions import Action, Fields, change, parse_heads, set_model, set_off
from ccs.ui.html import program, render
from ccs.ui.session import Session
from ccs.ui.shared import App
from ccs.ui.state import SETS, State, line, one_of
from ccs.ui.views import claims
from ccs.ui.views.base import Empty, Figure, View, run_lines
from ccs.ui.views.charts import PRINTED, SHAPES, Point, scatter
from ccs.ui.views.points import PUBLISHED_FACES, PUBLISHED_SET, Axes, Choice, Measured, measured, published

SHOWN_ROWS = 24
COLUMNS = (
    *("model", "plan", "seed", "heads", "n heads"),
    *(f"{axis} change{end}" for axis in ("accuracy", "MaxSkew") for end in ("", " low", " high")),
)


def _points(app: App, session: Session, fields: Fields) -> None:
    change(
        session,
        quality=line(str(fields.get("quality", ""))),
        fairness=line(str(fields.get("fairness", ""))),
        sets=one_of(fields.get("sets", ""), SETS, "sets"),
    )


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
        state, axes = session.state, Axes.of(app)
        try:
            x, y = _axes(app, state)
        except InputError:
            words = "This view needs the tables pruning and bias of at least one model. Compute them with: "
            return escape(Empty("Nothing measured yet", words + "python -m batch.compute"))
        ours, _ = _measured(app, state, x, y)
        return render(
            "views/paradox.html",
            x=x,
            y=y,
            state=state,
            qualities=[(one.key, one.words) for one in axes.qualities],
            fairnesses=[(one.key, one.words) for one in axes.fairnesses],
            any_k=any(one.plan.k for one in measured(x, y)),
            now=next((one for one in ours if _is_off(one, state)), None),
            figures=self.figures(app, session),
        )

    def figures(self, app: App, session: Session) -> list[Figure]:
        state = session.state
        x, y = _axes(app, state)
        ours, printed = _measured(app, state, x, y)
        return [plot(ours, printed, x, y, state), _table(ours, printed, state)]

    def snippet(self, app: App, session: Session) -> str:
        x, y = _axes(app, session.state)
        dataset, extra, metric = x.columns
        shown, attribute, target, mode = y.columns
        table, column = ("pruning", "subset") if metric == "top1" else ("retrieval", "direction")
        quality = {"dataset": dataset, column: extra, "metric": metric}
        fairness = {"dataset": shown, "attribute": attribute, "target": target, "mode": mode}
        fairness |= {"occupation": "", "metric": "MaxSkew mean"}
        both = [("quality", table, quality), ("fairness", "bias", fairness)]
        return run_lines(app, replace(session.state, apart="")) + program("paradox", quantities=both)


def _axes(app: App, state: State) -> tuple[Choice, Choice]:
    """The axes of the plot; where none was chosen, by the attribute that the other views show."""
    claim = claims.of(app.shown(state))
    attribute = state.attribute or (claim.attribute if claim else "")
    return Axes.of(app).chosen(state.quality, state.fairness, attribute)


def _measured(app: App, state: State, x: Choice, y: Choice) -> tuple[list[Measured], list[Measured]]:
    """The plans that are shown, and the study's points; models with planted heads only while chosen."""
    every = [
        one for one in measured(x, y) if one.model == state.model or planted_models.known(one.model) is None
    ]
    ours = every if state.sets == "all" else [one for one in every if one.plan.k is None]
    dataset, attribute, _, mode = y.columns
    # The study's sets lie on the study's axes, and on no others.
    theirs = x.columns[0].startswith(PUBLISHED_SET) and dataset.startswith(PUBLISHED_FACES)
    return ours, published(attribute) if theirs and mode == "correct" else []


def _is_off(one: Measured, state: State) -> bool:
    """True for the set that is off now, with the same in its place."""
    same = one.heads == str(state.off) and one.plan.ablation == state.off.ablation
    return bool(one.heads) and one.model == state.model and same


def _cells(*sets: Measured) -> list[list[Any]]:
    return [
        [r.model, str(r.plan), r.seed, r.heads, r.n_heads]
        + [v for e in (r.x, r.y) for v in (e.value, e.low, e.high)]
        for r in sets
    ]


def plot(
    ours: Sequence[Measured],
    printed: Sequence[Measured],
    x: Choice,
    y: Choice,
    state: State,
) -> Figure:
    """The sets as marks: ours, and the study's."""
    models = list(dict.fromkeys(one.model for one in ours))
    points = [
        Point(
            one,
            "printed" if one in printed else "hollow" if models.index(one.model) else "solid",
            _is_off(one, state),
        )
        for one in (*printed, *ours)
    ]
    kinds = {one.plan.kind for one in ours}
    return Figure(
        "paradox",
        "What switching off costs, and what it does to bias",
        "points; natural log",
        COLUMNS,
        _cells(*ours, *printed),
        {
            "chart": scatter(
                points, across=f"change of {x.words}, points", up=f"change of mean MaxSkew, {y.words}"
            ),
            "kinds": [(kind, shape) for kind, shape in SHAPES.items() if kind in kinds],
            "models": models,
            "published": PUBLISHED_SET if printed else "",
            "published_kinds": list(dict.fromkeys(one.plan.kind for one in printed)),
            "star": PRINTED,
            "ring": any(point.chosen for point in points),
        },
    )


def _table(ours: Sequence[Measured], printed: Sequence[Measured], state: State) -> Figure:
    """The same in words; a plan with heads has a button, for those who do not click on dots."""
    order = sorted(
        ours, key=lambda p: (p.plan.kind == "single", p.plan.kind == "random" and p.seed is not None, p.model)
    )
    return Figure(
        "paradox-table",
        "The same in numbers",
        "points; natural log",
        COLUMNS,
        _cells(*ours, *printed),
        {
            "listed": [(one, _is_off(one, state)) for one in (*order[:SHOWN_ROWS], *printed)],
            "more": max(0, len(order) - SHOWN_ROWS),
        },
    )
