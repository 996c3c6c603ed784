"""The view Bias: who comes first when images of people are ranked for an occupation, before and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from markupsafe import Markup

from ccs.model.model import Model
from ccs.paper import figures as paper
from ccs.ui.actions import Action
from ccs.ui.html import count, program, render
from ccs.ui.service.galleries import DRAWN
from ccs.ui.session import Session
from ccs.ui.shared import App
from ccs.ui.state import OWN
from ccs.ui.views import claims
from ccs.ui.views.base import Empty, Figure, View, of_model
from ccs.ui.views.bias import bias_figures, fairer
from ccs.ui.views.bias.bias_figures import Measurement
from ccs.ui.views.bias.bias_query import (
    DRAWS,
    BiasQuery,
    all_occupations,
    ask,
    show_row,
    take_gallery,
)

DRAWN_WORDS = {
    "world/faces": "drawn faces",
    "world/counterfactuals": "drawn faces that differ in their groups alone",
}


class Bias(View):
    """Rankings of a gallery for occupations."""

    name = "bias"
    title = "Bias"
    purpose = "Whom the model puts first when it ranks people for an occupation."
    actions: ClassVar[Mapping[str, Action]] = {
        "bias": ask,
        "occupations": all_occupations,
        "row": show_row,
        "fairer": fairer.ask,
        "gallery": take_gallery,
    }

    def pending(self, app: App, session: Session) -> bool:
        model, name = app.model_cache.get(session.state.model), BiasQuery.of(app, session.state).gallery.name
        if app.galleries.ready(model, name, session.state.off):
            return session.wanted is not None
        return "view-bias" not in session.shown.get("main", "")  # else the figures before stay meanwhile

    def prepare(self, app: App, session: Session) -> Iterator[tuple[float, str]]:
        model, off = app.model_cache.get(session.state.model), session.state.off
        gallery = BiasQuery.of(app, session.state).gallery
        name, n = gallery.name, len(gallery.images)
        for share in app.galleries.seen(model, name):
            yield share, f"Looking at {n} images"
        yield from fairer.run(app, session, model)
        off = session.state.off
        for share in app.galleries.pruned(model, name, off):
            yield share, f"Computing the exact answer for {n} images with {count(len(off), 'head')} off"

    def render(self, app: App, session: Session, complete: bool = True) -> Markup:
        query, state = BiasQuery.of(app, session.state), session.state
        found = of_model(app, state.model, complete, lambda model: measure(app, session, model, complete))
        figures = [] if isinstance(found, Empty) else _figures(app, session, found)
        if figures and session.found is not None and session.found.fits(app, session):
            figures.insert(0, fairer.figure(session.found))
        own = set(query.gallery.occupations) != set(paper.occupations())
        return render(
            "views/bias.html",
            query=query,
            state=state,
            attributes=query.gallery.groups,
            matter=claims.that_matter(app.shown(state)),
            numbered=list(enumerate(query.occupations)),
            listed=sorted({*query.gallery.occupations, *paper.occupations()}),
            galleries=[
                (n, f"{_gallery_words(n)} ({len(app.galleries.get(n).images)})")
                for n in dict.fromkeys((*app.galleries.names, query.gallery.name))
            ],
            n_study=len(paper.occupations()),
            n_own=len(query.gallery.occupations) if own else 0,
            found=found,
            figures=figures,
        )

    def figures(self, app: App, session: Session) -> list[Figure]:
        found = measure(app, session, app.model_cache.get(session.state.model))
        assert isinstance(found, Measurement)
        return _figures(app, session, found)

    def snippet(self, app: App, session: Session) -> str:
        query, state = BiasQuery.of(app, session.state), session.state
        name = query.gallery.name
        spec, drawn = app.galleries.specs.get(name), DRAWN.get(name)
        rest = program("bias", query=query, spec=spec, drawn=drawn, draws=DRAWS)
        return program("model", model=state.model, off=state.off) + rest


def _gallery_words(name: str) -> str:
    return "your own" if name.startswith(OWN) else DRAWN_WORDS.get(name, name)


def measure(app: App, session: Session, model: Model, complete: bool = True) -> Measurement | Empty:
    """The answer to what is asked. With `complete` False nothing, unless it is at hand."""
    query, off, galleries = BiasQuery.of(app, session.state), session.state.off, app.galleries
    name = query.gallery.name
    if not complete and not galleries.ready(model, name, off):
        return Empty("The measurement is under way", "Its figures follow.")
    before, after = galleries.base(model, name), galleries.embeddings(model, name, off)
    texts = query.texts(session, model)
    return Measurement(query, *query.measure(before, after, texts), before, after, texts)


def _figures(app: App, session: Session, found: Measurement) -> list[Figure]:
    return [
        bias_figures.faces(app, found),
        bias_figures.groups(found, session.state.off),
        bias_figures.table(found),
    ]
