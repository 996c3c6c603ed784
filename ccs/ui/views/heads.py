"""The view Heads: what one head has learned, by its texts, its images, and what its absence does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import ClassVar

import numpy as np
from markupsafe import Markup

from ccs.heads import Head, HeadSet
from ccs.model.model import Model
from ccs.ui.actions import Action, Fields, change, parse_heads
from ccs.ui.html import percent, program, render
from ccs.ui.records import HeadRecord, JudgeVerdict
from ccs.ui.service import attention, top_activating
from ccs.ui.service.examples import looks, seen, shown_images
from ccs.ui.service.model_cache import saw_drawings_only
from ccs.ui.service.uploads import data_url
from ccs.ui.session import Session
from ccs.ui.shared import App
from ccs.ui.state import parse_int
from ccs.ui.views import classify
from ccs.ui.views.base import Empty, Figure, View, of_model, run_lines

Part = Figure | Empty | None


def _inspect(app: App, session: Session, fields: Fields) -> None:
    (head,) = parse_heads(app, session, str(fields.get("head", "")))
    change(session, head=head, text=0, tab=Heads.name)


def _text(app: App, session: Session, fields: Fields) -> None:
    change(session, text=parse_int(fields.get("index"), "text’s number"))


class Heads(View):
    """The card of one head."""

    name = "heads"
    title = "Heads"
    purpose = "What each attention head writes about, by the texts that describe it."
    actions: ClassVar[Mapping[str, Action]] = {
        "inspect": _inspect,
        "text": _text,
    }

    def pending(self, app: App, session: Session) -> bool:
        model = _described(app, session)
        return model is not None and model.weights_hash not in app.top_activating

    def prepare(self, app: App, session: Session) -> Iterator[tuple[float, str]]:
        if (model := _described(app, session)) is not None:
            for share in top_activating.collect(app.top_activating, model):
                yield share, f"Looking at {top_activating.DRAWN} drawn images"

    def render(self, app: App, session: Session, complete: bool = True) -> Markup:
        state, head = session.state, session.state.head
        if head is None:
            return render("views/heads.html", record=None)
        record = app.shown(state).head(head)

        def live(model: Model) -> list[Part]:
            moved = _top_activating(app, model, record, complete, state.text)
            return [_attention(session, model, head), moved, _alone(session, model, head)]

        found = of_model(app, state.model, complete, live)
        return render(
            "views/heads.html",
            record=record,
            state=state,
            parts=[_texts(record, state.text), *([found] if isinstance(found, Empty) else found)],
        )

    def snippet(self, app: App, session: Session) -> str:
        head, state = session.state.head, session.state
        if head is None:
            return classify.lines(session, state.off)
        tables = run_lines(app, state) + program("texts", head=head)
        return tables + classify.lines(session, HeadSet([head]))


def _described(app: App, session: Session) -> Model | None:
    """The model, where the head on the page has texts for drawn images to be ranked by."""
    state = session.state
    if (
        state.head is None
        or not saw_drawings_only(state.model)
        or not app.shown(state).head(state.head).texts
    ):
        return None
    return app.model_cache.get(state.model)


def _texts(record: HeadRecord, chosen: int) -> Figure | Empty:
    """The head's texts. chosen: the number of the text that images are ranked by."""
    if not record.texts:
        words = "There are no tables for this head, so what it writes about is not known."
        return Empty("No texts", f"{words} “Take it apart here”, below the grid, finds out.")
    judges = [v.judge for v in record.texts[0].verdicts]
    rows = [
        [record.head, i, t.text, t.concept, round(t.share, 6),
         *(cell for v in t.verdicts for cell in (verdict_word(v), v.why))]
        for i, t in enumerate(record.texts, 1)
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


def _alone(session: Session, model: Model, head: Head) -> Figure:
    """The answers to the visitor's images without this head alone."""
    return Figure(
        "alone",
        f"{head} alone switched off, on these images",
        "probability, %",
        ["image", "answer", "before", "after", "answer after", "similarity"],
        classify.moves(session, model, HeadSet([head])),
        of=str(head),
    )


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
