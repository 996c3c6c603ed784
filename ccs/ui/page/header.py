"""The head of the page: which model, which view, what to know first."""

from __future__ import annotations

from markupsafe import Markup

from ccs.errors import InputError
from ccs.ui.actions import ANOTHER
from ccs.ui.html import render as render_template
from ccs.ui.service.model_cache import PHOTO, live, photographic, saw_drawings_only
from ccs.ui.views import VIEWS
from ccs.ui.views.screen import Screen

PHOTO_WORDS = "photo was taught 200 kinds of things from small photographs; its answers are often wrong."
GROUPS = {
    "computed": "computed: with texts and CCS",
    "live": "live: fetched when chosen",
    "named": "named here",
}


def render(screen: Screen) -> Markup:
    """The head of the page: which model, which view, what to know first, and how to take the screen along."""
    app, session, state = screen.app, screen.session, screen.state
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
        own=len(session.uploads),
        notices=session.notices,
        drawings=saw_drawings_only(state.model) and bool(session.uploads),
        photographic=photographic(),
        standing=[*app.collection.notices, *_standing(screen)],
    )


def _listed(name: str) -> str:
    """A model as it stands in the list, with what its weights weigh where they are fetched."""
    size = live().get(name)
    return f"{name} · {size / 1e9:.1f} GB" if size else name


def _standing(screen: Screen) -> list[str]:
    """Notices that hold as long as this model is shown."""
    name, records = screen.state.model, screen.records
    results, told = records.results, [PHOTO_WORDS] if name == PHOTO else []
    if results is None:
        printed = records.published
        what = "texts. The grid shows what the study printed of them." if printed else "texts and no scores."
        tables = f"There are no tables for {name}, so its heads have no {what} They can be switched off."
        return [tables, *told]
    if not screen.has_model:
        return told
    try:
        actual = screen.model.weights_hash
    except InputError as error:
        return [str(error)]
    if actual == str(results.manifest["model"]["weights_hash"]):
        return told
    return [
        *told,
        f"The tables of {name} were computed from other weights than those loaded here; texts and scores may "
        "not match it. Compute them again with: clip-ccs compute",
    ]
