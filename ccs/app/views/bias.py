"""The view Bias: who ranks first when images of people are ranked for an occupation, before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from ccs.analysis.bias import MEAN, BiasTable
from ccs.analysis.galleries import rank_gallery
from ccs.analysis.preference import measure_part_changes
from ccs.app.html import render
from ccs.app.jobs import NotReady
from ccs.app.services.galleries import DRAWN, PHOTOGRAPHED, world
from ccs.app.services.images import has_edits
from ccs.app.session import App, Screen
from ccs.app.state import OWN
from ccs.app.views import claims, fairer
from ccs.app.views.base import Empty, Figure, View, with_model
from ccs.app.views.query import (
    DRAWS,
    SHOWN_METRICS,
    BiasQuery,
    Embedded,
    bias_lines,
    embed_query,
    natural_order,
)
from ccs.errors import InputError
from ccs.metrics.preference import PartChanges

FACES = 12
GALLERY_TITLES = {
    DRAWN.people: "synthetic faces",
    DRAWN.pairs: "synthetic faces that differ in their groups only",
    PHOTOGRAPHED.people: "FairFace",
}


def render_bias(screen: Screen) -> Markup:
    """Return the view."""
    app, state, name = screen.app, screen.state, screen.gallery
    listed = dict.fromkeys((*app.galleries.names(state.model), name))
    values: dict[str, Any] = {"galleries": [(n, _gallery_title(app, n)) for n in listed], "name": name}
    try:
        app.galleries.find(name, screen.tell)
        query = BiasQuery.from_state(app, state)
    except NotReady as step:
        return render("bias.html", query=None, answer=Empty(str(step), "The results follow."), **values)
    except InputError as error:
        advice = "You can rank your own faces instead: “Your own …” takes a zip or Parquet file."
        empty = Empty(f"{_gallery_title(app, name)} can't be shown", f"{error} {advice}")
        return render("bias.html", query=None, answer=empty, **values)
    answer = with_model(screen, lambda model: _answer(screen, query))
    key, comparison = screen.session.fairer or (None, "")
    usual = name == world(state.model).people
    return render(
        "bias.html",
        query=query,
        state=state,
        records=screen.records,
        matter=claims.that_matter(screen.records),
        claim=claims.held_out(screen.records, state.ablate, query.attribute) if usual else None,
        edited=has_edits(state.ablate),
        answer=answer,
        comparison=comparison if key == (state.model, query.key) else "",
        **values,
    )


def _answer(screen: Screen, query: BiasQuery) -> dict[str, Any]:
    """Return the measured bias, and its figures."""
    fairer.compare_methods(screen)
    embedded = embed_query(screen, query)
    table = embedded.measure(screen)
    figures = [first_images(screen, embedded), _groups(screen, query, table)]
    figures += [metric_figure(screen, query, table), _preference_figure(screen, embedded, table)]
    skew = table.of("MaxSkew").loc[MEAN]
    return {"result": table, "skew": skew, "figures": figures}


def _gallery_title(app: App, name: str) -> str:
    title = "your own" if name.startswith(OWN) else GALLERY_TITLES.get(name, name)
    return f"{title} ({len(app.galleries.people(name).images)})" if app.galleries.has(name) else title


def first_images(screen: Screen, embedded: Embedded) -> Figure:
    """Return the first images for the occupation shown, before and after.

    Args:
        screen: The screen.
        embedded: The embeddings that rank them.
    """
    query, pool = embedded.query, len(embedded.query.pool())
    labels, n = query.gallery.groups[query.attribute], min(FACES, pool)
    before, after = embedded.first(n)
    strips = []
    for order, others in ((before, after), (after, before)):
        strips.append(
            [(i, screen.app.face(query.gallery.name, i), labels[i], i not in others) for i in order]
        )
    shown = np.array([*before, *after])
    rows = pd.DataFrame({"ranking": np.repeat(["before", "after"], n), "rank": [*range(1, n + 1)] * 2})
    rows = rows.assign(image=shown, group=labels[shown])
    settings = {**screen.settings, **query.settings, "occupation": query.occupation}
    values = {"strips": strips, "n": n, "pool": pool, "query": query}
    return Figure("first-images", rows, settings, values=values)


def _groups(screen: Screen, query: BiasQuery, table: BiasTable) -> Figure:
    """Return each group's share of the top for the occupation shown, and its share of the pool."""
    shares = table.shares.loc[query.occupation]
    rows = shares.loc[natural_order(shares.index)].reset_index()
    settings = {**screen.settings, **query.settings, "occupation": query.occupation, "k": query.k}
    return Figure("groups", rows, settings, values={"query": query, "ablate": screen.state.ablate})


def metric_figure(screen: Screen, query: BiasQuery, table: BiasTable) -> Figure:
    """Return all metrics per occupation and their means, with chance levels.

    Args:
        screen: The screen.
        query: The query.
        table: Its answer.
    """
    settings = {**screen.settings, **query.settings, "k": query.k}
    values = {"query": query, "tables": [table.of(metric) for metric in SHOWN_METRICS], "result": table}
    return Figure("by-occupation", table.rows, settings, values={**values, "names": SHOWN_METRICS})


def part_changes(embedded: Embedded) -> PartChanges | None:
    """Return how an ablation changes the general and the occupation-specific preference.

    Args:
        embedded: Embeddings before and after it.
    """
    query, (images, after), (texts, texts_after) = embedded
    task = rank_gallery(query.gallery, query.attribute, texts, one_pool=True)
    return measure_part_changes(
        images, [after], task, prompts=[texts_after[task.first_positions]], draws=DRAWS
    )[0]


def _preference_figure(screen: Screen, embedded: Embedded, table: BiasTable) -> Figure:
    """Return the split into a general and an occupation-specific preference, and its change by ablation."""
    query, ablate, preference = embedded.query, screen.state.ablate, table.preference
    values = {"preference": preference, "query": query, "ablate": ablate}
    changes = part_changes(embedded) if ablate else None
    settings = {**screen.settings, **query.settings}
    return Figure("preference", preference.rows, settings, values={**values, "changes": changes})


def bias_program(screen: Screen) -> str:
    """Return a program that prints the metrics of the screen's query."""
    return bias_lines(screen, BiasQuery.from_state(screen.app, screen.state))


VIEW = View(
    "bias",
    "Bias",
    "Who ranks first for an occupation, before and after ablation.",
    render_bias,
    bias_program,
)
