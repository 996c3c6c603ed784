"""What one head's absence does: on the visitor's pictures now, and in the run's tables."""

from __future__ import annotations

import pandas as pd

from ccs.heads import Head, HeadSet
from ccs.model.model import Model
from ccs.ui.page.parts import (
    csv_text,
    esc,
    figure,
    head_row,
    interval,
    number,
    percent,
    points,
    scroll,
    signed,
)
from ccs.ui.records import Sheet
from ccs.ui.service.pictures import embed, pictures
from ccs.ui.session import Session
from ccs.ui.views import classify

COLUMNS = ("measure", "metric", "dataset", "factor", "value", "low", "high", "chance", "p_value", "q_value")


def alone(session: Session, model: Model, head: Head) -> str:
    """What switching this head alone off does to the visitor's pictures."""
    shown = pictures(session)
    classes, weights = classify.class_matrix(session, model)
    before, after = embed(session, model, [HeadSet(), HeadSet([head])])
    found = classify.compare(before, after, weights, model.logit_scale)
    moved = (before * after).sum(axis=1)
    rows, saved = [], []
    for i, picture in enumerate(shown):
        first, new = int(found.before[i].argmax()), int(found.after[i].argmax())
        change = float(found.after[i, first] - found.before[i, first])
        turned = f"<b>now {esc(classes[new])}</b>" if new != first else "stays"
        rows.append(
            f"<tr><td>{esc(picture.name)}</td><td>{esc(classes[first])}</td><td>{turned}</td>"
            f"<td class=num>{percent(found.before[i, first])}</td>"
            f"<td class=num>{percent(found.after[i, first])}</td><td class=num>{points(change)}</td>"
            f"<td class=num>{number(float(moved[i]), 3)}</td></tr>"
        )
        saved.append(
            [
                picture.name,
                classes[first],
                found.before[i, first],
                found.after[i, first],
                classes[new],
                moved[i],
            ]
        )
    header = head_row("picture", "answer", "without it", "#before", "#after", "#change", "#similarity")
    return figure(
        f"{head} alone switched off, on these pictures",
        scroll(f'<table class="nums">{header}<tbody>{"".join(rows)}</tbody></table>'),
        what="Computed now: the head’s output is set to zero in the forward pass (total effect), nothing "
        "else is off. <b>before, after</b>: probability of the first answer among the classes of the view "
        "Classify. <b>similarity</b>: cosine of the image embedding with and without the head; 1 is no "
        "change.",
        unit="probability, %",
        name=f"alone-{head}",
        table=csv_text(["picture", "answer", "before", "after", "answer after", "similarity"], saved),
    )


def tables(sheet: Sheet, head: Head) -> tuple[str, str]:
    """The head's rows in the table of single heads: its effects, and what it is selective for."""
    table = sheet.table("heads")
    rows = table[(table["layer"] == head.layer) & (table["head"] == head.head)] if len(table) else table
    if not len(rows):
        return "", ""
    selective = rows["measure"] == "selectivity"
    return _effects(head, rows[~selective]), _selectivity(head, rows[selective])


def _effects(head: Head, rows: pd.DataFrame) -> str:
    if not len(rows):
        return ""
    body = []
    for (metric, dataset, factor), part in rows.fillna({"factor": ""}).groupby(
        ["metric", "dataset", "factor"], sort=True
    ):
        cells = [_effect(part[part["measure"] == kind], metric) for kind in ("total effect", "direct effect")]
        body.append(
            f"<tr><td>{esc(metric)}{f' by {esc(factor)}' if factor else ''}</td><td>{esc(dataset)}</td>"
            f"{''.join(cells)}</tr>"
        )
    header = head_row("metric", "images", "#switched off (95%)", "#q", "#direct effect (95%)", "#q")
    return figure(
        f"{head} alone, over whole sets",
        scroll(f'<table class="nums">{header}<tbody>{"".join(body)}</tbody></table>'),
        what="From the run’s tables: the metric without this head less the metric of the whole model. "
        "<b>Switched off</b> (total effect): its output is zero in the forward pass, and later layers react. "
        "<b>Direct effect</b>: its contribution is subtracted from the finished embedding. <b>q</b>: p-value "
        "with the false discovery rate controlled over all heads; below 0.05 the change is not chance.",
        unit="points for accuracy, natural log for MaxSkew",
        name=f"effects-{head}",
        table=_saved(rows),
    )


def _effect(rows: pd.DataFrame, metric: str) -> str:
    if not len(rows):
        return "<td class=num>–</td><td class=num></td>"
    row = next(rows.itertuples())
    scale, digits = (100, 1) if metric in ("top1", "top5", "balanced") or "R@" in metric else (1, 3)
    value, low, high = (scale * nan(x) for x in (row.value, row.low, row.high))
    q = nan(row.q_value)
    words = signed(value, digits) if low != low else interval(value, low, high, digits)
    mark = "" if q != q else f"<b>{number(q, 3)}</b>" if q < 0.05 else number(q, 3)
    return f"<td class=num>{words}</td><td class=num>{mark}</td>"


def _selectivity(head: Head, rows: pd.DataFrame) -> str:
    if not len(rows):
        return ""
    body = "".join(
        f'<tr><th scope="row">{esc(str(r.factor).replace("_", " "))}</th><td><span class="bar plain"><span '
        f'style="width:{100 * min(max(r.value, 0), 1):.1f}%"></span>'
        f'<i style="left:{100 * min(max(nan(r.chance), 0), 1):.1f}%"></i></span></td>'
        f"<td class=num>{interval(100 * r.value, 100 * nan(r.low), 100 * nan(r.high), 1)}</td>"
        f"<td class=num>{number(100 * nan(r.chance), 1)}</td></tr>"
        for r in rows.sort_values("value", ascending=False).itertuples()
    )
    header = head_row("factor of the scene", "", "#explains (95%)", "#noise floor")
    return figure(
        f"What {head} tells apart",
        scroll(f'<table class="nums groups fit">{header}<tbody>{body}</tbody></table>'),
        what="From the run’s tables, and independent of texts and judges: pictures differ in one factor at a "
        "time, and the share of the head’s variance that goes with the factor is its <b>selectivity</b>. The "
        "upright line is the noise floor, what a factor would show that the head does not know.",
        unit="share of the head’s variance, %",
        name=f"selectivity-{head}",
        table=_saved(rows),
    )


def _saved(rows: pd.DataFrame) -> str:
    columns = [name for name in COLUMNS if name in rows]
    return csv_text(columns, rows[columns].itertuples(index=False))


def nan(value: object) -> float:
    """A cell as a number, NaN where it is empty."""
    return float("nan") if value is None or value is pd.NA else float(value)  # type: ignore[arg-type]
