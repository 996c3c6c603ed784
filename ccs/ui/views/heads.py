"""The view Heads: what one head has learned, by its texts, its images, and what its absence does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import numpy as np
from markupsafe import Markup

from ccs.errors import InputError
from ccs.heads import Head, HeadSet
from ccs.model.model import Model
from ccs.ui.actions import Action, Fields, change, parse_heads
from ccs.ui.app import App
from ccs.ui.html import percent, program, render
from ccs.ui.records import HeadRecord, JudgeVerdict, ModelRecords
from ccs.ui.service import attention, top_activating
from ccs.ui.service.images import looks, seen, shown_images
from ccs.ui.service.models import saw_drawings_only
from ccs.ui.service.uploads import data_url
from ccs.ui.session import Session
from ccs.ui.state import State, parse_int
from ccs.ui.views import classify, effects
from ccs.ui.views.base import Empty, Figure, View, of_model, run_lines

Part = Figure | Empty | None


@dataclass(frozen=True)
class Card:
    """One head on the page. off: the heads switched off, None where the card has no buttons."""

    record: HeadRecord
    model: str
    parts: tuple[Part, ...]
    off: HeadSet | None


def _inspect(app: App, session: Session, fields: Fields) -> None:
    (head,) = parse_heads(app, session, str(fields.get("head", "")))
    change(session, head=head, text=0, tab=Heads.name)
    session.click = Heads.click


def _text(app: App, session: Session, fields: Fields) -> None:
    change(session, text=parse_int(fields.get("index"), "text’s number"))


def _other_model(app: App, session: Session, fields: Fields) -> None:
    name = app.known_model(fields.get("value"))
    if name == session.state.model:
        change(session, other_model="", other_head=None)
    else:
        change(session, other_model=name, other_head=app.best_head(name))


def _other_head(app: App, session: Session, fields: Fields) -> None:
    text, model = str(fields.get("value", "")), session.state.other_model or session.state.model
    if not text:
        change(session, other_head=None, other_model="")
        return
    head = Head.parse(text)
    if head not in app.heads(model):
        raise InputError(f"{head} is not in {model}.")
    change(session, other_head=head)


class Heads(View):
    """The card of one head, or of two side by side."""

    name = "heads"
    title = "Heads"
    purpose = "What each attention head writes about, by the texts that describe it."
    click = "inspect"
    actions: ClassVar[Mapping[str, Action]] = {
        "inspect": _inspect,
        "text": _text,
        "other-model": _other_model,
        "other-head": _other_head,
    }

    def models(self, state: State) -> tuple[str, ...]:
        other = state.other_model if state.other_head is not None else ""
        return tuple(filter(None, (other, state.model)))

    def pending(self, app: App, session: Session) -> bool:
        return any(model.weights_hash not in app.top_activating for model in _described(app, session))

    def prepare(self, app: App, session: Session) -> Iterator[tuple[float, str]]:
        for model in _described(app, session):
            for share in top_activating.collect(app.top_activating, model):
                yield share, f"Looking at {top_activating.DRAWN} drawn images"

    def render(self, app: App, session: Session, complete: bool = True) -> Markup:
        state = session.state
        if state.head is None:
            return render("views/heads.html", cards=[])
        cards = [_card(app, session, state.model, state.head, complete)]
        other = state.other_model or state.model
        if state.other_head is not None:
            cards.append(_card(app, session, other, state.other_head, complete))
        head, records = state.head, _records(app, state, other)
        alone = of_model(app, state.model, complete, lambda model: effects.alone(session, model, head))
        heads = [(str(h), f"{h} · {r.label or 'no concept'} · {r.score}")
                 for h in app.heads(other) for r in (records.head(h),)]  # fmt: skip
        return render(
            "views/heads.html",
            cards=cards,
            alone=alone if isinstance(alone, Figure) else None,  # the card says why not
            choices=[(n, n if n != state.model else f"{n} (this one)") for n in app.models],
            heads=[("", "no other head"), *heads],
            other=other,
            state=state,
        )

    def figures(self, app: App, session: Session) -> list[Figure]:
        """The figures of the head's tables: they need no model."""
        state = session.state
        if state.head is None:
            raise InputError(f"{state.model} has no head to show.")
        records = app.shown(state)
        found = [_texts(records.head(state.head), -1), effects.table(records, state.head)]
        return [figure for figure in found if isinstance(figure, Figure)]

    def snippet(self, app: App, session: Session) -> str:
        head, state = session.state.head, session.state
        if head is None:
            return classify.lines(session, state.off)
        tables = run_lines(app, state) + program("texts", head=head)
        return tables + classify.lines(session, effects.one(state, head))


