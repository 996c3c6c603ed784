"""The form "Analyze this model": texts, concepts, and CCS of a model's heads, computed here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ccs.app.html import render
from ccs.app.jobs import Update, Work
from ccs.app.routes import Form, Name, post
from ccs.app.services.analyses import DATASETS, MAX_COUNT, MIN_COUNT, Request
from ccs.app.session import Screen
from ccs.app.state import clean_line, parse_int, require_choice
from ccs.data.untrusted import parse_address
from ccs.errors import InputError
from ccs.model.loading.footprint import require_room
from ccs.model.loading.sources import is_public
from ccs.texts.pools import POOLS

COPIES, MORE = 3, 2**30  # of the weights that a run holds, and bytes of memory besides


class Analyze(Form):
    images: Name = ""
    address: Name = ""
    count: Name = ""
    texts: Name = ""


@post("analyze")
def analyze(screen: Screen, form: Analyze) -> Callable[[str], Work]:
    """Analyze the model on the screen; the work goes on while the visitor does other things."""
    request = _request(screen, form)

    def work(client: str) -> Work:
        yield Update(0.0, f"Analyzing {request.model}")
        try:
            for share, doing in screen.app.analyses.make(request, client):
                yield Update(share, f"Analyzing {request.model}: {doing}")
            note = render("analyzed.html", model=request.model, key=request.key, problem="")
        except InputError as error:
            note = render("analyzed.html", model=request.model, key="", problem=str(error))
        yield Update(1.0, "", {"note": note})

    return work


def _request(screen: Screen, form: Analyze) -> Request:
    """Return the run that the form describes. Raises InputError if it isn't possible here."""
    number = parse_int(form.count, "number of images")
    if not MIN_COUNT <= number <= MAX_COUNT:
        raise InputError(f"The number of images is {number}, but must be {MIN_COUNT} to {MAX_COUNT:,}.")
    pool = require_choice(form.texts, POOLS, "pool of texts")
    if address := clean_line(form.address):
        images, _, _ = parse_address(address)
    else:
        images = DATASETS[require_choice(form.images, DATASETS, "dataset")]
    name, model = screen.state.model, screen.model
    weights = sum(values.nbytes for values in model.clip.state_dict().values())
    require_room(f"Analyzing {model.name}", COPIES * weights + MORE)
    place = screen.app.model_cache.place(name)
    if not is_public(place) and Path(place).is_dir():
        place = str(Path(place).resolve())  # the run is in a folder of its own
    return Request(name, place, model.weights_hash, images, number, pool)
