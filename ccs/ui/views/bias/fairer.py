"""Find me a fairer set: the search for heads, on the visitor's prompts and gallery, while they watch.

The search runs in a thread of its own beside the generator that tells of it. Where that generator is closed,
because the visitor has canceled or left, the thread stops before the next images.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccs.errors import InputError
from ccs.measures.accuracy import class_weights
from ccs.model.model import Model
from ccs.model.tower import Trunk
from ccs.pruning.search import HeldOut, Limits, SearchResult, search, task_of
from ccs.sets.kinds import ClassificationSet
from ccs.sets.rows import spread
from ccs.ui.actions import Fields, change, set_off
from ccs.ui.html import count
from ccs.ui.service.galleries import DRAWN, world
from ccs.ui.session import Session
from ccs.ui.shared import App
from ccs.ui.state import parse_int
from ccs.ui.views.base import Figure
from ccs.ui.views.bias.bias_query import BiasQuery
from ccs.ui.views.screen import Screen

LOSSES = (0, 1, 2, 5, 10)  # points of accuracy that may be lost
THINGS = 300  # that are looked at, evenly spaced
MAX_HEADS, SCREEN = 5, 8
DRAWS = 400


@dataclass(frozen=True)
class Fairer:
    """A search that has ended, with what it was asked: model and query, and the accuracy that may be lost."""

    model: str
    query: BiasQuery
    max_loss: float
    result: SearchResult

    def fits(self, screen: Screen) -> bool:
        """True where the screen still asks what the search answered."""
        state = screen.state
        return self.model == state.model and self.query.asked == BiasQuery.of(screen.app, state).asked


def ask(app: App, session: Session, fields: Fields) -> None:
    """Begin a search; InputError where there is too little to search on."""
    loss = parse_int(fields.get("loss"), "accuracy that may be lost")
    query = BiasQuery.of(app, session.state)
    if loss > 100:
        raise InputError(f"At most 100 points of accuracy can be lost, not {loss}.")
    if len(query.occupations) < 2 or query.k < 2:
        raise InputError(
            "A search needs two occupations or more and K of 2 or more: it looks at one half and reports the "
            f"other. There {'is' if len(query.occupations) == 1 else 'are'} "
            f"{count(len(query.occupations), 'occupation')}, and K is {query.k}."
        )
    session.wanted = Limits(max_loss=loss / 100, max_heads=MAX_HEADS, screen=SCREEN)
    change(session, tab="bias")


class _Watched:
    """The model as the search sees it: images are numbers of trunks' rows. Counts what is done, and stops."""

    def __init__(self, model: Model, trunk: Trunk) -> None:
        self.heads, self._model, self._trunk = model.heads, model, trunk
        self.stop = threading.Event()
        self.done = 0

    def embed_images(self, images: np.ndarray, off: Any = None) -> np.ndarray:
        parts = []
        plans = list(off)
        for start in range(0, len(images), 100):
            if self.stop.is_set():
                raise InputError("The search was canceled.")
            part = Trunk(self._trunk.tokens[images[start : start + 100]], self._trunk.layer)
            parts.append(self._model.embed_images(part, plans))
            self.done += len(part) * len(plans)
        return np.concatenate(parts, axis=1)


def run(screen: Screen) -> Iterator[tuple[float, str]]:
    """Search, tell of it, and switch the heads that were found off."""
    app, session, model = screen.app, screen.session, screen.model
    limits, query = session.wanted, BiasQuery.of(app, session.state)
    session.wanted = None  # asked once: who cancels has canceled
    if limits is None:
        return
    galleries, name = app.galleries, world(model.name).things
    try:
        for share in galleries.seen(model, name):
            yield 0.1 * share, "Looking at pictures of things"
        pictures = galleries.find(name)
    except InputError as error:  # the view speaks of its gallery alone, not of what only the search reads
        session.tell(f"Nothing was searched: {error}")
        return
    assert isinstance(pictures, ClassificationSet)
    people, others = galleries.known(model, query.gallery.name), galleries.known(model, name)
    if people is None or others is None or people.trunk is None or others.trunk is None:
        session.tell("This gallery is too large to be searched here: clip-ccs search does it.")
        return
    n, chosen = len(people.trunk), np.array(spread(len(pictures.images), THINGS))
    model_seen = _Watched(model, Trunk.joined([people.trunk, others.trunk]))
    task = task_of(
        query.question(query.texts(session, model)),
        people=np.arange(n),
        things=n + chosen,
        labels=pictures.labels[chosen],
        class_weights=class_weights(model, pictures.classes, pictures.templates),
    )
    said = [f"Switching each of {len(model.heads)} heads off alone, on one half of the faces"]
    whole = (n + len(chosen)) / 2 * (len(model.heads) + limits.max_heads * limits.screen / 2)
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(search, model_seen, task, limits, draws=DRAWS, tell=said.append)
        try:
            while not found.done():
                yield 0.1 + 0.9 * min(model_seen.done / whole, 1.0), said[-1]
                try:
                    found.result(timeout=0.3)
                except NotYet:
                    continue
            result = found.result()
        except InputError as error:
            session.tell(str(error))
            return
        finally:
            model_seen.stop.set()
    session.found = Fairer(session.state.model, query, limits.max_loss, result)
    if result.off:
        set_off(session, result.off)


def figure(found: Fairer) -> Figure:
    """What the search found, on the half that it did not see."""
    held: dict[str, HeldOut] = {one.plan: one for one in found.result.held_out}
    rows = [
        [one.plan, one.heads, *(v for e in (one.max_skew, one.max_skew_change, one.accuracy_change)
                                for v in (e.value, e.low, e.high))]
        for one in found.result.held_out
    ]  # fmt: skip
    columns = ["set", "heads", *(f"{name}{end}" for name in ("MaxSkew", "MaxSkew change", "accuracy change")
                                 for end in ("", " low", " high"))]  # fmt: skip
    shown = {
        "found": found,
        "things": "drawn things" if world(found.model) == DRAWN else "ten kinds of things (CIFAR-10)",
        "off": found.result.off,
        "start": held["none"],
        "best": held.get("searched"),
        "steps": sorted(
            (one for one in found.result.held_out if one.plan != "none"), key=lambda one: len(one.heads)
        ),
    }
    return Figure("fairer", "A fairer set", "natural log; points of accuracy", columns, rows, shown)
