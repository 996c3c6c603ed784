"""Taking the model on the screen apart: what is asked for, how far it is, and the tables that come of it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

from markupsafe import Markup

from ccs.datasets.strangers import Address
from ccs.errors import InputError
from ccs.model.model import Model
from ccs.model.offer import free_memory
from ccs.model.sources import is_public
from ccs.texts.pools import POOLS
from ccs.ui.actions import Action, Fields, change
from ccs.ui.app import App
from ccs.ui.html import render as render_template
from ccs.ui.service.apart import FEWEST, MOST, UPLOADS, Request
from ccs.ui.service.models import saw_drawings_only
from ccs.ui.session import Session
from ccs.ui.state import line, one_of, parse_int

COUNT = 1000
COPIES, BESIDE = 3, 2**30  # of the weights that a run holds, and bytes of memory that it takes besides


def render(app: App, session: Session) -> Markup:
    """The form, or how a run can be stopped, or what came of it."""
    state, key = session.state, session.state.apart
    shown = bool(key) and app.shown(state) is not app.records(state.model)
    drawn = saw_drawings_only(state.model)
    sets = sorted(app.photographs, key=lambda name: (app.photographs[name] == "world") != drawn)
    own = [(UPLOADS, f"your {len(session.uploads)} images")] if len(session.uploads) >= FEWEST else []
    return render_template(
        "apart.html",
        waiting=bool(session.apart),
        shown=shown,
        archive=base64.b64encode(app.workshop.archive(key)).decode() if shown else "",
        images=[*sets, *own],
        count=COUNT,
        most=MOST,
        pools=sorted(POOLS, key=lambda name: (name == "world") != drawn),
    )


def settle(app: App, session: Session) -> None:
    """Show the tables of the run that the visitor waits for, or why there are none, once it is over."""
    if not session.apart:
        return
    run = app.workshop.run(session.apart)
    if run is not None and not run.ended:
        return
    if run is None or run.error:
        why = "It was forgotten; ask again." if run is None else run.error
        session.tell(f"Taking the model apart failed: {why}")
        change(session, apart="")
    elif run.request.model == session.state.model:
        change(session, apart=session.apart, text=0)
    else:
        session.tell(f"{run.request.model} has been taken apart; choose it and ask again.")
    session.apart = ""


def join(app: App, session: Session) -> None:
    """Wait for the run that the link names, if it is still running."""
    if app.workshop.join(session.state.apart):
        session.apart = session.state.apart


def progress(app: App, session: Session) -> tuple[float, str]:
    """The progress of the run that the visitor waits for: the share done, and words with the time left."""
    run = app.workshop.run(session.apart) if session.apart else None
    if run is None or run.ended:
        return 0.0, ""
    if ahead := app.workshop.ahead(run):
        return 0.0, f"Taking {run.request.model} apart: waiting, number {ahead} in the queue"
    left = "" if run.left is None else f", about {max(5, round(run.left, -1)):.0f} seconds left"
    return run.share, f"Taking {run.request.model} apart: {run.words or 'starting'}{left}"


def _start(app: App, session: Session, fields: Fields) -> None:
    count = parse_int(fields.get("count", str(COUNT)), "number of photographs")
    if not FEWEST <= count <= MOST:
        raise InputError(f"{count} photographs are asked for; {FEWEST} to {MOST:,} can be.")
    pool = one_of(fields.get("texts"), POOLS, "pool of texts")
    own, chosen, spec = line(str(fields.get("own", ""))), str(fields.get("images", "")), ""
    if own:
        spec = str(Address.parse(own))
    elif chosen != UPLOADS:
        spec = app.photographs[one_of(chosen, tuple(app.photographs), "set of photographs")]
    elif len(session.uploads) < FEWEST:
        raise InputError(f"At least {FEWEST} images of your own are needed.")
    name = session.state.model
    model = app.model_cache.get(name)
    _require_memory(model)
    pictures = () if spec else session.uploads
    place = app.model_cache.place(name)
    if not is_public(place) and Path(place).is_dir():
        place = str(Path(place).resolve())  # the run is in a folder of its own
    count = count if spec else len(pictures)
    request = Request(name, place, model.weights_hash, spec, count, pool, pictures)
    app.workshop.ask(request)
    session.apart = request.key
    change(session, apart=request.key)  # the link finds the run again, and then its tables


def _require_memory(model: Model) -> None:
    needed = COPIES * sum(values.nbytes for values in model.clip.state_dict().values()) + BESIDE
    free = free_memory()
    if free is not None and needed > free:
        raise InputError(
            f"Taking {model.name} apart needs about {needed / 1e9:.1f} GB of memory, and this machine has "
            f"{free / 1e9:.1f} GB free."
        )


def _stop(app: App, session: Session, fields: Fields) -> None:
    if session.apart:
        app.workshop.leave(session.apart)
        session.apart = ""
        change(session, apart="")


def _close(app: App, session: Session, fields: Fields) -> None:
    change(session, apart="")


ACTIONS: Mapping[str, Action] = {"apart": _start, "apart-stop": _stop, "apart-close": _close}
