"""The view Paradox: what each measured set of heads costs in accuracy, against what it does to bias."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from ccs.ui.page.charts import Point, scatter
from ccs.ui.page.parts import button, csv_text, empty, esc, figure, head_row, interval, options, scroll
from ccs.ui.session import Session
from ccs.ui.state import State
from ccs.ui.views import directs
from ccs.ui.views.plans import (
    PUBLISHED_SET,
    Choice,
    Measured,
    choices,
    fairness_rows,
    measured,
    published,
    quality_rows,
)

if TYPE_CHECKING:
    from ccs.ui.app import App

SHOWN_ROWS = 24


def axes(app: App, session: Session) -> tuple[Choice, Choice] | None:
    """The quantities across and up that are shown; None where there is nothing to show."""
    quality, fairness = quality_rows(app), fairness_rows(app)
    if not len(quality) or not len(fairness):
        return None
    first, second = choices(quality, "quality"), choices(fairness, "fairness")
    x = next((c for c in first if c.key == session.state.quality), first[0])
    y = next((c for c in second if c.key == session.state.fairness), second[0])
    return x, y


def render(app: App, session: Session) -> str:
    """The view as HTML."""
    chosen = axes(app, session)
    if chosen is None:
        return empty(
            "Nothing measured yet",
            "This view needs the tables pruning and bias of at least one model. Compute them with: python -m "
            "batch.compute",
        )
    (x, y), state = chosen, session.state
    quality, fairness = quality_rows(app), fairness_rows(app)
    every = measured(quality, fairness, x.key, y.key)
    ours = every if state.sets == "all" else [one for one in every if not one.at_k]
    printed = published(y.key.split("|")[1]) if y.key.endswith("|correct") else []
    shown = [] if state.published == "no" else printed
    more = ""
    if any(one.at_k for one in every):
        more += _select("Sets", "sets", [("", "of the main K"), ("all", "of every K")], state.sets)
    if printed:
        checked = " checked" if shown else ""
        more += (
            f'<label class="check"><input type="checkbox" name="published" value="1"{checked}><span>the '
            "study’s points</span></label>"
        )
    else:
        more += '<input type="hidden" name="published" value="1">'
    form = (
        '<form class="panel ask" data-do="points" data-live="1"><div class="row">'
        f"{_select('Across: change of', 'quality', _listed(quality, 'quality'), x.key)}"
        f"{_select('Up: change of MaxSkew by', 'fairness', _listed(fairness, 'fairness'), y.key)}"
        f"{more}</div></form>"
    )
    return (
        form
        + _lead(ours, x, y)
        + _plot(ours, shown, x, y, state)
        + _table(ours, shown, state)
        + directs.render(app, session, y.key)
    )


def _listed(rows: pd.DataFrame, kind: str) -> list[tuple[str, str]]:
    return [(one.key, one.words) for one in choices(rows, kind)]


def _select(label: str, name: str, listed: list[tuple[str, str]], chosen: str) -> str:
    return (
        f'<label class="field grow"><span>{label}</span><select name="{name}">{options(listed, chosen)}'
        "</select></label>"
    )


def _lead(ours: Sequence[Measured], x: Choice, y: Choice) -> str:
    """What the high-CCS heads of the first model come to, in a sentence."""
    high = next((one for one in ours if one.plan == "high"), None)
    if high is None:
        return ""
    across = interval(100 * high.x, 100 * high.x_low, 100 * high.x_high, 1)
    up = interval(high.y, high.y_low, high.y_high, 3)
    return (
        f'<p class="lead">Without its {high.n_heads} high-CCS heads, {esc(high.model)} changes by '
        f"<b>{across}</b> points of {esc(x.words)}, and by <b>{up}</b> in mean MaxSkew by {esc(y.words)}.</p>"
    )


def _plot(ours: Sequence[Measured], printed: Sequence[Measured], x: Choice, y: Choice, state: State) -> str:
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
            "printed" if one in printed else "hollow" if models.index(one.model) else "solid",
            one.words,
            one.heads,
            one.model,
            _is_off(one, state),
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
    note = f" · diamonds: the study’s, {PUBLISHED_SET} and FairFace" if printed else ""
    ring = " · ringed: switched off now" if any(point.chosen for point in points) else ""
    what = (
        "One mark a set of heads switched off together. <b>Across</b>: change of accuracy to the whole "
        "model, in percentage points. <b>Up</b>: change of MaxSkew, the mean over occupations; below 0 is "
        "less skewed. The lines are 95% intervals (paired bootstrap; over seeds for random sets). The "
        "paradox the study reports would be marks on the left and low: high-CCS heads carry accuracy and "
        "bias together. Marks whose lines cross 0 show no change. The page opens with the quantity that the "
        "high-CCS heads matter most for. Click a mark to switch its heads off here."
    )
    return figure(
        "What switching off costs, and what it does to bias",
        f'<p class="keys-line">{kinds}</p><p class="muted small">{filled}{more}{note}{ring}</p>{chart}',
        what=what,
        unit="points; natural log",
        name="paradox",
        table=_csv([*ours, *printed]),
    )


def _is_off(one: Measured, state: State) -> bool:
    return bool(one.heads) and one.model == state.model and one.heads == str(state.off)


def _csv(rows: Sequence[Measured]) -> str:
    header = ["model", "plan", "seed", "heads", "n heads"]
    axes = [f"{axis} change{end}" for axis in ("accuracy", "MaxSkew") for end in ("", " low", " high")]
    return csv_text(
        [*header, *axes],
        [
            [r.model, r.plan, "" if r.seed is None else r.seed, r.heads, r.n_heads,
             r.x, r.x_low, r.x_high, r.y, r.y_low, r.y_high]
            for r in rows
        ],
    )  # fmt: skip


def _table(ours: Sequence[Measured], printed: Sequence[Measured], state: State) -> str:
    """The same in words; a plan with heads has a button, for those who do not click on dots."""
    order = sorted(
        ours, key=lambda one: (one.kind == "single", one.kind == "random" and one.seed is not None, one.model)
    )
    rows = []
    for one in [*order[:SHOWN_ROWS], *printed]:
        load = ""
        if one.heads:
            is_off = _is_off(one, state)
            load = button(
                "Off now" if is_off else "Switch off",
                "plan",
                css="quiet",
                disabled=is_off,
                model=one.model,
                heads=one.heads,
            )
        rows.append(
            f'<tr{" class=total" if _is_off(one, state) else ""}><th scope="row">{esc(one.words)}</th>'
            f"<td class=num>{one.n_heads or '–'}</td>"
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
        scroll(f'<table class="nums">{header}<tbody>{"".join(rows)}</tbody></table>') + rest,
        what="The marks above, one a row. p-values and everything else stand in the tables pruning and bias.",
        unit="points; natural log",
        name="paradox-table",
        table=_csv([*ours, *printed]),
    )
