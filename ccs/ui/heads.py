"""The view Heads: what one head has learned, by its texts, its pictures, and what its absence does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ccs.errors import InputError
from ccs.heads import Head, HeadSet
from ccs.models import Model
from ccs.ui import attention, classify
from ccs.ui.parts import (
    button,
    csv_text,
    empty,
    esc,
    figure,
    head_row,
    interval,
    number,
    percent,
    points,
    select,
    signed,
)
from ccs.ui.pictures import embed, pictures, trunk
from ccs.ui.session import Session
from ccs.ui.tables import Card, Sheet, Text
from ccs.ui.uploads import data_url

if TYPE_CHECKING:
    from ccs.ui.core import App

DRIVEN = 300  # drawn pictures among which the most and the least driving are looked for
EXTREMES = 6


@dataclass(frozen=True)
class Extremes:
    """Pictures by how far they move a head along a text: (index, standard deviations from the mean)."""

    most: tuple[tuple[int, float], ...]
    least: tuple[tuple[int, float], ...]


def extremes(direct: np.ndarray, text: np.ndarray, n: int = EXTREMES) -> Extremes:
    """Pictures whose contribution `direct` [images, d] lies farthest along `text` [d], and against it.

    Contributions are centered, so the score is the deviation from the mean picture, in standard deviations.
    """
    along = (direct - direct.mean(axis=0)) @ text
    spread = float(along.std()) or 1.0
    order = np.argsort(-along, kind="stable")
    most = tuple((int(i), float(along[i] / spread)) for i in order[:n])
    least = tuple((int(i), float(along[i] / spread)) for i in order[::-1][:n])
    return Extremes(most, least)


def render(app: App, session: Session, sheet: Sheet) -> str:
    """The view as HTML."""
    state = session.state
    if state.head is None:
        return empty(
            "Choose a head",
            "Each cell of the grid is one attention head. Click one to see what it has learned.",
        )
    card = sheet.card(state.head)
    left = _card(app, session, sheet, card)
    if state.other_head is not None:
        other = app.sheet(state.other_model or state.model)
        right = (
            f'<div class="card other">{_title(other.card(state.other_head), other.model, off=None)}'
            f"{_texts(other.card(state.other_head), chosen=-1)}{_effects(other, state.other_head)}</div>"
        )
        return f'<div class="two">{left}{right}</div>{_compare(app, session)}'
    return left + _compare(app, session)


def _card(app: App, session: Session, sheet: Sheet, card: Card) -> str:
    state = session.state
    parts = [_title(card, sheet.model, off=card.head in state.off), _texts(card, state.text)]
    try:
        model = app.shelf.get(state.model)
        parts += [_pictures(app, session, model, card), _alone(session, model, card.head)]
    except InputError as error:
        parts.append(empty("The model itself is not here", f"{error} What stands here is from its tables."))
    parts.append(_effects(sheet, card.head))
    return f'<div class="card">{"".join(parts)}</div>'


def _title(card: Card, model: str, off: bool | None) -> str:
    score = f"{card.score} of {card.k}" if card.k else "not scored"
    facts = [f"<b>CCS {score}</b> ({esc(card.level_name)})"] if card.k else ["<b>not scored</b>"]
    if card.share is not None:
        facts.append(f"its texts explain {percent(card.share, 0)} of its variance")
    if card.labeler:
        facts.append(f"concept named by <code>{esc(card.labeler)}</code>")
    switch = ""
    if off is not None:
        switch = button(
            "Switch it on again" if off else "Switch it off", "toggle", css="primary", head=card.head
        )
        switch += button("Compare with …", "pin", head=card.head)
    return (
        f'<div class="card-title"><div><p class="over">{esc(model)} · layer {card.head.layer}, head '
        f"{card.head.head}</p>"
        f'<h2>{card.head} <span class="concept">{esc(card.label or "no concept")}</span></h2>'
        f'<p>{" · ".join(facts)}</p></div><div class="buttons">{switch}</div></div>'
    )


def _texts(card: Card, chosen: int) -> str:
    if not card.texts:
        return empty("No texts", "There are no tables for this head, so what it writes about is not known.")
    judges = [v.judge for v in card.texts[0].verdicts]
    rows = "".join(_text_row(rank, text, chosen) for rank, text in enumerate(card.texts))
    saved = csv_text(
        ["head", "rank", "text", "concept", "share", *(f"{j} verdict" for j in judges)],
        [
            [card.head, i + 1, t.text, t.concept, f"{t.share:.6f}", *(_word(v.verdict) for v in t.verdicts)]
            for i, t in enumerate(card.texts)
        ],
    )
    what = (
        "TEXTSPAN picks, one after another, the texts whose directions explain most of what this head writes "
        "into the "
        "image embedding. <b>Share</b>: of the head’s variance, by the text and not by those before it. Each "
        "judge says "
        "whether a text fits the head’s concept. The <b>CCS</b> counts the texts that all judges accept: "
        f"here {card.score} "
        f"of {card.k}. A missing verdict makes it unknown, never lower. Judges named <code>tags</code> are "
        "stand-ins that "
        "compare the texts’ own tags; they are not language models."
    )
    return figure(
        f"Texts that describe {card.head}",
        f'<table class="texts">{head_row("", "text", "share", *judges)}<tbody>{rows}</tbody></table>',
        what=what,
        unit="share of the head’s variance, %",
        name=f"texts-{card.head}",
        table=saved,
    )


def _text_row(rank: int, text: Text, chosen: int) -> str:
    verdicts = "".join(
        f'<td><span class="verdict {_word(v.verdict)}" title="{esc(v.reason or v.cause or _word(v.verdict))}'
        f'">{_mark(v.verdict)}</span>'
        + (f"<small>{esc(v.reason or v.cause)}</small>" if v.reason or v.cause else "")
        + "</td>"
        for v in text.verdicts
    )
    words = esc(text.text)
    if chosen >= 0:
        pressed = str(rank == chosen).lower()
        words = (
            f'<button type="button" class="link" data-do="text" data-index="{rank}" '
            f'aria-pressed="{pressed}">{words}</button>'
        )
    tag = f"<small>{esc(text.concept)}</small>" if text.concept else ""
    return (
        f"<tr><td>{rank + 1}</td><td>{words}{tag}</td>"
        f'<td class="num"><span class="bar plain"><span style="width:{min(100.0, 100 * text.share):.1f}%">'
        "</span>"
        f"<b>{percent(text.share)}</b></span></td>{verdicts}</tr>"
    )


def _word(verdict: bool | None) -> str:
    return "unscored" if verdict is None else "yes" if verdict else "no"


def _mark(verdict: bool | None) -> str:
    return "? unscored" if verdict is None else "✓ yes" if verdict else "✗ no"


def _pictures(app: App, session: Session, model: Model, card: Card) -> str:
    """Drawn pictures that drive the head most and least, and where it looks in the visitor's pictures."""
    shown = pictures(session)
    maps = attention.cls_attention(
        model.tower, trunk(session, model), card.head, HeadSet(session.state.off - {card.head})
    )
    looks = "".join(
        f'<figure><img src="{data_url(attention.overlay(model, p.image, row))}" alt="{esc(p.name)}, lit '
        f'where {card.head} looks">'
        f"<figcaption>{esc(p.name)}<br><small>{percent(1 - float(row[0]), 0)} on the picture</small>"
        "</figcaption></figure>"
        for p, row in zip(shown, maps, strict=True)
    )
    where = figure(
        "Where it looks",
        f'<div class="strip">{looks}</div>',
        what="The attention of the CLS token, which becomes the image embedding, over the patches of each "
        "picture. "
        "Lit: much attention; dark: little, from the least to the most attended patch of that picture. The "
        "rest of the "
        "attention, up to 100%, stays on the CLS token itself. Attention says where a head reads, not what "
        "it writes.",
        unit="attention, share of 1",
        name=f"attention-{card.head}",
    )
    if not card.texts:
        return where
    chosen = card.texts[min(session.state.text, len(card.texts) - 1)]
    names, direct, thumbs = app.driving(model)
    found = extremes(direct[:, list(model.heads).index(card.head)], model.embed_texts([chosen.text])[0])
    rows = "".join(
        f'<h4>{title}</h4><div class="strip small">'
        + "".join(
            f'<figure><img src="{thumbs[i]}" alt="{esc(names[i])}"><figcaption>{signed(z, 1)}</figcaption>'
            "</figure>"
            for i, z in part
        )
        + "</div>"
        for title, part in (("most towards", found.most), ("most away from", found.least))
    )
    saved = csv_text(
        ["picture", "text", "standard deviations"],
        [[names[i], chosen.text, f"{z:.4f}"] for i, z in (*found.most, *found.least)],
    )
    return where + figure(
        f"Pictures that move it along “{chosen.text}”",
        rows,
        what=f"Of {len(names)} drawn pictures, those whose contribution through this head lies farthest "
        "along the text, "
        "and farthest the other way: direct effects, in standard deviations from the mean picture. Click "
        "another text "
        "above to rank by it.",
        unit="standard deviations",
        name=f"driving-{card.head}",
        table=saved,
    )


