"""The screen that a link names, and the worked example that stands where it names none."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.results import queries
from ccs.ui import claims
from ccs.ui.app import App
from ccs.ui.records import ModelRecords
from ccs.ui.service import top_activating
from ccs.ui.service.cache import Memory
from ccs.ui.service.images import example_names, first_example, first_telling, parse_example
from ccs.ui.session import Session
from ccs.ui.state import State, from_query, one_of, template
from ccs.ui.views import VIEWS
from ccs.ui.views.bias.query import BiasQuery
from ccs.ui.views.start import Start

log = logging.getLogger(__name__)

RANKINGS = ("bias", "paradox")  # the views on which the heads of a claim are off
EXAMPLE = "high"  # the plan whose effect chooses the drawn examples


def open_link(app: App, query: Mapping[str, str]) -> Session:
    """A new session at the screen that a link names. The bare address opens the view Start; another link that
    does not say which heads are off opens a worked example.
    """
    state, problems = from_query(query)
    bare = not set(query) & (set(vars(state)) - {"model"})
    if bare:
        state = replace(state, tab=Start.name)
    notices = list(problems)
    if not state.model:
        state = replace(state, model=app.first)
    elif state.model not in app.models:
        notices.append(
            f"The link’s model {state.model!r} is not here; this is {app.first}. "
            "Others can be named under “another …” in the list of models."
        )
        state = replace(state, model=app.first, off=HeadSet(), head=None)
    try:
        one_of(state.tab, tuple(VIEWS), "view")
    except InputError as error:
        notices.append(str(error))
        state = replace(state, tab=State().tab)
    try:
        parse_example(state.example)
        template(state.template)
    except InputError as error:
        notices.append(str(error))
        state = replace(state, example="", template="")
    if not state.example:
        state = replace(state, example=first_example(state.model))
    try:
        BiasQuery.of(app, state)
    except InputError as error:
        notices.append(f"The link’s gallery and K were left out: {error}")
        state = replace(state, gallery="", k=0)
    known = app.heads(state.model)
    if unknown := state.off - known:
        notices.append(f"The link’s heads {HeadSet(unknown)} are not in {state.model} and were left out.")
        state = replace(state, off=HeadSet(state.off & known))
    if state.head not in known:
        state = replace(state, head=app.best_head(state.model))
    if "off" not in query:
        state = _example(app, state, bare)
    return Session(state, Memory(app.memory), click=VIEWS[state.tab].click, notices=notices)


def warm(app: App) -> None:
    """Load what the opening page needs, before anyone asks."""
    first = app.first
    try:
        for _ in app.model_cache.loading(first, seconds=3600):
            pass
        session = open_link(app, {})
        for _ in VIEWS[session.state.tab].prepare(app, session):
            pass
        if app.records(first).results is None:
            return
        model, faces = app.model_cache.get(first), app.galleries.names[0]
        for _ in chain(
            app.galleries.collect(model, faces), top_activating.collect(app.top_activating, model)
        ):
            pass
        claim = claims.of(app.records(first))
        app.galleries.embeddings(model, faces, claim.off if claim else HeadSet())
        open_link(app, {"tab": "classify"})  # its example
    except InputError as error:
        log.warning("the first model cannot be loaded: %s", error)


def _example(app: App, state: State, whole: bool) -> State:
    """The screen with what a link left open: heads off, images and an attribute that show what they do.

    whole: every head stays on, for the view has the switch.
    """
    records, known = app.shown(state), app.heads(state.model)
    claim = claims.of(records)
    high = HeadSet(records.level(EXAMPLE) & known) or HeadSet(filter(None, [state.head]))
    off = HeadSet(claim.off & known) if claim and state.tab in RANKINGS else high
    off = HeadSet() if whole else off
    if not state.example and not state.classes and (name := telling(records)):
        state = replace(state, example=f"{name}:{_page(app, state.model, name, high)}")
    if not state.attribute and not state.gallery:
        attribute = claim.attribute if claim else telling_attribute(records, app.galleries.names[0])
        state = replace(state, attribute=attribute)
    return replace(state, off=off)


def _page(app: App, model: str, name: str, off: HeadSet) -> int:
    """The page of drawn images to open; 0 as long as the model is not in memory."""
    if model not in app.model_cache.loaded():
        return 0
    loaded = app.model_cache.get(model)
    return app.derived.get(("page", loaded.weights_hash, name), lambda: first_telling(loaded, name, off))


def telling(records: ModelRecords) -> str:
    """The drawn examples on which accuracy fell most without the high heads; "" where none was measured."""
    if records.results is None:
        return ""
    rows = queries.of_plan(queries.top1(records.results), EXAMPLE).dropna(subset="difference")
    named = [
        str(name).removeprefix("world/") for name in rows.sort_values("difference", kind="stable")["dataset"]
    ]
    return next((name for name in named if name in example_names()), "")


def telling_attribute(records: ModelRecords, gallery: str) -> str:
    """The attribute whose MaxSkew in the gallery changed most without the high heads; "" if not measured."""
    if records.results is None:
        return ""
    rows = queries.max_skew(records.results, target=None, dataset=gallery)
    found = queries.of_plan(rows, EXAMPLE).dropna(subset="difference").to_dict("records")
    return str(max(found, key=lambda row: abs(row["difference"]))["attribute"]) if found else ""
