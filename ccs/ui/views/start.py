"""The view Start: what is known of the model in one sentence, shown on faces or a picture, and one button."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from markupsafe import Markup

from ccs.heads import HeadSet
from ccs.measures.skew import ceiling
from ccs.model.model import Model
from ccs.ui.html import render
from ccs.ui.service.examples import load_example, shown_images
from ccs.ui.service.model_cache import PHOTO
from ccs.ui.session import Session
from ccs.ui.shared import App
from ccs.ui.state import State
from ccs.ui.views import claims, classify
from ccs.ui.views.base import Empty, Figure, View, of_model
from ccs.ui.views.bias.bias_query import BiasQuery, top
from ccs.ui.views.claims import Claim

SHOWN = 12  # faces
LISTED = 4  # classes


class Start(View):
    """A claim, its evidence, and a switch."""

    name = "start"
    title = "Start"
    purpose = ""

    def pending(self, app: App, session: Session) -> bool:
        return "view-start" not in session.shown.get("main", "")

    def prepare(self, app: App, session: Session) -> Iterator[tuple[float, str]]:
        model, off = app.model_cache.get(session.state.model), session.state.off
        if claims.of(app.records(session.state.model)) is None:
            yield 0.0, "Looking for the head that matters most to a picture"
            classify.telling(app, session, model)
            return
        n = len(app.galleries.get(claims.FACES).images)
        for share in app.galleries.seen(model, claims.FACES):
            yield share, f"Looking at {n} faces"
        for share in app.galleries.pruned(model, claims.FACES, off):
            yield share, f"Looking at {n} faces without the heads"

    def render(self, app: App, session: Session, complete: bool = True) -> Markup:
        state, records = session.state, app.records(session.state.model)
        claim = claims.of(records)
        shown = of_model(app, state.model, complete, lambda model: _shown(app, session, model, complete))
        small, photo = state.model.startswith(claims.SKEWED), state.model == PHOTO
        return render(
            "views/start.html",
            state=state,
            claim=claim,
            shown=shown,
            small=small,
            photo=photo,
        )

    def snippet(self, app: App, session: Session) -> str:
        return classify.lines(session, session.state.off)


def _shown(app: App, session: Session, model: Model, complete: bool) -> Figure | Empty:
    """The evidence for the claim, or for a model without one a picture."""
    claim = claims.of(app.records(session.state.model))
    ready = claim is not None and app.galleries.ready(model, claims.FACES, session.state.off)
    if not complete and not ready:
        return Empty("It is being looked at", "The answer follows in a moment.")
    return _picture(app, session, model) if claim is None else _faces(app, session, model, claim)


def _faces(app: App, session: Session, model: Model, claim: Claim) -> Figure:
    """The first faces for the claim's occupation, and the share of the top that its group has."""
    state, gallery = session.state, app.galleries.get(claims.FACES)
    k, labels = gallery.k[claim.attribute], gallery.groups[claim.attribute]
    both = [app.galleries.embeddings(model, claims.FACES, off) for off in (HeadSet(), state.off)]
    one, every = (
        BiasQuery.of(app, State(gallery=claims.FACES, attribute=claim.attribute, occupations=asked))
        for asked in ((claim.occupation,), gallery.occupations)
    )
    before, after = (top(rows, one.texts(session, model)[0], k) for rows in both)
    shown: dict[str, Any] = {
        "claim": claim,
        "state": state,
        "k": k,
        "n": len(labels),
        "shares": [float((labels[order] == claim.group).mean()) for order in (before, after)],
        "fair": float((labels == claim.group).mean()),
        "urls": [app.face(claims.FACES, int(i)) for i in after[:SHOWN]],
        "n_occupations": len(gallery.occupations),
        "most": float(ceiling(np.unique(labels, return_counts=True)[1], k)),
        "skews": [every.mean_skew(rows, every.texts(session, model)) for rows in both],
        "word": claims.WORDS[claim.group],
        "switched": state.off == claim.off,
    }
    rows = [
        [rank, int(i), *(str(of[i]) for of in gallery.groups.values()), int(i not in before[:SHOWN])]
        for rank, i in enumerate(after[:SHOWN], 1)
    ]
    columns = ["rank", "image", *gallery.groups, "new"]
    return Figure("claim", f"Its first faces for “{claim.occupation}”", "rank", columns, rows, shown)


def _picture(app: App, session: Session, model: Model) -> Figure:
    """The first picture, its classes, and the head that matters most to it."""
    head = classify.telling(app, session, model)
    image, state = shown_images(session)[0], session.state
    known = not session.uploads and not state.classes
    classes, found, _ = classify.measure(session, model)
    before, after = found.before[0], found.after[0]
    order = np.argsort(-np.maximum(before, after), kind="stable")[:LISTED]
    return Figure(
        "picture",
        "What it sees in your picture" if session.uploads else f"What it sees in “{image.name}”",
        "probability, %",
        ["class", "before", "after"],
        [[classes[i], float(before[i]), float(after[i])] for i in order],
        {
            "head": head,
            "record": app.shown(state).head(head),
            "image": image,
            "answers": [classes[int(one.argmax())] for one in (before, after)],
            "state": state,
            "right": load_example(state.example, state.model).answers[0] if known else "",
            "switched": head in state.off,
        },
    )
