"""The view Paradox: what each measured set of heads costs in accuracy, against what it does to bias."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from markupsafe import Markup, escape

from ccs.errors import InputError
from ccs.model import difference
from ccs.plans import PlanName
from ccs.results import queries
from ccs.ui import claims
from ccs.ui.actions import Action, Fields, change, parse_heads, set_model, set_off
from ccs.ui.app import App
from ccs.ui.html import count, program, render
from ccs.ui.session import Session
from ccs.ui.state import SETS, State, line, one_of
from ccs.ui.views import own_set
from ccs.ui.views.base import Empty, Figure, View, run_lines
from ccs.ui.views.charts import PRINTED, SHAPES, Point, scatter
from ccs.ui.views.effects import nan
from ccs.ui.views.points import PUBLISHED_FACES, PUBLISHED_SET, Axes, Choice, Measured, measured, published

SHOWN_ROWS = 24
DIRECT = ("high", "moderate", "low", "concept")  # plans whose direct effects are shown
COLUMNS = (
    *("model", "plan", "seed", "heads", "n heads"),
    *(f"{axis} change{end}" for axis in ("accuracy", "MaxSkew") for end in ("", " low", " high")),
)
DIRECT_COLUMNS = (
    *("plan", "seed", "heads", "n_heads", "dataset", "metric", "factor"),
    *("direct", "direct_low", "direct_high", "direct_p_value"),
    *("total", "total_low", "total_high", "total_p_value"),
)


def _points(app: App, session: Session, fields: Fields) -> None:
    change(
        session,
        quality=line(str(fields.get("quality", ""))),
        fairness=line(str(fields.get("fairness", ""))),
        published="" if fields.get("published") else "no",
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
        return (state.model,) if state.off else ()

    def prepare(self, app: App, session: Session) -> Iterator[tuple[float, str]]:
        state = session.state
        x, y = _axes(app, state)
        if state.off and own_set.can_be_measured(app, x, y):
            model = app.model_cache.get(state.model)
            for share in own_set.measure(app, session, model, x, y):
                yield share, f"Measuring {x.words} and MaxSkew with {count(len(state.off), 'head')} off"

    def render(self, app: App, session: Session, complete: bool = True) -> Markup:
        state, axes = session.state, Axes.of(app)
        try:
            x, y = _axes(app, state)
        except InputError:
            words = "This view needs the tables pruning and bias of at least one model. Compute them with: "
            return escape(Empty("Nothing measured yet", words + "python -m batch.compute"))
        ours, printed = _measured(app, state, x, y)
        return render(
            "views/paradox.html",
            x=x,
            y=y,
            state=state,
            qualities=[(one.key, one.words) for one in axes.qualities],
            fairnesses=[(one.key, one.words) for one in axes.fairnesses],
            any_k=any(one.plan.k for one in measured(x, y)),
            printed=printed,
            now=next((one for one in ours if _is_off(one, state)), None),
            own=next((one for one in own_set.points(app, session, x, y) if _is_off(one, state)), None),
            figures=self.figures(app, session),
        )

    def figures(self, app: App, session: Session) -> list[Figure]:
        state = session.state
        x, y = _axes(app, state)
        ours, printed = _measured(app, state, x, y)
        if state.published == "no":
            printed = []
        own = own_set.points(app, session, x, y)
        found = [plot(ours, printed, own, x, y, state), _table(ours, printed, state), _direct(app, state, y)]
        return [figure for figure in found if figure is not None]

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
        one for one in measured(x, y) if one.model == state.model or difference.file_of(one.model) is None
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
    own: Sequence[Measured],
    x: Choice,
    y: Choice,
    state: State,
) -> Figure:
    """The sets as marks: ours, the study's, and the visitor's own."""
    models = list(dict.fromkeys(one.model for one in ours))
    points = [
        Point(
            one,
            "printed" if one in printed else "hollow" if models.index(one.model) else "solid",
            _is_off(one, state),
        )
        for one in (*printed, *ours)
    ]
    points += [Point(one, "own" if _is_off(one, state) else "trail", False) for one in own]
    kinds = {one.plan.kind for one in ours}
    return Figure(
        "paradox",
        "What switching off costs, and what it does to bias",
        "points; natural log",
        COLUMNS,
        _cells(*ours, *printed, *own),
        {
            "chart": scatter(
                points, across=f"change of {x.words}, points", up=f"change of mean MaxSkew, {y.words}"
            ),
            "kinds": [(kind, shape) for kind, shape in SHAPES.items() if kind in kinds],
            "models": models,
            "published": PUBLISHED_SET if printed else "",
            "published_kinds": list(dict.fromkeys(one.plan.kind for one in printed)),
            "star": PRINTED,
            "own": bool(own),
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


def _direct(app: App, state: State, y: Choice) -> Figure | None:
    """Direct beside total effects: what changes when later layers cannot react.

    Of accuracy on every set and of the measure of bias that is shown; None where there are no such tables.
    """
    results = app.records(state.model).results
    if results is None or not len(rows := results.table("effects")):
        return None
    dataset, attribute, *_ = y.columns
    named = queries.of_kinds(rows, DIRECT)
    asked = (named["dataset"] == dataset) & (named["factor"] == attribute)
    named = named[(named["metric"] == "top1") | asked].sort_values(
        ["dataset", "metric", "factor"], kind="stable"
    )
    found = queries.correlations(results)
    return Figure(
        "direct-and-total",
        f"Direct and total effect, {state.model}",
        "points for accuracy, natural log for MaxSkew",
        DIRECT_COLUMNS,
        list(rows[list(DIRECT_COLUMNS)].itertuples(index=False, name=None)),
        {
            "correlations": [(r.metric, r.factor, r.dataset, nan(r.value)) for r in found.itertuples()],
            "measured": [_effect(row) for row in named.itertuples()],
        },
    )


def _effect(row: Any) -> dict[str, Any]:
    scale, digits = (1, 3) if "MaxSkew" in row.metric else (100, 1)
    both = [
        [scale * nan(getattr(row, kind + end)) for end in ("", "_low", "_high")] + [digits]
        for kind in ("direct", "total")
    ]
    return {"row": row, "words": PlanName.parse(row.plan).words(), "both": both}
