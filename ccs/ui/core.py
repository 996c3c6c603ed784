"""What the app holds for everyone, and the page it shows to one visitor."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.models import Model
from ccs.results import Collection
from ccs.ui import about, bias, classify, heads, judges, left, paradox, top
from ccs.ui.galleries import Galleries
from ccs.ui.parts import empty
from ccs.ui.session import Memory, Session
from ccs.ui.shelf import Shelf, shipped
from ccs.ui.tables import Sheet, sheet
from ccs.ui.uploads import data_url

log = logging.getLogger(__name__)

FACE_SIDE = 96


class App:
    """Results, models and galleries: shared by all visitors, never changed by one for another."""

    def __init__(self, collection: Collection, uploads: Path, galleries: Galleries | None = None) -> None:
        self.collection = collection
        self.shelf = Shelf()
        self.galleries = galleries or Galleries()
        self.uploads = uploads
        self._sheets: dict[str, Sheet] = {}
        self._driving = Memory(2)
        self._faces = Memory(2000)
        self._lock = threading.Lock()

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
        try:
            self.driving(self.shelf.get(self.models[0]))
        except InputError as error:
            log.warning("the first model cannot be loaded: %s", error)

    def face(self, gallery: str, index: int) -> str:
        return self._faces.get(
            (gallery, index), lambda: data_url(self.galleries.image(gallery, index), FACE_SIDE)
        )

    def driving(self, model: Model) -> tuple[tuple[str, ...], np.ndarray, tuple[str, ...]]:
        """Drawn pictures for "what drives this head": captions, direct effects [n, heads, d], thumbnails."""

        def make() -> tuple[tuple[str, ...], np.ndarray, tuple[str, ...]]:
            from ccs.world import captions, sets

            drawn = sets.image_set(heads.DRIVEN, seed=4)
            images = [drawn.images[i] for i in range(heads.DRIVEN)]
            order = list(model.heads)
            direct = np.concatenate(
                [
                    model.contributions(images[i : i + 100]).direct[
                        :, [h.layer for h in order], [h.head for h in order]
                    ]
                    for i in range(0, len(images), 100)
                ]
            )
            assert isinstance(drawn.images, sets.Drawn)
            names = tuple(captions(scene)[0] for scene in drawn.images.scenes)
            return names, direct, tuple(data_url(image, FACE_SIDE) for image in images)

        with self._lock:
            return self._driving.get(model.weights_hash, make)


# -- what is shown -------------------------------------------------------------------------------------------


def regions(app: App, session: Session, exact: bool = True) -> dict[str, str]:
    """The page in three pieces of HTML: `top`, `left`, `main`."""
    state = session.state
    table, known = app.sheet(state.model), app.heads(state.model)
    return {
        "top": top.render(app, session),
        "left": left.render(session, table, known),
        "main": _main(state.tab, _view(app, session, table, exact)),
    }


def failed(app: App, session: Session, words: str) -> dict[str, str]:
    """The page where the view itself could not be made: the rest of it still works."""
    state = session.state
    table, known = app.sheet(state.model), app.heads(state.model)
    return {
        "top": top.render(app, session),
        "left": left.render(session, table, known),
        "main": _main(state.tab, empty("This view cannot be shown", words)),
    }


def _main(tab: str, body: str) -> str:
    return f'<div class="view view-{tab}"><h2 class="sr">{top.TITLES[tab]}</h2>{body}</div>'


def _view(app: App, session: Session, table: Sheet, exact: bool) -> str:
    match session.state.tab:
        case "heads":
            return heads.render(app, session, table)
        case "classify":
            return classify.render(app, session, table)
        case "bias":
            return bias.render(app, session, exact)
        case "paradox":
            return paradox.render(app, session)
        case "judges":
            return judges.render(app, session, table)
        case _:
            return about.render(app, session, table)


def work(app: App, session: Session) -> Iterator[tuple[float, str]]:
    """The long part of showing this screen, where it has one: yields (share done, what is being done)."""
    if session.state.tab == "bias":
        yield from bias.prepare(app, session)


def instant(app: App, session: Session) -> bool:
    """Whether an estimate can be shown while `work` goes on."""
    if session.state.tab != "bias" or not session.state.off:
        return False
    try:
        model, name = app.shelf.get(session.state.model), bias.asked(app, session).gallery.name
    except InputError:
        return False
    seen = app.galleries.known(model, name)
    return (
        seen is not None
        and seen.direct is not None
        and not app.galleries.ready(model, name, session.state.off)
    )
