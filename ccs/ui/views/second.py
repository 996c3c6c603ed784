"""A second model in the view Heads: which of its heads go with the first one's, and how far they differ."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping

from ccs.data.rows import spread
from ccs.errors import InputError
from ccs.heads import IMAGE, Head
from ccs.locate.comparison import Pair, compare
from ccs.ui.actions import action
from ccs.ui.service.galleries import PICTURES, world
from ccs.ui.session import Screen
from ccs.ui.views import claims
from ccs.ui.views.base import Empty, Figure

LOOKED_AT = 100
"""Pictures, evenly spaced among the page's, on which heads are compared: three passes of each."""
STEPS = 5


@action("second")
def _choose(screen: Screen, value: str) -> None:
    """Show another model beside the first one, or none."""
    if value and screen.app.known_model(value) == screen.state.model:
        raise InputError(f"{value} is the model on the screen; choose another one to compare it with.")
    screen.change(second=value)


def wanted(screen: Screen) -> bool:
    """True where the screen is to show a second model."""
    state = screen.state
    return bool(state.second) and state.tab == "heads" and state.tower == IMAGE


def prepare(screen: Screen) -> Iterator[tuple[float, str]]:
    """Compare the two models; InputError where they cannot be had."""
    app, models = screen.app, (screen.model, screen.app.model_cache.get(screen.state.second))

    def work() -> Generator[float, None, tuple[Pair, ...]]:
        yield 0.0
        pictures = app.galleries.find(world(models[0].name).pictures).images
        images = [pictures[i] for i in spread(len(pictures), LOOKED_AT)]
        return tuple(compare(*models, images, claims.first_texts(screen.records)))

    for share in app.cache.fill(_key(screen), work):
        yield share, f"Comparing the heads of {models[0].name} and {models[1].name}"


def pairs(screen: Screen) -> Mapping[Head, Pair]:
    """The first model's heads with those that go with them; none before `prepare` has run."""
    both = {screen.state.model, screen.state.second}
    if not wanted(screen) or not both <= set(screen.app.model_cache.loaded()):
        return {}
    return {pair.first: pair for pair in screen.app.cache.find(_key(screen)) or ()}


def _key(screen: Screen) -> tuple[str, ...]:
    other = screen.app.model_cache.get(screen.state.second)
    return "compared", screen.model.weights_hash, other.weights_hash, screen.state.apart


def mark(pair: Pair) -> dict[str, int | str]:
    """What a head's cell shows of the other model: how much the head changed, or between strangers how unlike
    the two are, as a shade (step), a number in percent, and words.
    """
    unlike = 1 - pair.alike if pair.changed is None else pair.changed
    shown = f"{100 * (pair.alike if pair.changed is None else unlike):.0f}"
    words = f"{shown}% alike" if pair.changed is None else f"changed by {shown}%"
    return {"step": round(STEPS * min(max(unlike, 0.0), 1.0)), "shown": shown, "words": words}


def figure(screen: Screen, head: Head) -> Figure | Empty | None:
    """The head beside the one of the second model that goes with it."""
    if not wanted(screen):
        return None
    found, other = pairs(screen), screen.state.second
    if head not in found:
        failed = screen.app.model_cache.failure(other)
        why = "No head of the other model is left to go with it." if found else "It is being compared."
        return Empty(f"{head} beside {other}", failed or why)
    pair = found[head]
    one, two = screen.records.head(head), screen.app.records(other).head(pair.second)
    changed = "" if pair.changed is None else round(pair.changed, 4)
    row = [head, pair.second, round(pair.alike, 4), changed, one.concept, one.score, two.concept, two.score]
    columns = ["head", "other", "alike", "changed", "concept", "CCS", "other concept", "other CCS"]
    shown = {"pair": pair, "both": [(screen.state.model, one), (other, two)]}
    shown |= {"pictures": min(LOOKED_AT, PICTURES), "texts": len(claims.first_texts(screen.records))}
    title = f"{head} beside {pair.second} of {other}"
    made = {"other model": other, "heads off": ""}
    return Figure("beside", title, "share of 1", columns, [row], shown, str(head), made)
