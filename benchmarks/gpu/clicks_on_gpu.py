"""Clicks in the app on Classify and Bias with ablated heads, without a browser, on generated pictures."""

from __future__ import annotations

import time
from collections.abc import Iterator
from unittest import mock

import ccs
from benchmarks.gpu import sample
from benchmarks.gpu.lines import Bench, Line, Measured
from ccs import HeadSet, results
from ccs.model.model import Model

PART = "app"
"""Seconds in which the model must be loaded."""


def lines() -> Iterator[Line]:
    """Return the lines of one click in each view, and of the weights."""
    yield Line(
        PART, "Classify, a click", "seconds", 1.0, lambda bench: clicked(bench, "classify"), anywhere=False
    )
    yield Line(PART, "Bias, a click", "seconds", 5.0, lambda bench: clicked(bench, "bias"), anywhere=False)
    yield Line(PART, "the model is moved once", "times", 1, moved)


def _clicks(bench: Bench) -> dict[str, float]:
    """Return the seconds of each click, and the numbers of loads and of weights on another device."""
    # Imported here, so that a package that only the app needs cannot end other lines.
    from benchmarks.visitor_waits import act, opened
    from ccs.app.page import regions
    from ccs.app.session import App

    name, measured = f"{bench.app}/random", dict[str, float]()
    here = sample.model(bench, bench.app, "cpu")
    loaded: list[Model] = []
    known = ccs.load

    def load(place: str, **options: object) -> Model:
        loaded.append(known(place, **options))  # type: ignore[arg-type]
        return loaded[-1]

    people, tables = sample.gallery(bench, bench.faces), bench.folder / "no-tables"
    tables.mkdir()
    app = App(results.load(tables), [people], [name])
    device = {"CCS_DEVICE": str(bench.device)}
    with mock.patch.object(ccs, "load", load), mock.patch.dict("os.environ", device):
        model = app.model_cache.get(name).load()
        first = {key: values.data_ptr() for key, values in model.clip.state_dict().items()}
        for tab in ("classify", "bias"):
            off = HeadSet(list(here.heads)[1:3])
            link = {"tab": tab, "model": name, "ablate": str(off)}
            if tab == "bias":
                link |= {"gallery": people.name, "attribute": "gender"}
            screen = opened(app, **link)
            # The first click reads the gallery; the second, which is timed, ablates another head.
            for path, fields in (("show", {}), ("heads/toggle", {"head": str(list(here.heads)[5])})):
                bench.done()
                began = time.perf_counter()
                act(screen, path, **fields)
                bench.done()
                measured[tab] = time.perf_counter() - began
                _require_answer(regions(screen))
    weights = model.clip.state_dict()
    measured["loaded"] = len(loaded)
    measured["elsewhere"] = sum(
        values.device.type != bench.device.type or values.data_ptr() != first[key]
        for key, values in weights.items()
    )
    return measured


def _require_answer(regions: dict[str, str]) -> None:
    for words in ("Nothing to show", "can't be shown", "didn't work", "went wrong"):
        if any(words in html for html in regions.values()):
            raise RuntimeError(f"The page says {words!r}.")


def clicked(bench: Bench, tab: str) -> Measured:
    """Return the seconds of the click in a tab, and a note on the model and the gallery.

    Args:
        bench: The device and the size of the work.
        tab: The tab, or another key of the measured clicks.
    """
    clicks: dict[str, float] = bench.once("clicks", lambda: _clicks(bench))
    return clicks[tab], f"{bench.app}, {bench.faces} pictures"


def moved(bench: Bench) -> Measured:
    """Return the number of loads, plus the number of weights on another device."""
    clicks: dict[str, float] = bench.once("clicks", lambda: _clicks(bench))
    return clicks["loaded"] + clicks["elsewhere"], f"clicks on Classify and Bias, {bench.faces} pictures"
