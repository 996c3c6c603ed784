"""The screen that an address names, and its checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from ccs.app.services.examples import first_example, parse_example
from ccs.app.session import App, Screen, Session
from ccs.app.state import NO_HEADS, OWN, State, require_choice
from ccs.app.views.query import BiasQuery
from ccs.errors import InputError

MAX_ADDRESS = 20_000  # characters
OTHER_FILES = "someone's own {}, which no link holds; the results here are of others."


def parse_query(address: str) -> dict[str, str]:
    """Return the fields of an address's query."""
    return dict(parse_qsl(address[:MAX_ADDRESS].removeprefix("?")))


def open_screen(app: App, session: Session, query: Mapping[str, str]) -> Screen:
    """Return the screen that an address names; sentences about unusable parts are added to the session.

    The bare address opens the view Start. Unless it names heads to ablate, all heads are on.

    Args:
        app: What visitors share.
        session: The visitor's session.
        query: The fields of the address.
    """
    screen, notices = Screen(app, session, State()), list[str]()
    names = [name for name in vars(screen.state) if name in query]
    if names in ([], ["model"]):
        screen.change(tab="start")
    for name in names:
        with _part(screen, notices):
            screen.change(**{name: query[name]})
    settle(screen, notices)
    if screen.state.head and "encoder" not in query:
        screen.change(encoder=screen.state.head.encoder)
    session.notify(*notices)
    return screen


def settle(screen: Screen, notices: list[str] | None = None) -> None:
    """Check a screen's state against the app, and fill in what it leaves open.

    Args:
        screen: The screen.
        notices: Gets a sentence about each part that can't be used, which is then left out.

    Raises:
        InputError: If a part can't be used and there are no `notices`.
    """
    app, session, part = screen.app, screen.session, partial(_part, screen, notices)
    with part(model="", ablate=NO_HEADS, head=None) as state:
        app.require_model(state.model or app.model_cache.first)
    screen.change(model=screen.state.model or app.model_cache.first)
    with part(ablate=NO_HEADS) as state:
        app.require_heads(state.model, state.ablate)
    if screen.state.head not in app.heads_of_model(screen.state.model):
        screen.change(head=app.best_head(screen.state.model))
    with part(analysis="") as state:
        if state.analysis and (other := app.analyses.records(state.analysis).model) != state.model:
            raise InputError(f"These tables are of {other}; choose that model first.")
    with part(example="") as state:
        parse_example(state.example)
    screen.change(example=screen.state.example or first_example(screen.state.model))
    with part(images="") as state:
        if state.images and not session.uploads:
            raise InputError(OTHER_FILES.format("images"))
    with part(gallery="", k=0) as state:
        if state.gallery.startswith(OWN):
            if not session.gallery:
                raise InputError(OTHER_FILES.format("gallery"))
            screen.change(gallery=session.gallery.name)
        if app.galleries.has(screen.gallery):
            BiasQuery.from_state(app, screen.state)  # raises InputError if K is too large
    with part(attribute="") as state:
        if app.galleries.has(screen.gallery):
            require_choice(state.attribute, ("", *app.galleries.people(screen.gallery).groups), "attribute")


@contextmanager
def _part(screen: Screen, notices: list[str] | None, **default: Any) -> Iterator[State]:
    """Check a part of a state, and put its default in its place if it is a link's and can't be used."""
    try:
        yield screen.state
    except InputError as error:
        if notices is None:
            raise
        notices.append(f"Left out of the link: {error}")
        screen.change(**default)
