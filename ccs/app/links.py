"""The screen that an address names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import parse_qsl

from ccs.app.services.examples import first_example, parse_example
from ccs.app.session import App, Screen, Session
from ccs.app.state import OWN, State, from_query, parse_template, require_choice
from ccs.app.views import VIEWS, claims
from ccs.app.views.query import BiasQuery
from ccs.errors import InputError
from ccs.heads import ENCODERS, HeadSet, Intervention

OTHER_GALLERY = (
    "This link was made with someone's own gallery, which no link holds. The numbers here are of other faces."
)


def parse_query(address: str) -> dict[str, str]:
    """Return the fields of an address's query."""
    return dict(parse_qsl(address.removeprefix("?"), max_num_fields=100))


def open_screen(app: App, session: Session, query: Mapping[str, str]) -> Screen:
    """Return the screen that an address names; sentences about unusable parts are added to the session.

    The bare address opens the view Start. Unless it names heads to ablate, all heads are on.
    """
    state, notices = from_query(query)
    if not set(query) & (set(vars(state)) - {"model"}):
        state = replace(state, tab="start")
    if not state.model:
        state = replace(state, model=app.first)
    elif state.model not in app.models:
        notices.append(
            f"The link's model {state.model!r} isn't available here; this is {app.first}. "
            "You can name other models under “Another model”."
        )
        state = replace(state, model=app.first, ablate=HeadSet(), head=None)
    for name, subject, choices in (("tab", "view", VIEWS), ("encoder", "encoder", ENCODERS)):
        try:
            require_choice(getattr(state, name), choices, subject)
        except InputError as error:
            notices.append(str(error))
            state = replace(state, **{name: getattr(State(), name)})
    try:
        parse_example(state.example)
        parse_template(state.template)
    except InputError as error:
        notices.append(str(error))
        state = replace(state, example="", template="")
    if not state.example:
        state = replace(state, example=first_example(state.model))
    if state.gallery.startswith(OWN):
        own = session.gallery if app.galleries.has(session.gallery) else ""
        notices += [] if own else [OTHER_GALLERY]
        state = replace(state, gallery=own)
    state = _with_known_gallery(app, state, notices)
    known = app.heads(state.model)
    if unknown := state.ablate - known:
        notices.append(f"The link's heads {HeadSet(unknown)} aren't in {state.model} and were left out.")
        state = replace(state, ablate=Intervention.of(state.ablate & known))
    if state.head not in known:
        state = replace(state, head=app.best_head(state.model))
    elif state.head and "encoder" not in query:
        state = replace(state, encoder=state.head.encoder)
    claim = claims.of(app.shown_records(state))
    if claim and not state.attribute and not state.gallery:
        state = replace(state, attribute=claim.attribute)
    session.notify(*notices)
    return Screen(app, session, state)


def _with_known_gallery(app: App, state: State, notices: list[str]) -> State:
    try:
        query = BiasQuery.of(app, state) if app.galleries.has(BiasQuery.gallery_name(app, state)) else None
        if query and state.attribute and state.attribute != query.attribute:
            notices.append(
                f"{query.gallery.name} has no attribute {state.attribute!r}: this is {query.attribute}."
            )
    except InputError as error:
        notices.append(f"The link's gallery and K were left out: {error}")
        return replace(state, gallery="", k=0)
    return state
