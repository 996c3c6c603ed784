"""The view Heads: what one head has learned, by its texts, its pictures, and what its absence does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.model.model import Model
from ccs.ui.page.parts import button, csv_text, empty, esc, figure, head_row, percent, waiting
from ccs.ui.records import Card, Sheet, Text
from ccs.ui.service import attention
from ccs.ui.service.pictures import looks, pictures, seen
from ccs.ui.service.uploads import data_url
from ccs.ui.session import Session
from ccs.ui.views import comparison, driving, effects

if TYPE_CHECKING:
    from ccs.ui.app import App


def prepare(app: App, session: Session) -> Iterator[tuple[float, str]]:
    """The long work before the view is whole: yields (share done, what is being done)."""
    for model in shown(app, session):
        for share in driving.collect(app, model):
            yield share, f"Looking at {driving.DRAWN} drawn pictures"


def shown(app: App, session: Session) -> list[Model]:
    """The models of the heads on the page that have texts for pictures to be ranked by."""
    state, names = session.state, []
    for name, head in ((state.model, state.head), (state.other_model or state.model, state.other_head)):
        if head is not None and app.sheet(name).card(head).texts and name not in names:
            names.append(name)
    return [app.shelf.get(name) for name in names]


def render(app: App, session: Session, sheet: Sheet, whole: bool = True) -> str:
    """The view as HTML. With `whole` False, what stands in the tables and what is known already."""
    state = session.state
    if state.head is None:
        return empty(
            "Choose a head",
            "Each cell of the grid is one attention head. Click one to see what it has learned.",
        )
    form = comparison.form(app, session)
    card = sheet.card(state.head)
    parts = _parts(app, session, sheet, card, whole)
    title, rest = _title(card, sheet.model, state.off), _alone(app, session, card, whole)
    if state.other_head is None:
        return title + form + "".join([*parts[:3], rest, *parts[3:]])
    other = app.sheet(state.other_model or state.model)
    beside = other.card(state.other_head)
    cells = [title, _title(beside, other.model)]
    for one, two in zip(parts, _parts(app, session, other, beside, whole), strict=True):
        cells += [one, two] if one or two else []
    pairs = "".join(f'<div class="card">{cell}</div>' for cell in cells)
    return f'{form}<div class="two">{pairs}</div>{rest}{comparison.models(app, session)}'


def _parts(app: App, session: Session, sheet: Sheet, card: Card, whole: bool) -> list[str]:
    """What is shown of a head: texts, looks, driving pictures, effects, selectivity; "" for none."""
    first = (sheet.model, card.head) == (session.state.model, session.state.head)
    texts = _texts(card, session.state.text if first else -1)
    effect, selectivity = effects.tables(sheet, card.head)
    if not whole and sheet.model not in app.shelf.loaded():
        return [texts, waiting(sheet.model), "", effect, selectivity]
    try:
        model = app.shelf.get(sheet.model)
        looks = _looks(session, model, card)
        drive = driving.render(app, session, model, card, whole, text=None if first else 0)
    except InputError as error:
        told = f"{error} What stands here is from its tables."
        return [texts, empty("The model itself is not here", told), "", effect, selectivity]
    return [texts, looks, drive, effect, selectivity]


def _alone(app: App, session: Session, card: Card, whole: bool) -> str:
    """What the head's absence does to the visitor's pictures, where the model is here."""
    name = session.state.model
    if not whole and name not in app.shelf.loaded():
        return ""
    try:
        return effects.alone(session, app.shelf.get(name), card.head)
    except InputError:
        return ""  # said above


def _title(card: Card, model: str, off: HeadSet | None = None) -> str:
    """The card's head; with `off`, the heads switched off, buttons that switch this one."""
    score = f"{card.score} of {card.k}" if card.k else "not scored"
    facts = [f"<b>CCS {score}</b> ({esc(card.level_name)})"] if card.k else ["<b>not scored</b>"]
    if card.share is not None:
        facts.append(f"its texts explain {percent(card.share, 0)} of its variance")
    if card.labeler:
        facts.append(f"concept named by <code>{esc(card.labeler)}</code>")
    switch = ""
    if off is not None:
        is_off = card.head in off
        words = "Switch it on again" if is_off else "Switch it off"
        switch = button(words, "toggle", css="primary", head=card.head)
        if off != HeadSet([card.head]):
            switch += button("Switch off this one alone", "off", off=card.head)
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
    more = "".join(_text_row(rank, text, -1) for rank, text in enumerate(card.further, len(card.texts)))
    header = head_row("", "text", "share", *judges)
    if more:
        counted = ", ".join(f"{n} of {k}" for k, n in card.others) or "unknown"
        more = (
            f'<details class="more"><summary>{len(card.further)} further texts; CCS with them: {counted}'
            f'</summary><table class="texts">{header}<tbody>{more}</tbody></table></details>'
        )
    saved = csv_text(
        ["head", "rank", "text", "concept", "share", *(f"{j} {part}" for j in judges for part in _SAID)],
        [
            [
                card.head,
                i + 1,
                t.text,
                t.concept,
                f"{t.share:.6f}",
                *(cell for v in t.verdicts for cell in (_word(v.verdict), v.why)),
            ]
            for i, t in enumerate((*card.texts, *card.further))
        ],
    )
    what = (
        "TEXTSPAN picks, one after another, the texts whose directions explain most of what this head writes "
        "into the image embedding. <b>Share</b>: of the head’s variance, by the text and not by those before "
        "it. Each judge says whether a text fits the head’s concept. The <b>CCS</b> counts the texts that "
        f"all judges accept: here {card.score} of {card.k}. A missing verdict makes it unknown, never lower. "
        "Judges named <code>tags</code> are stand-ins that compare the texts’ own tags; they are not "
        "language models."
    )
    return figure(
        f"Texts that describe {card.head}",
        f'<table class="texts">{header}<tbody>{rows}</tbody></table>{more}',
        what=what,
        unit="share of the head’s variance, %",
        name=f"texts-{card.head}",
        table=saved,
    )


