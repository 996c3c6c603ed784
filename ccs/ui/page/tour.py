"""The tour: four screens, each with a permalink, that show a head, a switch, an image and a ranking."""

from __future__ import annotations

from markupsafe import Markup

from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.ui import claims
from ccs.ui.actions import Fields, change, set_off
from ccs.ui.app import App
from ccs.ui.html import render as render_template
from ccs.ui.session import Session
from ccs.ui.state import State, parse_int


def steps(app: App, state: State) -> list[tuple[str, HeadSet]]:
    """The four screens for the model that is shown: the view and the heads that are off."""
    records = app.shown(state)
    head = app.best_head(state.model)
    off = claims.that_matter(records)[0] or HeadSet(filter(None, [head]))
    one = HeadSet(filter(None, [max(off, key=lambda h: records.head(h).share or 0.0, default=head)]))
    return [("heads", HeadSet()), ("heads", one), ("classify", off), ("bias", off)]


def go(app: App, session: Session, fields: Fields) -> None:
    """Show a step of the tour; 0 ends it."""
    number, found = parse_int(fields.get("value"), "step of the tour"), steps(app, session.state)
    if number > len(found):
        raise InputError(f"The tour has {len(found)} steps, not {number}.")
    change(session, tour=number)
    if number:
        tab, off = found[number - 1]
        set_off(session, off)
        change(session, tab=tab, head=next(iter(found[1][1]), session.state.head))
        session.click = "switch" if number > 1 else "inspect"


def render(app: App, state: State) -> Markup:
    """The panel above the view during the tour."""
    if not state.tour:
        return Markup("")
    _, (_, head), (_, off), _ = steps(app, state)
    return render_template("tour.html", n=state.tour, head=head, off=off, heads=app.heads(state.model))
