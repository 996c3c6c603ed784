"""The screen that a link names, and the worked example that stands where it names none."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.results import queries
from ccs.ui.app import App
from ccs.ui.records import ModelRecords
from ccs.ui.service import top_activating
from ccs.ui.service.cache import Memory
from ccs.ui.service.images import example_names, first_example, first_right, parse_example
from ccs.ui.session import Session
from ccs.ui.state import State, from_query, one_of, template
from ccs.ui.views import VIEWS

log = logging.getLogger(__name__)

EXAMPLE = "high"  # the plan that a first visit shows at work


def open_link(app: App, query: Mapping[str, str]) -> Session:
    """A new session at the screen that a link names. A link that does not say which heads are off, as the
    bare address does not, opens a worked example.
    """
    state, problems = from_query(query)
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
    known = app.heads(state.model)
    if unknown := state.off - known:
        notices.append(f"The link’s heads {HeadSet(unknown)} are not in {state.model} and were left out.")
        state = replace(state, off=HeadSet(state.off & known))
    if state.head not in known:
        state = replace(state, head=app.best_head(state.model))
    if "off" not in query:
        state = _example(app, state)
    return Session(state, Memory(app.memory), click=VIEWS[state.tab].click, notices=notices)


def warm(app: App) -> None:
    """Load what the opening page needs, before anyone asks."""
    first = app.first
    try:
        for _ in app.model_cache.loading(first, seconds=3600):
            pass
        if app.records(first).results is not None:
            for _ in top_activating.collect(app.top_activating, app.model_cache.get(first)):
                pass
        open_link(app, {})
    except InputError as error:
        log.warning("the first model cannot be loaded: %s", error)


def _example(app: App, state: State) -> State:
    """The screen with what a link left open: heads off, images and an attribute that show what they do."""
    records, known = app.shown(state), app.heads(state.model)
    off = HeadSet(records.level(EXAMPLE) & known) or HeadSet(filter(None, [state.head]))
    if not state.example and not state.classes and (name := telling(records)):
        state = replace(state, example=f"{name}:{_page(app, state.model, name)}")
    if not state.attribute and not state.gallery:
        state = replace(state, attribute=telling_attribute(records, app.galleries.names[0]))
    return replace(state, off=off)


def _page(app: App, model: str, name: str) -> int:
    """The page of drawn images to open; 0 as long as the model is not in memory."""
    if model not in app.model_cache.loaded():
        return 0
    loaded = app.model_cache.get(model)
    return app.derived.get(("page", loaded.weights_hash, name), lambda: first_right(loaded, name))


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
