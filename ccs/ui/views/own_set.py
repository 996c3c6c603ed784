"""The visitor's own set of heads as a point of the Paradox: measured while they watch, with where it was."""

from __future__ import annotations

from collections.abc import Iterator

from ccs.heads import HeadSet
from ccs.measures import accuracy
from ccs.measures.accuracy import class_weights
from ccs.measures.stats import Effect
from ccs.model.model import Model
from ccs.plans import PlanName
from ccs.ui.app import App
from ccs.ui.service.galleries import thing_names, things
from ccs.ui.session import Session
from ccs.ui.state import State
from ccs.ui.views.bias.query import BiasQuery
from ccs.ui.views.points import NONE, Choice, Measured

OWN = PlanName("your own set")
TRAIL = 6  # sets that were off before


def can_be_measured(app: App, x: Choice, y: Choice) -> bool:
    """True where both quantities are of images at hand: drawn classes, and a gallery with one pool."""
    dataset, subset, metric = x.columns
    faces, _, _, mode = y.columns
    if metric != "top1" or subset or dataset not in thing_names():
        return False
    return mode == "correct" and faces in app.galleries.names and app.galleries.get(faces).pools is None


def measure(app: App, session: Session, model: Model, x: Choice, y: Choice) -> Iterator[float]:
    """Embed the images with the heads off: yields the share that is done."""
    for i, name in enumerate((x.columns[0], y.columns[0])):
        for share in app.galleries.pruned(model, name, session.state.off):
            yield (i + share) / 2


def points(app: App, session: Session, x: Choice, y: Choice) -> list[Measured]:
    """The sets that were off, up to the one that is off now, as far as they are measured."""
    state = session.state
    if not can_be_measured(app, x, y) or state.model not in app.model_cache.loaded():
        return []
    model = app.model_cache.get(state.model)
    found = [_point(app, session, model, off, x, y) for off in (*session.past[-TRAIL:], state.off)]
    return [one for one in found if one is not None]


def _point(app: App, session: Session, model: Model, off: HeadSet, x: Choice, y: Choice) -> Measured | None:
    seen = x.columns[0], y.columns[0]
    if not off or not all(app.galleries.ready(model, name, off) for name in seen):
        return None

    def change() -> tuple[float, float]:
        faces, attribute, target, _ = y.columns
        shown, occupations = things(x.columns[0]), app.galleries.get(faces).occupations
        asked = State(gallery=faces, attribute=attribute, target=target, occupations=occupations)
        query = BiasQuery.of(app, asked)
        weights, texts = class_weights(model, shown.classes, shown.templates), query.texts(session, model)
        both = []
        for heads in (HeadSet(), off):
            rows, people = (app.galleries.embeddings(model, name, heads) for name in seen)
            right = float(accuracy.correct(rows, weights, shown.labels).mean())
            both.append((right, query.mean_skew(people, texts)))
        (right, skew), (now, left) = both
        return now - right, left - skew

    key = ("own set", model.weights_hash, off, x.key, y.key)
    across, up = (Effect(value, NONE, NONE, NONE) for value in session.memory.get(key, change))
    return Measured(session.state.model, OWN.ablated(off.ablation), None, str(off), len(off), across, up)
