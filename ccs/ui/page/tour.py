"""The tour: four screens, each with a permalink, that show a head, a switch, an image and a ranking."""

from __future__ import annotations

from dataclasses import dataclass, replace

from markupsafe import Markup

from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.ui import claims
from ccs.ui.actions import Fields, change, set_off
from ccs.ui.app import App
from ccs.ui.html import count
from ccs.ui.html import render as render_template
from ccs.ui.session import Session
from ccs.ui.state import State, parse_int


@dataclass(frozen=True)
class Step:
    """One screen of the tour. words: what to look at."""

    title: str
    words: str
    tab: str
    off: HeadSet


def steps(app: App, state: State) -> list[Step]:
    """The four screens for the model that is shown."""
    records = app.shown(state)
    head = app.best_head(state.model)
    off = claims.that_matter(records)[0] or HeadSet(filter(None, [head]))
    one = HeadSet(filter(None, [max(off, key=lambda h: records.head(h).share or 0.0, default=head)]))
    return [
        Step(
            "A head",
            f"{one} is one of {len(app.heads(state.model))} heads. The texts say what it writes into the "
            "image’s embedding; the lit patches show where it looks.",
            "heads",
            HeadSet(),
        ),
        Step(
            "A switch",
            f"{one} is off now. Its effect on the answers is shown below the images. A click on any head "
            "switches it.",
            "heads",
            one,
        ),
        Step(
            "An image",
            f"{count(len(off), 'head')} off. Each class has two bars, before and after. Try your own image.",
            "classify",
            off,
        ),
        Step(
            "A ranking",
            "The same heads are off, and people are ranked for an occupation. The gray band is the score of "
            "rankings that ignore the groups.",
            "bias",
            off,
        ),
    ]


def go(app: App, session: Session, fields: Fields) -> None:
    """Show a step of the tour; 0 ends it."""
    number, found = parse_int(fields.get("value"), "step of the tour"), steps(app, session.state)
    if number > len(found):
        raise InputError(f"The tour has {len(found)} steps, not {number}.")
    change(session, tour=number)
    if number:
        step = found[number - 1]
        set_off(session, step.off)
        head = next(iter(found[1].off), session.state.head)
        session.state = replace(session.state, tab=step.tab, head=head)
        session.click = "switch" if number > 1 else "inspect"


def render(app: App, state: State) -> Markup:
    """The panel above the view during the tour."""
    if not state.tour:
        return Markup("")
    found = steps(app, state)
    return render_template("tour.html", n=state.tour, last=len(found), step=found[state.tour - 1])
