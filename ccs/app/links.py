"""The screen that an address names."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl

from ccs.app.services.examples import first_example, parse_example
from ccs.app.session import App, Screen, Session
from ccs.app.state import OWN, from_query
from ccs.app.views import claims
from ccs.app.views.query import BiasQuery
from ccs.errors import InputError
from ccs.heads import HeadSet, Intervention

MAX_ADDRESS = 20_000  # characters
OTHER_GALLERY = (
    "This link was made with someone's own gallery, which no link holds. The numbers here are of other faces."
)
OTHER_IMAGES = (
    "This link was made with someone's own images, which no link holds. The answers here are to other images."
)


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
    state, notices = from_query(query)
    screen = Screen(app, session, state)
    if not set(query) & (set(vars(state)) - {"model"}):
        screen.change(tab="start")
    if state.model not in app.models:
        if state.model:
            notices.append(
                f"The link's model {state.model!r} isn't available here; this is {app.first}. "
                "“Your own CLIP” says how to open it on your machine."
            )
            screen.change(ablate=HeadSet(), head=None)
        screen.change(model=app.first)
    try:
        parse_example(state.example)
    except InputError as error:
        notices.append(str(error))
        screen.change(example="")
    screen.change(example=screen.state.example or first_example(screen.state.model))
    if state.images and not session.uploads:
        notices.append(OTHER_IMAGES)
        screen.change(images="")
    if state.gallery.startswith(OWN):
        notices += [] if session.gallery else [OTHER_GALLERY]
        screen.change(gallery=session.gallery.name if session.gallery else "")
    try:
        query_of_bias = BiasQuery.from_state(app, screen.state) if app.galleries.has(screen.gallery) else None
        if query_of_bias and state.attribute not in ("", query_of_bias.attribute):
            name = query_of_bias.gallery.name
            notices.append(f"{name} has no attribute {state.attribute!r}: this is {query_of_bias.attribute}.")
    except InputError as error:
        notices.append(f"The link's gallery and K were left out: {error}")
        screen.change(gallery="", k=0)
    known = app.heads_of_model(screen.state.model)
    if unknown := screen.state.ablate - known:
        notices.append(
            f"The link's heads {HeadSet(unknown)} aren't in {screen.state.model} and were left out."
        )
        screen.change(ablate=Intervention.from_heads(screen.state.ablate & known))
    if screen.state.head not in known:
        screen.change(head=app.best_head(screen.state.model))
    elif screen.state.head and "encoder" not in query:
        screen.change(encoder=screen.state.head.encoder)
    claim = claims.find_claim(screen.records)
    if claim and not screen.state.attribute and not screen.state.gallery:
        screen.change(attribute=claim.attribute)
    session.notify(*notices)
    return screen
