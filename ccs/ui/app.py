"""What the app holds for everyone, and the page it shows to one visitor."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.results import Collection
from ccs.ui.page import left, top
from ccs.ui.page.parts import empty
from ccs.ui.records import Sheet, sheet
from ccs.ui.service.cache import Budget, Memory
from ccs.ui.service.galleries import Galleries
from ccs.ui.service.models import KEPT, Shelf, shipped
from ccs.ui.service.uploads import data_url
from ccs.ui.session import Session
from ccs.ui.views import about, bias, classify, driving, heads, judges, paradox

log = logging.getLogger(__name__)

FACE_SIDE = 96
LIVE = ("heads", "classify", "bias")  # views for which a model computes


class App:
    """Results, models and galleries: shared by all visitors, never changed by one for another."""

    def __init__(self, collection: Collection, uploads: Path, galleries: Galleries | None = None) -> None:
        self.collection = collection
        self.shelf = Shelf()
        self.galleries = galleries or Galleries()
        self.uploads = uploads
        self._sheets: dict[str, Sheet] = {}
        self.budget = Budget()
        self.driving = Memory(KEPT)
        self.pages = Memory()
        self._faces = Memory(2000)

    @property
    def models(self) -> tuple[str, ...]:
        """The models that can be chosen: those shipped, and those with tables."""
        return tuple(dict.fromkeys((*shipped(), *self.collection.models)))

    def sheet(self, model: str) -> Sheet:
        """A model's tables as records; one without cards where there are none."""
        if model not in self._sheets:
            self._sheets[model] = sheet(model, self.collection.models.get(model))
        return self._sheets[model]

    def heads(self, model: str) -> HeadSet:
        """The heads that can be switched off: the tables', or the model's own where there are no tables."""
        found = self.sheet(model).heads
        if found:
            return found
        try:
            return self.shelf.get(model).heads
        except InputError:
            return HeadSet()

    def warm(self) -> None:
        """Load what the opening page needs, before anyone asks."""
        from ccs.ui import opening

        try:
            for _ in driving.collect(self, self.shelf.get(self.models[0])):
                pass
            opening.open_link(self, {})
        except InputError as error:
            log.warning("the first model cannot be loaded: %s", error)

    def face(self, gallery: str, index: int) -> str:
        return self._faces.get(
            (gallery, index), lambda: data_url(self.galleries.image(gallery, index), FACE_SIDE)
        )


# -- what is shown -------------------------------------------------------------------------------------------


def regions(app: App, session: Session, whole: bool = True) -> dict[str, str]:
    """The page as HTML: `top`, `left` and `main`; with `whole` False, what can be shown at once."""
    return _page(app, session, _view(app, session, app.sheet(session.state.model), whole))


def failed(app: App, session: Session, words: str) -> dict[str, str]:
    """The page where the view itself could not be made: the rest of it still works."""
    return _page(app, session, empty("This view cannot be shown", words))


def _page(app: App, session: Session, body: str) -> dict[str, str]:
    state = session.state
    return {
        "top": top.render(app, session),
        "left": left.render(session, app.sheet(state.model), app.heads(state.model)),
        "main": _main(state.tab, body),
    }


def _main(tab: str, body: str) -> str:
    return f'<div class="view view-{tab}"><h2 class="sr">{top.TITLES[tab]}</h2>{body}</div>'


def _view(app: App, session: Session, table: Sheet, whole: bool) -> str:
    match session.state.tab:
        case "heads":
            return heads.render(app, session, table, whole)
        case "classify":
            return classify.render(app, session, table, whole)
        case "bias":
            return bias.render(app, session, whole)
        case "paradox":
            return paradox.render(app, session)
        case "judges":
            return judges.render(session, table)
        case _:
            return about.render(app, session, table)


def work(app: App, session: Session) -> Iterator[tuple[float, str]]:
    """The long part of showing this screen, where it has one: yields (share done, what is being done)."""
    state = session.state
    if state.tab not in LIVE:
        return
    try:
        for name in _missing(app, session):
            yield 0.0, f"Loading {name}"
            app.shelf.get(name)
        if state.tab == "heads":
            yield from heads.prepare(app, session)
        elif state.tab == "bias":
            yield from bias.prepare(app, session)
    except InputError:
        return  # the view says it, beside what can be shown all the same


def _missing(app: App, session: Session) -> list[str]:
    """The models that the view computes with and that are not in memory."""
    state = session.state
    other = state.other_model if state.tab == "heads" and state.other_head is not None else ""
    return [name for name in (other, state.model) if name and name not in app.shelf.loaded()]


def first(app: App, session: Session) -> bool:
    """Whether a part of the view, or an estimate, should be shown while `work` goes on."""
    state = session.state
    if state.tab not in LIVE:
        return False
    if _missing(app, session):
        return True
    try:
        model = app.shelf.get(state.model)
        if state.tab == "heads":
            return any(driving.known(app, one) is None for one in heads.shown(app, session))
        if state.tab == "bias":
            name = bias.asked(app, session).gallery.name
            if app.galleries.ready(model, name, state.off):
                return False
            seen = app.galleries.known(model, name)
            # Where there is no estimate, the figures before stay until the new ones are there.
            return (seen is not None and seen.direct is not None) or "view-bias" not in session.shown.get(
                "main", ""
            )
    except InputError:
        return False
    return False
