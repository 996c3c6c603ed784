"""Direct beside total effects of the measured sets of heads: what changes when later layers cannot react."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from ccs.ui.page.parts import csv_text, esc, figure, head_row, interval, number, scroll
from ccs.ui.session import Session
from ccs.ui.views.effects import nan
from ccs.ui.views.plans import plan_words

if TYPE_CHECKING:
    from ccs.ui.app import App

SHOWN = ("high", "moderate", "low", "concept")
COLUMNS = (
    *("plan", "seed", "heads", "n_heads", "dataset", "metric", "factor"),
    *("direct", "direct_low", "direct_high", "direct_p_value"),
    *("total", "total_low", "total_high", "total_p_value"),
)


def render(app: App, session: Session, fairness: str) -> str:
    """The figure of this model, or nothing where its run has no such tables.

    fairness: the key of the measure of bias whose rows are shown, beside those of accuracy on every set.
    """
    sheet = app.sheet(session.state.model)
    rows, found = sheet.table("effects"), sheet.table("correlations")
    if not len(rows):
        return ""
    dataset, attribute, *_ = fairness.split("|")
    named = rows[rows["plan"].str.split(":").str[0].isin(SHOWN)]
    asked = (named["dataset"] == dataset) & (named["factor"] == attribute)
    named = named[(named["metric"] == "top1") | asked].sort_values(
        ["dataset", "metric", "factor"], kind="stable"
    )
    body = "".join(_row(row) for row in named.itertuples())
    header = head_row("set", "metric", "images", "#direct (95%)", "#total (95%)")
    return figure(
        f"Direct and total effect, {sheet.model}",
        _correlations(found) + scroll(f'<table class="nums">{header}<tbody>{body}</tbody></table>'),
        what="<b>Total</b>: the heads’ outputs are zero in the forward pass, as everywhere on this page. "
        "<b>Direct</b>: their contributions are subtracted from the finished embedding, so that later layers "
        "cannot make up for them. Where the two differ, later layers react. The correlations are over single "
        "heads. All sets of heads and all measures stand in the CSV.",
        unit="points for accuracy, natural log for MaxSkew",
        name="direct-and-total",
        table=csv_text(COLUMNS, rows[list(COLUMNS)].itertuples(index=False)),
    )


def _row(row: Any) -> str:
    scale, digits = (1, 3) if "MaxSkew" in row.metric else (100, 1)
    factor = f" by {esc(row.factor)}" if row.factor else ""
    direct, total = (_cell(row, kind, scale, digits) for kind in ("direct", "total"))
    return (
        f'<tr><th scope="row">{esc(plan_words(row.plan, None))}</th><td>{esc(row.metric)}{factor}</td>'
        f"<td>{esc(row.dataset)}</td><td class=num>{direct}</td><td class=num>{total}</td></tr>"
    )


def _cell(row: Any, kind: str, scale: float, digits: int) -> str:
    value, low, high = (scale * nan(getattr(row, kind + end)) for end in ("", "_low", "_high"))
    return interval(value, low, high, digits)


def _correlations(found: pd.DataFrame) -> str:
    rows = found[found["method"] == "spearman"] if len(found) else found
    if not len(rows):
        return ""
    told = "; ".join(
        f"{esc(r.metric)}{f' by {esc(r.factor)}' if r.factor else ''} on {esc(r.dataset)} <b>"
        f"{'–' if nan(r.value) != nan(r.value) else number(nan(r.value), 2)}</b>"
        for r in rows.itertuples()
    )
    return f"<p>Spearman’s correlation of direct with total effect over single heads: {told}.</p>"
