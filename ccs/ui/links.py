"""The screen that a link names, and the worked example that stands where it names none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ccs.errors import InputError
from ccs.heads import TOWERS, HeadSet, Intervention
from ccs.ui.service.cache import Memory
from ccs.ui.service.examples import first_example, parse_example
from ccs.ui.session import App, Screen, Session
from ccs.ui.state import OWN, State, from_query, one_of, one_template
from ccs.ui.views import VIEWS, claims, classify
from ccs.ui.views.bias_query import BiasQuery
from ccs.ui.views.start import Start


def open_link(app: App, query: Mapping[str, str]) -> Screen:
    """The screen that a link names, in a new session. The bare address opens the view Start; another link
    that does not say which heads are off opens a worked example.
    """
    state, notices = from_query(query)
    if not set(query) & (set(vars(state)) - {"model"}):
        state = replace(state, tab=Start.name)
    if not state.model:
        state = replace(state, model=app.first)
    elif state.model not in app.models:
        notices.append(
            f"The link’s model {state.model!r} is not here; this is {app.first}. "
            "Others can be named under “another …” in the list of models."
        )
        state = replace(state, model=app.first, off=HeadSet(), head=None)
    if state.second and (state.second not in app.models or state.second == state.model):
        notices.append(f"The link’s second model {state.second!r} is not here and was left out.")
        state = replace(state, second="")
    try:
        one_of(state.tab, tuple(VIEWS), "view")
        one_of(state.tower, tuple(TOWERS), "tower")
    except InputError as error:
        notices.append(str(error))
        state = replace(state, tab=State().tab, tower=State().tower)
    try:
        parse_example(state.example)
        one_template(state.template)
    except InputError as error:
        notices.append(str(error))
        state = replace(state, example="", template="")
    if not state.example:
        state = replace(state, example=first_example(state.model))
    if state.gallery.startswith(OWN):
        notices.append(
            "This address was made with a gallery of someone’s own, which no address holds and which is gone "
            "when its page is left or loaded anew: the figures here are of other faces, and differ."
        )
        state = replace(state, gallery="")
    try:
        asked = BiasQuery.of(app, state) if app.galleries.has(BiasQuery.name(app, state)) else None
        if asked and state.attribute and state.attribute != asked.attribute:
            notices.append(
                f"{asked.gallery.name} has no attribute {state.attribute!r}: this is {asked.attribute}."
            )
    except InputError as error:
        notices.append(f"The link’s gallery and K were left out: {error}")
        state = replace(state, gallery="", k=0)
    known = app.heads(state.model)
    if unknown := state.off - known:
        notices.append(f"The link’s heads {HeadSet(unknown)} are not in {state.model} and were left out.")
        state = replace(state, off=Intervention.of(state.off & known))
    if state.head not in known:
        state = replace(state, head=app.best_head(state.model))
    elif state.head and "tower" not in query:
        state = replace(state, tower=state.head.tower)
    screen = Screen(app, Session(state, Memory(app.cache), notices=notices))
    if "off" not in query:
        _open_example(screen)
    return screen


def _open_example(screen: Screen) -> None:
    """Fill in what a link left open: heads off, a search's or those that matter, and an attribute that
    shows it. In the view Start, which has the switch, every head stays on.
    """
    state, records = screen.state, screen.records
    claim = claims.of(records)
    if claim and not state.attribute and not state.gallery:
        screen.change(attribute=claim.attribute)
    if state.tab == Start.name:
        return
    example = claim.off if claim and claim.found else claims.that_matter(records)
    off = HeadSet(example & screen.app.heads(state.model))
    if not off:
        head = classify.story(screen, here=True).head if screen.has_model else state.head
        off = HeadSet(filter(None, [head]))
    screen.change(off=off)
