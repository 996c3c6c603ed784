"""The page: its regions of HTML around a view, and the work that a screen needs before it is complete."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pandas as pd
from markupsafe import Markup

from ccs.app.html import count, head_state, render
from ccs.app.jobs import Job, NotReady, wait_for_nothing
from ccs.app.services.analyses import DATASETS, DEFAULT_COUNT, MAX_COUNT
from ccs.app.services.examples import example_names, example_pages, parse_example
from ccs.app.services.model_cache import (
    PHOTO,
    describe_kind,
    hash_of,
    live_models,
    photographic,
    saw_drawings_only,
)
from ccs.app.services.records import HeadRecord
from ccs.app.session import App, Screen
from ccs.app.views import VIEWS, claims, classify
from ccs.app.views.base import Empty, Figure, figures_in
from ccs.app.views.fairer import LOSSES
from ccs.app.views.query import BiasQuery, embed_query, head_states
from ccs.errors import InputError
from ccs.heads import ENCODERS, Head
from ccs.texts.score import level

log = logging.getLogger(__name__)

PHOTO_NOTICE = "photo knows 200 kinds of things from small photographs; its answers are often wrong."
GROUPS = {True: "With texts and CCS", False: "Without scores; loaded when chosen"}
SHADES = 5  # of the grid
LISTED = 8  # ablated heads, by name


def work(screen: Screen, job: Job | None = None, fresh: bool = True) -> dict[str, str]:
    """Do a screen's work, and return its regions.

    Args:
        screen: The screen.
        job: Gets the progress, and at the beginning of each step the regions as far as they are ready.
        fresh: False if the browser shows the same view already; its numbers then stay until new ones are
            there.

    Returns:
        The whole page.
    """

    def publish(share: float, doing: str) -> None:
        """Publish the progress. A new step also publishes the regions as far as they are ready.

        Args:
            share: The share that is done, 0 to 1.
            doing: A phrase for the current step.
        """
        assert job is not None
        new = doing != job.doing
        job.tell(share, doing)
        if fresh and new:
            job.regions |= regions(screen, complete=False)

    if job:
        screen.tell = publish
    return regions(screen)


def regions(screen: Screen, complete: bool = True) -> dict[str, str]:
    """Return the page's regions as HTML. If the view fails, the rest of the page still works.

    Args:
        screen: The screen.
        complete: False for what can be shown without long work.
    """
    screen, view = screen if complete else replace(screen, tell=wait_for_nothing), VIEWS[screen.state.tab]
    facts = {"known": claims.known(screen.state.model), "matter": claims.that_matter(screen.records)}
    body: Markup | Empty
    try:
        body = _render(f"{view.name}.html", screen, **facts, **view.values(screen))
    except NotReady as step:
        body = Empty(str(step), "The results follow in a moment.")
    except InputError as error:
        body = Empty("This view can't be shown", str(error))
    except Exception:
        log.exception("the view %r failed", view.name)
        body = Empty("This view can't be shown", "Something went wrong; the error was logged.")
    main = render("main.html", view=view, body=body)
    return {"top": _top(screen), "strip": _strip(screen), "left": _column(screen), "main": main}


def csv(screen: Screen, name: str, job: Job | None = None) -> dict[str, str]:
    """Return a figure of a screen as CSV, nothing if the screen doesn't have it.

    Args:
        screen: The screen.
        name: The figure's name on the page.
        job: Gets the progress.
    """
    if job:
        screen.tell = job.tell
    with suppress(InputError):
        figures = figures_in({"grid": _table(screen), **VIEWS[screen.state.tab].values(screen)})
        return {figure.shown_name: figure.csv() for figure in figures if figure.shown_name == name}
    return {}


def status(jobs: list[Job]) -> str:
    """Return the region that tells of work in progress."""
    return render("status.html", jobs=jobs)


def fragment(html: Mapping[str, str], have: Mapping[str, str]) -> str:
    """Return the regions that differ from those that the browser has.

    Args:
        html: The regions.
        have: The digests of the browser's regions.
    """
    digests = {
        name: hashlib.blake2b(region.encode(), digest_size=6).hexdigest() for name, region in html.items()
    }
    new = [(name, digest, html[name]) for name, digest in digests.items() if have.get(name) != digest]
    return render("regions.html", regions=new)


def _render(template: str, screen: Screen, **values: Any) -> Markup:
    """Render a template with the screen's parts."""
    parts = {"state": screen.state, "session": screen.session, "records": screen.records}
    return render(template, **parts, **values)


# -- the head ------------------------------------------------------------------------------------------------