def _alone(session: Session, model: Model, head: Head) -> str:
    """What switching this head alone off does to the visitor's pictures."""
    shown = pictures(session)
    classes, weights = classify.class_matrix(session, model)
    before, after = embed(session, model, [HeadSet(), HeadSet([head])])
    found = classify.compare(before, after, weights, model.logit_scale)
    moved = (before * after).sum(axis=1)
    rows, saved = [], []
    for i, picture in enumerate(shown):
        first = int(found.before[i].argmax())
        new = int(found.after[i].argmax())
        change = float(found.after[i, first] - found.before[i, first])
        turned = f"<b>now {esc(classes[new])}</b>" if new != first else "answer stays"
        rows.append(
            f"<tr><td>{esc(picture.name)}</td><td>{esc(classes[first])}</td><td class=num>"
            f"{percent(found.before[i, first])}</td>"
            f"<td class=num>{percent(found.after[i, first])}</td><td class=num>{points(change)}</td><td>"
            f"{turned}</td>"
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
    header = head_row("picture", "answer", "#before", "#after", "#change", "", "#similarity")
    return figure(
        f"{head} alone switched off, on your pictures",
        f'<table class="nums">{header}<tbody>{"".join(rows)}</tbody></table>',
        what="Computed now: the head’s output is set to zero in the forward pass (total effect), nothing "
        "else is off. "
        "<b>before, after</b>: probability of the first answer among the classes of the view Classify. "
        "<b>similarity</b>: cosine of the image embedding with and without the head; 1 is no change.",
        unit="probability, %",
        name=f"alone-{head}",
        table=csv_text(["picture", "answer", "before", "after", "answer after", "similarity"], saved),
    )


def _effects(sheet: Sheet, head: Head) -> str:
    """The head's rows in the table of single heads."""
    table = sheet.table("heads")
    rows = table[(table["layer"] == head.layer) & (table["head"] == head.head)] if len(table) else table
    if not len(rows):
        return ""
    body = "".join(
        f"<tr><td>{esc(r.measure)}</td><td>{esc(r.metric or '')}</td><td>{esc(r.dataset)}</td><td>"
        f"{esc(r.factor or '')}</td>"
        f"<td class=num>{interval(r.value, _nan(r.low), _nan(r.high), 3)}</td><td class=num>"
        f"{_or_dash(r.chance)}</td></tr>"
        for r in rows.sort_values(["measure", "metric", "dataset", "factor"]).itertuples()
    )
    header = head_row("measure", "metric", "images", "factor", "#value (95% interval)", "#noise floor")
    columns = ["measure", "metric", "dataset", "factor", "value", "low", "high", "chance"]
    return figure(
        f"{head} in the tables",
        f'<div class="scroll" tabindex="0"><table class="nums">{header}<tbody>{body}</tbody></table></div>',
        what="From the run’s tables. <b>Total effect</b>: the metric with this head’s output at zero, less "
        "the metric of the "
        "whole model. <b>Direct effect</b>: the head’s contribution is subtracted from the embedding, later "
        "layers do not "
        "react. <b>Selectivity</b>: the share of the head’s variance that a factor of the scene explains; "
        "compare it with "
        "the noise floor.",
        unit="change of the metric, or share of 1",
        name=f"effects-{head}",
        table=csv_text(columns, rows[columns].itertuples(index=False)),
    )


def _nan(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _or_dash(value: float | None) -> str:
    return "–" if value is None or value != value else number(float(value), 3)


def _compare(app: App, session: Session) -> str:
    """The form that sets a second head, of this model or another, beside the first."""
    state = session.state
    model = state.other_model or state.model
    sheet = app.sheet(model)
    heads = app.heads(model)
    chosen = str(state.other_head or "")
    listed = [("", "no other head")]
    for head in heads:
        card = sheet.card(head)
        listed.append((str(head), f"{head} · {card.label or 'no concept'} · {card.score}"))
    return (
        '<div class="panel compare"><h3>Compare</h3><div class="row">'
        f"{select('Model', 'other-model', [(name, name) for name in app.models], model)}"
        f"{select('Head', 'other-head', listed, chosen)}</div>{_models(app, session, sheet)}</div>"
    )


def _models(app: App, session: Session, other: Sheet) -> str:
    """Two models side by side: how many heads stand at each score and for each concept."""
    mine = app.sheet(session.state.model)
    if other.model == mine.model or not (mine.cards and other.cards):
        return ""
    concepts = sorted({*mine.concepts, *other.concepts})
    rows = [("heads", len(mine.cards), len(other.cards))]
    rows += [
        (f"{level} CCS", len(mine.level(level)), len(other.level(level)))
        for level in ("high", "moderate", "low")
    ]
    rows += [(concept, len(mine.concept(concept)), len(other.concept(concept))) for concept in concepts]
    body = "".join(
        f"<tr><td>{esc(name)}</td><td class=num>{a}</td><td class=num>{b}</td></tr>" for name, a, b in rows
    )
    return figure(
        "Two models by concept",
        f'<table class="nums">{head_row("", f"#{mine.model}", f"#{other.model}")}<tbody>{body}</tbody>'
        "</table>",
        what=(
            "How many heads of each model have a high, moderate or low CCS, and how many are named by each "
            "concept."
        ),
        unit="heads",
        name="two-models",
        table=csv_text(["", mine.model, other.model], rows),
    )
