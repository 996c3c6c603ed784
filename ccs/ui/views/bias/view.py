"""The view Bias as a page: the form, the answer in a sentence, its figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ccs.errors import InputError
from ccs.measures import bias
from ccs.measures.bias import BiasResult
from ccs.ui.page.parts import button, empty, esc, number, select, signed, waiting
from ccs.ui.session import Session
from ccs.ui.views.bias import figures
from ccs.ui.views.bias.asked import Asked, asked, measure, texts
from ccs.ui.views.bias.form import form

if TYPE_CHECKING:
    from ccs.ui.app import App

LARGE = 200  # pictures from which on an instant estimate is worth having
EXACT = "exact: each head’s output is zero in the forward pass"
ESTIMATE = "an instant estimate from direct effects; the exact answer follows"


def prepare(app: App, session: Session) -> Iterator[tuple[float, str]]:
    """The long work before an exact answer: yields (share done, what is being done)."""
    model = app.shelf.get(session.state.model)
    name, off = asked(app, session).gallery.name, session.state.off
    n = len(app.galleries.get(name).images)
    for share in app.galleries.seen(model, name):
        yield share, f"Looking at {n} pictures"
    if n >= LARGE and off:
        for share in app.galleries.collect(model, name):
            yield share, "Collecting direct effects, for instant estimates from now on"
    for share in app.galleries.pruned(model, name, off):
        yield share, f"Computing the exact answer for {n} pictures with {len(off)} heads off"


def render(app: App, session: Session, whole: bool = True) -> str:
    """The view as HTML. With `whole` False an estimate from the direct effects that are known, or nothing."""
    what = asked(app, session)
    head = form(app, session, what)
    if not whole and session.state.model not in app.shelf.loaded():
        return head + waiting(session.state.model)
    try:
        model = app.shelf.get(session.state.model)
        off, name = session.state.off, what.gallery.name
        if not whole and app.galleries.known(model, name) is None:
            return head + empty("The pictures are being looked at", "The measurement follows.")
        exact = whole or app.galleries.ready(model, name, off)
        before = app.galleries.base(model, name)
        after = (
            app.galleries.embeddings(model, name, off) if exact else app.galleries.estimate(model, name, off)
        )
        if after is None:
            return head + empty("The measurement is under way", "Its figures follow.")
        rows = texts(session, model, what)
        first, second = measure(before, after, rows, what)
    except InputError as error:
        return head + empty("Nothing to measure", str(error))
    occupation = rows[what.row]
    return (
        head
        + _lead(first, second, what, len(off), exact)
        + figures.skews(first, second, what)
        + _chosen(what)
        + figures.faces(app, before, after, occupation, what)
        + figures.groups(first, second, what)
        + figures.table(first, second, what)
    )


def _chosen(what: Asked) -> str:
    if len(what.occupations) == 1:
        return ""
    listed = [(str(i), occupation) for i, occupation in enumerate(what.occupations)]
    chosen = select("Pictures and groups for", "row", listed, str(what.row))
    return f'<div class="panel compare">{chosen}</div>'


def _lead(first: BiasResult, second: BiasResult, what: Asked, n_off: int, exact: bool) -> str:
    one, two = first.max_skew, second.max_skew
    inside = "inside" if two.chance_mean.low <= two.mean.value <= two.chance_mean.high else "outside"
    chance = f"({number(two.chance_mean.low, 2)} to {number(two.chance_mean.high, 2)})"
    many = (
        f"over {len(what.occupations)} occupations"
        if len(what.occupations) > 1
        else f"for “{esc(what.occupations[0])}”"
    )
    if not n_off:
        high = button("switch off the high-CCS heads", "preset", css="link", value="high")
        words = (
            f"Mean MaxSkew by {esc(what.attribute)} {many}: <b>{number(one.mean.value, 2)}</b>; random "
            f"rankings score {number(one.chance_mean.value, 2)} {chance}. No head is off, so before and "
            f"after agree; {high}."
        )
    else:
        change = bias.compare(second, first)
        words = (
            f"Mean MaxSkew by {esc(what.attribute)} {many}: <b>{number(one.mean.value, 2)} → "
            f"{number(two.mean.value, 2)}</b> with {n_off} off, a change of {signed(change.value, 2)} "
            f"({number(change.low, 2)} to {number(change.high, 2)}); {inside} what random rankings score "
            f"{chance}."
        )
    shown = EXACT if exact else ESTIMATE
    css = "" if exact else ' class="estimate"'
    return f'<p class="lead" data-exact="{int(exact)}">{words} <span{css}>({shown})</span></p>'
