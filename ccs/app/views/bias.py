"""The view Bias: who ranks first when images of people are ranked for an occupation, before and after."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pandas as pd

from ccs.analysis.galleries import rank_gallery
from ccs.analysis.preference import measure_part_changes
from ccs.app.session import Screen
from ccs.app.views import fairer
from ccs.app.views.base import Figure, View, if_ready
from ccs.app.views.query import DRAWS, BiasQuery, Embedded, bias_lines, embed_query, natural_order
from ccs.errors import InputError
from ccs.metrics.preference import PartChanges

FACES = 12


def show_bias(screen: Screen) -> dict[str, Any]:
    """Return the query and its answer."""
    try:
        query = BiasQuery.from_state(screen.app, screen.state, screen.tell)
    except InputError as error:
        return {"query": None, "error": error}
    figures = if_ready(partial(_answer, screen, query))  # before the comparison is read, which it may make
    key, comparison = screen.session.fairer or (None, "")
    return {
        "query": query,
        "claim": screen.records.held_out(screen.state.ablate, query.attribute, query.gallery.name),
        "answer": figures,
        "comparison": comparison if key == (screen.state.model, query.key) else "",
    }


def _answer(screen: Screen, query: BiasQuery) -> dict[str, Any]:
    """Return the measured bias, and its figures."""
    fairer.compare_methods(screen, query)
    embedded = embed_query(screen, query)
    table, ablate = embedded.measure(screen), screen.state.ablate
    of_row = {**query.settings, "occupation": query.occupation}
    shares = table.shares.loc[query.occupation]
    shares = shares.loc[natural_order(shares.index)].reset_index()
    values = {"query": query, "result": table, "ablate": ablate}
    changes = part_changes(embedded) if ablate else None
    figures = [
        first_images(screen, embedded, of_row),
        Figure.of(screen, "groups", shares, of_row, **values),
        Figure.of(screen, "by-occupation", table.rows, query.settings, **values),
        Figure.of(screen, "preference", table.preference.rows, query.settings, **values, changes=changes),
    ]
    return {"result": table, "figures": figures}


def first_images(screen: Screen, embedded: Embedded, settings: Mapping[str, Any]) -> Figure:
    """Return the first images for the occupation shown, before and after.

    Args:
        screen: The screen, with the images.
        embedded: The embeddings that rank them.
        settings: Settings of the figure.
    """
    query, orders = embedded.query, dict(zip(("before", "after"), embedded.first(FACES), strict=True))
    labels, face = query.gallery.groups[query.attribute], partial(screen.app.face, query.gallery.name)
    rows = [(side, rank, i, labels[i]) for side, order in orders.items() for rank, i in enumerate(order, 1)]
    table = pd.DataFrame(rows, columns=["ranking", "rank", "image", "group"])
    return Figure.of(
        screen, "first-images", table, settings, orders=orders, labels=labels, face=face, query=query
    )


def part_changes(embedded: Embedded) -> PartChanges | None:
    """Return how an ablation changes the general and the occupation-specific preference.

    Args:
        embedded: Embeddings before and after it.
    """
    query, (images, after), (texts, texts_after) = embedded
    task = rank_gallery(query.gallery, query.attribute, texts, one_pool=True)
    prompts = [texts_after[task.first_positions]]
    return measure_part_changes(images, [after], task, prompts=prompts, draws=DRAWS)[0]


def bias_program(screen: Screen) -> str:
    """Return a program that prints the metrics of the screen's query."""
    return bias_lines(screen, BiasQuery.from_state(screen.app, screen.state))


VIEW = View("bias", show_bias, bias_program)
