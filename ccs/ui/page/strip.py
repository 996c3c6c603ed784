"""The strip that stays in every view: which heads are off, and what that changes."""

from __future__ import annotations

from markupsafe import Markup

from ccs.errors import InputError
from ccs.ui.html import render as render_template
from ccs.ui.session import Session
from ccs.ui.shared import App
from ccs.ui.views import classify
from ccs.ui.views.bias.bias_query import BiasQuery


def render(app: App, session: Session) -> Markup:
    """The strip as HTML; what is not known at once is left out."""
    state = session.state
    known = bool(state.off) and state.model in app.model_cache.loaded()
    try:
        answers, change = (_answers(app, session), skew(app, session)) if known else (None, None)
    except InputError:
        answers = change = None
    return render_template(
        "result.html",
        state=state,
        session=session,
        heads=app.heads(state.model),
        answers=answers,
        skew=change,
    )


def _answers(app: App, session: Session) -> tuple[int, int]:
    """The number of images whose answer changed, and the number of images."""
    found = classify.moves(session, app.model_cache.get(session.state.model))
    return sum(one.answer != one.now for one in found), len(found)


def skew(app: App, session: Session) -> tuple[float, float, BiasQuery] | None:
    """Mean MaxSkew before and after, and what it is of; None where it is not known."""
    model, query = app.model_cache.get(session.state.model), BiasQuery.of(app, session.state)
    name, off, galleries = query.gallery.name, session.state.off, app.galleries
    if not galleries.ready(model, name, off):
        return None
    texts = query.texts(session, model)
    both = galleries.base(model, name), galleries.embeddings(model, name, off)
    before, now = (query.mean_skew(rows, texts) for rows in both)
    return before, now, query
