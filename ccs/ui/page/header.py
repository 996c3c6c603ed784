"""The head of the page: which model, which view, what to know first; and the strip: what is off."""

from __future__ import annotations

from markupsafe import Markup

from ccs.errors import InputError
from ccs.ui.actions import ANOTHER
from ccs.ui.html import render as render_template
from ccs.ui.service.model_cache import PHOTO, live, photographic, saw_drawings_only
from ccs.ui.session import Session
from ccs.ui.shared import App
from ccs.ui.state import State
from ccs.ui.views import VIEWS, classify
from ccs.ui.views.bias.bias_query import BiasQuery

PHOTO_WORDS = "photo was taught 200 kinds of things from small photographs; its answers are often wrong."
GROUPS = {
    "computed": "computed: with texts and CCS",
    "live": "live: fetched when chosen",
    "named": "named here",
}


def render(app: App, session: Session) -> Markup:
    """The head of the page: which model, which view, what to know first, and how to take the screen along."""
    state = session.state
    try:
        code = VIEWS[state.tab].snippet(app, session)
    except InputError as error:
        code = f"# {error}\n"
    return render_template(
        "top.html",
        model=state.model,
        groups=[(GROUPS[group], [(n, _listed(n)) for n in names]) for group, names in app.groups.items()],
        another=ANOTHER,
        naming=session.naming,
        offer=session.offer,
        cost=session.offer.sentence if session.offer else "",
        views=VIEWS.values(),
        view=VIEWS[state.tab],
        code=code,
        own=len(session.uploads),
        notices=session.notices,
        drawings=saw_drawings_only(state.model) and bool(session.uploads),
        photographic=photographic(),
        standing=[*app.collection.notices, *_standing(app, state)],
    )


def _listed(name: str) -> str:
    """A model as it stands in the list, with what its weights weigh where they are fetched."""
    size = live().get(name)
    return f"{name} · {size / 1e9:.1f} GB" if size else name


def _standing(app: App, state: State) -> list[str]:
    """Notices that hold as long as this model is shown."""
    name, records = state.model, app.shown(state)
    results, told = records.results, [PHOTO_WORDS] if name == PHOTO else []
    if results is None:
        printed = records.published
        what = "texts. The grid shows what the study printed of them." if printed else "texts and no scores."
        tables = f"There are no tables for {name}, so its heads have no {what} They can be switched off."
        return [tables, *told]
    if name not in app.model_cache.loaded():
        return told
    try:
        actual = app.model_cache.get(name).weights_hash
    except InputError as error:
        return [str(error)]
    if actual == str(results.manifest["model"]["weights_hash"]):
        return told
    return [
        *told,
        f"The tables of {name} were computed from other weights than those loaded here; texts and scores may "
        "not match it. Compute them again with: python -m batch.compute",
    ]


def render_strip(app: App, session: Session) -> Markup:
    """The strip as HTML; what is not known at once is left out."""
    state = session.state
    known = bool(state.off) and state.model in app.model_cache.loaded()
    try:
        answers, change = (_answers(app, session), skew(app, session)) if known else (None, None)
    except InputError:
        answers = change = None
    return render_template(
        "strip.html",
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
