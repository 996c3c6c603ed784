"""The page: a view with its surrounding regions of HTML, and the work that completes a screen."""

import hashlib
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pandas as pd

from ccs.app.html import count, head_states, render
from ccs.app.jobs import Job, NotReady, wait_for_nothing
from ccs.app.services import analyses, examples, model_cache
from ccs.app.session import Screen
from ccs.app.views import VIEWS, classify
from ccs.app.views.base import Figure, empty, figures_in, if_ready
from ccs.app.views.query import BiasQuery, embed_query
from ccs.bundled import known_heads, planted_truth
from ccs.errors import InputError
from ccs.heads import ENCODERS, Head
from ccs.texts.score import level

log = logging.getLogger(__name__)

FAILED = "This view can't be shown"


def work(screen: Screen, job: Job | None = None, fresh: bool = True) -> dict[str, str]:
    """Do a screen's work, and return its regions.

    Args:
        screen: The screen.
        job: Receives the progress and, at each step, the regions that are ready.
        fresh: False if the browser already shows this view. Its numbers then stay until the new ones are
            ready.

    Returns:
        The whole page.
    """

    def publish(share: float, doing: str) -> None:
        """Publish the progress. A new step also publishes the regions that are ready.

        Args:
            share: The finished share, 0 to 1.
            doing: A phrase for the current step.
        """
        assert job is not None
        new = doing != job.doing
        job.tell(share, doing)
        if fresh and new:
            job.regions |= regions(screen, complete=False)

    return regions(replace(screen, tell=publish) if job else screen)


def regions(screen: Screen, complete: bool = True) -> dict[str, str]:
    """Return the page's regions as HTML. If the view fails, the rest of the page still works.

    Args:
        screen: The screen.
        complete: False for the parts that need no long work.
    """
    screen, view = screen if complete else replace(screen, tell=wait_for_nothing), VIEWS[screen.state.tab]
    parts = {"screen": screen, "app": screen.app, "state": screen.state, "session": screen.session}
    parts |= {"records": screen.records, "view": view, "model_cache": model_cache}
    parts["known"] = known_heads(screen.state.model)
    try:
        body = if_ready(lambda: render(f"{view.name}.html", **parts, **view.values(screen)), FAILED)
    except Exception:
        log.exception("the view %r failed", view.name)
        body = empty(FAILED, "Something went wrong; the error was logged.")
    return {
        "top": render("top.html", **parts, views=VIEWS),
        "strip": render("strip.html", **parts, **_effects(screen)),
        "left": render("left.html", **parts, **_column(screen)),
        "main": render("main.html", view=view, body=body),
    }


def csv(screen: Screen, name: str, job: Job | None = None) -> dict[str, str]:
    """Return a figure of a screen as CSV; empty if the screen doesn't have it.

    Args:
        screen: The screen.
        name: The figure's name on the page.
        job: Receives the progress.
    """
    screen = replace(screen, tell=job.tell) if job else screen
    with suppress(InputError):
        figures = figures_in({"grid": _table(screen), **VIEWS[screen.state.tab].values(screen)})
        return {figure.shown_name: figure.csv() for figure in figures if figure.shown_name == name}
    return {}


def fragment(jobs: Mapping[str, Job], have: Mapping[str, str], whole: bool = False) -> str:
    """Return the regions that differ from the browser's. Those of finished work are sent once.

    Args:
        jobs: The page's jobs by kind.
        have: The digests of the browser's regions.
        whole: Whether to include regions without content.
    """
    places = dict.fromkeys(("top", "strip", "left", "main") if whole else (), "")
    html = {**places, **jobs["view"].regions, "status": render("status.html", jobs=list(jobs.values()))}
    if jobs["view"].done:
        jobs["view"].regions = {}
    digests = {name: hashlib.blake2b(html[name].encode(), digest_size=6).hexdigest() for name in html}
    new = [(name, digest, html[name]) for name, digest in digests.items() if have.get(name) != digest]
    return render("regions.html", regions=new)


# -- values of the templates ---------------------------------------------------------------------------------


def _effects(screen: Screen) -> dict[str, Any]:
    """Return the known effects of the ablation."""
    values: dict[str, Any] = {"answers": None, "embedded": None}
    if screen.state.ablate:
        screen = replace(screen, tell=wait_for_nothing)
        with suppress(InputError, NotReady):
            values["answers"] = classify.measure_answers(screen)
            values["embedded"] = embed_query(screen, BiasQuery.from_state(screen.app, screen.state))
    return values


def _column(screen: Screen) -> dict[str, Any]:
    """Return the values of the column of heads and images."""
    state, sets = screen.state, dict[str, str]()
    for name, ablated in screen.records.presets.items():
        sets.setdefault(str(ablated), f"{name}: {count(len(ablated), 'head')}")
    sets = {str(state.ablate): f"your own selection: {count(len(state.ablate), 'head')}"} | sets
    grid = {"heads": screen.grid_heads, "table": _table(screen), "sets": sets, "encoders": ENCODERS}
    grid |= {"Head": Head, "level": level, "truth": planted_truth(state.model)}
    return {**grid, "examples": examples, "analyses": analyses}


def _table(screen: Screen) -> Figure:
    """Return the grid as a table for its "save" button."""
    rows, states = [], head_states(screen.state.ablate)
    for record in map(screen.records.head, screen.grid_heads):
        score = record.score if record.published else record.ccs
        cells = [str(record.head), record.concept, score, record.k, record.level, record.share]
        rows.append([*cells, record.variance, states.get(record.head, "on")])
    columns = ["head", "concept", "CCS", "K", "level", "share", "variance", "state"]
    return Figure.of(screen, "heads", pd.DataFrame(rows, columns=columns), {})
