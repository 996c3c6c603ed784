"""Taking the model on the screen apart: the form that asks for it, and the tables that came of it."""

from __future__ import annotations

import base64
from pathlib import Path

from markupsafe import Markup

from ccs.errors import InputError
from ccs.model.loading.footprint import require_room
from ccs.model.loading.sources import is_public
from ccs.sets.strangers import parse_address
from ccs.texts.pools import POOLS
from ccs.ui.actions import Fields
from ccs.ui.html import render as render_template
from ccs.ui.service.model_cache import saw_drawings_only
from ccs.ui.service.taking_apart import FEWEST, MOST, PHOTOGRAPHS, Request
from ccs.ui.session import Session
from ccs.ui.shared import App
from ccs.ui.state import line, one_of, parse_int
from ccs.ui.views.screen import Screen

COUNT = 1000
COPIES, BESIDE = 3, 2**30  # of the weights that a run holds, and bytes of memory that it takes besides


def render(screen: Screen) -> Markup:
    """The form, and the tables that are shown instead of the model's own."""
    app, state = screen.app, screen.state
    shown = bool(state.apart) and screen.records is not app.records(state.model)
    drawn = saw_drawings_only(state.model)
    sets = sorted(PHOTOGRAPHS, key=lambda name: (PHOTOGRAPHS[name] == "world") != drawn)
    return render_template(
        "apart.html",
        shown=shown,
        archive=base64.b64encode(app.kept.archive(state.apart)).decode() if shown else "",
        images=sets,
        count=COUNT,
        most=MOST,
        pools=sorted(POOLS, key=lambda name: (name == "world") != drawn),
    )


def read(app: App, session: Session, fields: Fields) -> Request:
    """The run that the form asks for; InputError where there can be none."""
    count = parse_int(fields.get("count", str(COUNT)), "number of photographs")
    if not FEWEST <= count <= MOST:
        raise InputError(f"{count} photographs are asked for; {FEWEST} to {MOST:,} can be.")
    pool = one_of(fields.get("texts"), POOLS, "pool of texts")
    if own := line(str(fields.get("own", ""))):
        spec, _, _ = parse_address(own)
    else:
        spec = PHOTOGRAPHS[one_of(fields.get("images"), tuple(PHOTOGRAPHS), "set of photographs")]
    name = session.state.model
    model = app.model_cache.get(name)
    needed = COPIES * sum(values.nbytes for values in model.clip.state_dict().values()) + BESIDE
    require_room(f"Taking {model.name} apart", needed)
    place = app.model_cache.place(name)
    if not is_public(place) and Path(place).is_dir():
        place = str(Path(place).resolve())  # the run is in a folder of its own
    return Request(name, place, model.weights_hash, spec, count, pool)