def _top(screen: Screen) -> Markup:
    app = screen.app
    groups = [
        (title, [(n, _label(app, n)) for n in app.models if (n in app.collection.models) == computed])
        for computed, title in GROUPS.items()
    ]
    return _render(
        "top.html",
        screen,
        groups=groups,
        views=VIEWS.values(),
        view=VIEWS[screen.state.tab],
        drawings=saw_drawings_only(screen.state.model) and bool(screen.session.uploads),
        photographic=photographic(),
        standing=[*app.collection.notices, *_standing(screen)],
    )


def _label(app: App, name: str) -> str:
    """Return a model's name in the list: what it is, and whether it is available."""
    size = live_models().get(name)
    kind = describe_kind(name) + (f", {size / 1e9:.1f} GB" if size else "")
    return f"{name} · {'unavailable here' if name in app.model_cache.failures else kind}"


def _standing(screen: Screen) -> list[str]:
    """Return notices that hold as long as this model is shown."""
    name, records = screen.state.model, screen.records
    notices = [PHOTO_NOTICE] if name == PHOTO else []
    if records.results is None:
        missing = "texts. The grid shows the paper's levels." if records.published else "texts or scores."
        return [f"There are no tables for {name}, so its heads have no {missing}", *notices]
    if screen.has_model and hash_of(screen.model) != records.weights:
        notices.append(
            f"The tables of {name} were computed from other weights than those loaded here; texts and "
            "scores may not match. Recompute them with: clip-ccs compute"
        )
    return notices


def _strip(screen: Screen) -> Markup:
    """Render which heads are ablated, and the effects as far as they are known."""
    answers = embedded = None
    if screen.state.ablate:
        screen = replace(screen, tell=wait_for_nothing)
        with suppress(InputError, NotReady):
            answers = classify.measure_answers(screen)
            embedded = embed_query(screen, BiasQuery.from_state(screen.app, screen.state))
    return _render("strip.html", screen, answers=answers, embedded=embedded)


# -- the column of heads and images --------------------------------------------------------------------------


def _column(screen: Screen) -> Markup:
    state, records, heads = screen.state, screen.records, screen.grid_heads
    sets = dict[str, str]()
    for name, ablated in records.presets.items():
        sets.setdefault(str(ablated), f"{name}: {count(len(ablated), 'head')}")
    return _render(
        "left.html",
        screen,
        heads=heads,
        table=_table(screen),
        cells=_cells(screen),
        encoders=ENCODERS,
        focus=state.head if state.head in heads else next(iter(heads), None),
        shade=shade_of,
        level=level,
        sets={str(state.ablate): f"your own selection: {count(len(state.ablate), 'head')}"} | sets,
        images=screen.images.originals,
        examples=example_names(state.model),
        example=parse_example(state.example),
        pages=example_pages(parse_example(state.example)[0]),
        truth=claims.truth(state.model),
        known=claims.known(state.model),
        losses=LOSSES,
        analyzed=bool(state.analysis) and records is not screen.app.records(state.model),
        datasets=sorted(
            DATASETS, key=lambda name: (DATASETS[name] == "world") != saw_drawings_only(state.model)
        ),
        count=DEFAULT_COUNT,
        max_count=MAX_COUNT,
        matter=claims.that_matter(records),
        ablated=[(records.head(head), head_states(screen, head)) for head in state.ablate[:LISTED]],
    )


def _table(screen: Screen) -> Figure:
    """Return the grid as a table, which its button saves."""
    rows = []
    for record in map(screen.records.head, screen.grid_heads):
        score = record.score if record.published else record.ccs
        cells = [str(record.head), record.concept, score, record.k, record.level, record.share]
        rows.append([*cells, record.variance, head_state(screen.state.ablate, record.head)])
    columns = ["head", "concept", "CCS", "K", "level", "share", "variance", "state"]
    return Figure("heads", pd.DataFrame(rows, columns=columns), screen.settings)


def shade_of(record: HeadRecord) -> int | str:
    """Return the shade of a head's cell."""
    if record.published:
        return {"high": 5, "moderate": 3}.get(record.level, 1)
    return "none" if record.ccs is None else round(SHADES * record.ccs / record.k)


def _cells(screen: Screen) -> list[tuple[int, list[HeadRecord | None]]]:
    """Return the rows of the grid: a layer and its heads, None for one that the model doesn't have."""
    heads, encoder = screen.grid_heads, screen.state.encoder
    columns = range(max((head.head for head in heads), default=-1) + 1)
    rows = [(layer, [Head(layer, i, encoder) for i in columns]) for layer in heads.layers]
    return [(layer, [screen.records.head(h) if h in heads else None for h in row]) for layer, row in rows]