def _described(app: App, session: Session) -> list[Model]:
    """The models of the heads on the page that have texts for images to be ranked by."""
    state = session.state
    shown = ((state.model, state.head), (state.other_model or state.model, state.other_head))
    names = dict.fromkeys(
        name
        for name, head in shown
        if saw_drawings_only(name) and head is not None and _records(app, state, name).head(head).texts
    )
    return [app.model_cache.get(name) for name in names]


def _records(app: App, state: State, name: str) -> ModelRecords:
    return app.shown(state) if name == state.model else app.records(name)


def _card(app: App, session: Session, name: str, head: Head, complete: bool) -> Card:
    """Texts, attention, top activating images, effects; None for a part that there is not."""
    state, records = session.state, _records(app, session.state, name)
    record, first = records.head(head), (name, head) == (state.model, state.head)
    text = state.text if first else 0

    def live(model: Model) -> tuple[Part, Part]:
        return _attention(session, model, head), _top_activating(app, model, record, complete, text)

    found = of_model(app, name, complete, live)
    shown = (found, None) if isinstance(found, Empty) else found
    texts = _texts(record, state.text if first else -1)
    return Card(record, name, (texts, *shown, effects.table(records, head)), state.off if first else None)


def _texts(record: HeadRecord, chosen: int) -> Figure | Empty:
    """The head's texts. chosen: the number of the text that images are ranked by; below 0 for no buttons."""
    if not record.texts:
        words = "There are no tables for this head, so what it writes about is not known."
        return Empty("No texts", f"{words} “Take it apart here”, below the grid, finds out.")
    judges = [v.judge for v in record.texts[0].verdicts]
    rows = [
        [record.head, i, t.text, t.concept, round(t.share, 6),
         *(cell for v in t.verdicts for cell in (verdict_word(v), v.why))]
        for i, t in enumerate((*record.texts, *record.further), 1)
    ]  # fmt: skip
    said = [f"{judge} {part}" for judge in judges for part in ("verdict", "reason")]
    return Figure(
        "texts",
        f"Texts that describe {record.head}",
        "share of the head’s variance, %",
        ["head", "rank", "text", "concept", "share", *said],
        rows,
        {"record": record, "judges": judges, "chosen": chosen, "word": verdict_word},
        of=str(record.head),
    )


def verdict_word(said: JudgeVerdict) -> str:
    """A verdict as a word: yes, no or unscored."""
    return "unscored" if said.verdict is None else "yes" if said.verdict else "no"


def _attention(session: Session, model: Model, head: Head) -> Figure:
    """The head's attention over the visitor's images."""
    shown, small = shown_images(session), seen(session, model)
    maps = looks(session, model, head.layer, session.state.off)[:, head.head]
    rows = [
        [image.name, y, x, round(float(value), 5)]
        for image, row in zip(shown, maps, strict=True)
        for (y, x), value in np.ndenumerate(attention.patches(model, row))
    ]
    lit = [
        (image.name, data_url(attention.overlay(model, pixels, row)), percent(1 - float(row[0]), 0))
        for image, pixels, row in zip(shown, small, maps, strict=True)
    ]
    return Figure(
        "attention",
        "Where it looks",
        "attention, share of 1",
        ["image", "row", "column", "attention"],
        rows,
        {"head": head, "lit": lit},
        of=str(head),
    )


def _top_activating(app: App, model: Model, record: HeadRecord, complete: bool, text: int) -> Part:
    """Drawn images by the head's text of that number; as long as `complete` is False only if seen already."""
    if not record.texts:
        return None
    chosen = record.texts[min(text, len(record.texts) - 1)].text
    if not saw_drawings_only(model.name):
        return Empty(
            f"Images that move {record.head}",
            "Only drawn images are at hand to be ranked, and this model has learned from photographs.",
        )
    if complete:
        for _ in top_activating.collect(app.top_activating, model):
            pass
    found = top_activating.top_activating(app.top_activating, model, record.head, chosen)
    if found is None:
        return Empty(
            f"Images that move {record.head} along “{chosen}”",
            f"They are looked for among {top_activating.DRAWN} drawn images, which takes this model a while.",
            again="Look for them",
        )
    names = top_activating.drawn()[0]
    ends = [
        (title, [(names[i], top_activating.thumb(i), z) for i, z in part])
        for title, part in zip(("farthest toward it", "farthest away from it"), found, strict=True)
    ]
    return Figure(
        "top-activating",
        f"Images that move it along “{chosen}”",
        "standard deviations",
        ["image", "text", "standard deviations"],
        [[names[i], chosen, round(z, 4)] for i, z in chain(*found)],
        {"ends": ends, "drawn": top_activating.DRAWN},
        of=str(record.head),
    )
