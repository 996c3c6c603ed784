"""The strip above every view: what is off, and what that changes as far as it is known at once."""

from __future__ import annotations

from markupsafe import Markup

from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.ui.html import render as render_template
from ccs.ui.views import classify
from ccs.ui.views.bias.bias_query import BiasQuery
from ccs.ui.views.screen import Screen


def render(screen: Screen) -> Markup:
    """The strip as HTML; what is not known at once is left out."""
    answers = change = None
    if screen.state.off and screen.has_model:
        try:
            answers, change = _answers(screen), skew(screen)
        except InputError:
            answers = change = None
    return render_template(
        "strip.html",
        state=screen.state,
        session=screen.session,
        answers=answers,
        skew=change,
    )


def _answers(screen: Screen) -> tuple[int, int]:
    """The number of images whose answer changed, and the number of images."""
    moves = classify.moves(screen)
    return sum(move.answer != move.now for move in moves), len(moves)


def skew(screen: Screen) -> tuple[float, float, BiasQuery] | None:
    """Mean MaxSkew before and after, and what it is of; None where it is not known."""
    model, query = screen.model, BiasQuery.of(screen.app, screen.state)
    name, state, galleries = query.gallery.name, screen.state, screen.app.galleries
    if not galleries.ready(model, name, state.image_off):
        return None
    both = galleries.base(model, name), galleries.embeddings(model, name, state.image_off)
    texts = (query.texts(screen.session, model, off) for off in (HeadSet(), state.text_off))
    before, now = map(query.mean_skew, both, texts)
    return before, now, query