_SAID = ("verdict", "reason")


def _text_row(rank: int, text: Text, chosen: int) -> str:
    verdicts = "".join(
        f'<td><span class="verdict {_word(v.verdict)}">{_mark(v.verdict)}</span>'
        + (f"<small>{esc(v.why)}</small>" if v.why else "")
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


def _looks(session: Session, model: Model, card: Card) -> str:
    """Where the head looks in the visitor's pictures."""
    shown, small = pictures(session), seen(session, model)
    maps = looks(session, model, card.head.layer, session.state.off)[:, card.head.head]
    figures = "".join(
        f'<figure><img src="{data_url(attention.overlay(model, image, row))}" alt="{esc(p.name)}, lit '
        f'where {card.head} looks">'
        f"<figcaption>{esc(p.name)}<br><small>{percent(1 - float(row[0]), 0)} on the picture</small>"
        "</figcaption></figure>"
        for p, image, row in zip(shown, small, maps, strict=True)
    )
    saved = csv_text(
        ["picture", "row", "column", "attention"],
        [
            [p.name, y, x, f"{value:.5f}"]
            for p, row in zip(shown, maps, strict=True)
            for (y, x), value in np.ndenumerate(attention.patches(model, row))
        ],
    )
    return figure(
        "Where it looks",
        f'<div class="strip">{figures}</div>',
        what="The attention of the CLS token, which becomes the image embedding, over the patches of each "
        "picture. Lit: much attention; dark: little, from the least to the most attended patch of that "
        "picture. The rest of the attention, up to 100%, stays on the CLS token itself. Attention says where "
        "a head reads, not what it writes.",
        unit="attention, share of 1",
        name=f"attention-{card.head}",
        table=saved,
    )
