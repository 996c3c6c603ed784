"""The screen that a link names, and the worked example that stands where it names none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ccs.errors import InputError
from ccs.heads import Head, HeadSet
from ccs.ui.records import Sheet
from ccs.ui.service.cache import Memory
from ccs.ui.service.pictures import example_names, first_right, parse_example
from ccs.ui.session import Session
from ccs.ui.state import State, from_query
from ccs.ui.views import classify, task

if TYPE_CHECKING:
    from ccs.ui.app import App

EXAMPLE = "high"  # the plan that a first visit shows at work


def open_link(app: App, query: Mapping[str, str]) -> Session:
    """A new session at the screen that a link names. A link that does not say which heads are off, as the
    bare address does not, opens a worked example.
    """
    state, problems = from_query(query)
    notices = list(problems)
    if not state.model:
        state = replace(state, model=app.models[0])
    elif state.model not in app.models:
        notices.append(f"The link’s model {state.model!r} is not here; this is {app.models[0]}.")
        state = replace(state, model=app.models[0], off=HeadSet(), head=None)
    try:
        parse_example(state.example)
        classify.check_template(state.template)
    except InputError as error:
        notices.append(str(error))
        state = replace(state, example="", template="")
    known = app.heads(state.model)
    if unknown := state.off - known:
        notices.append(f"The link’s heads {HeadSet(unknown)} are not in {state.model} and were left out.")
        state = replace(state, off=HeadSet(state.off & known))
    if state.head not in known:
        state = replace(state, head=best(app, state.model))
    if "off" not in query:
        state = _example(app, state)
    session = Session(state=state, notices=notices, memory=Memory(budget=app.budget))
    session.click = "inspect" if state.tab == "heads" else "switch"
    if state.tab == "judges":
        task.offer(app, session)
    return session


def best(app: App, model: str) -> Head | None:
    """The head to open first: the highest CCS, then the most variance explained."""
    cards = app.sheet(model).cards.values()
    if not cards:
        return next(iter(app.heads(model)), None)
    return max(cards, key=lambda card: (card.ccs if card.ccs is not None else -1, card.share or 0)).head


def _example(app: App, state: State) -> State:
    """The screen with what a link left open: heads off, pictures and an attribute that show what they do."""
    sheet, known = app.sheet(state.model), app.heads(state.model)
    off = HeadSet(sheet.level(EXAMPLE) & known) or HeadSet(filter(None, [state.head]))
    if not state.example and not state.classes and (name := telling(sheet)):
        state = replace(state, example=f"{name}:{_page(app, state.model, name)}")
    if not state.attribute and not state.gallery:
        state = replace(state, attribute=telling_attribute(sheet, app.galleries.names[0]))
    return replace(state, off=off)


def _page(app: App, model: str, name: str) -> int:
    """The page of drawn pictures to open; 0 as long as the model is not in memory."""
    if model not in app.shelf.loaded():
        return 0
    loaded = app.shelf.get(model)
    return app.pages.get((loaded.weights_hash, name), lambda: first_right(loaded, name))


def telling(sheet: Sheet) -> str:
    """The drawn examples on which accuracy fell most without the high heads; "" where none was measured."""
    rows = sheet.table("pruning")
    if not len(rows):
        return ""
    wanted = (rows["plan"] == EXAMPLE) & (rows["metric"] == "top1") & (rows["subset"].fillna("") == "")
    rows = rows[wanted & rows["difference"].notna()].sort_values("difference", kind="stable")
    named = [str(name).removeprefix("world/") for name in rows["dataset"]]
    return next((name for name in named if name in example_names()), "")


def telling_attribute(sheet: Sheet, gallery: str) -> str:
    """The attribute whose MaxSkew in the gallery changed most without the high heads; "" if not measured."""
    rows = sheet.table("bias")
    if not len(rows):
        return ""
    wanted = {"plan": EXAMPLE, "metric": "MaxSkew mean", "dataset": gallery, "mode": "correct"}
    for column, value in wanted.items():
        rows = rows[rows[column] == value]
    rows = rows[rows["difference"].notna()]
    return str(rows.loc[rows["difference"].abs().idxmax(), "attribute"]) if len(rows) else ""
