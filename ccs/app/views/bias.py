"""The view Bias: who ranks first when images of people are ranked for an occupation, before and after."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pandas as pd

from ccs.analysis.bias import MEAN
from ccs.analysis.galleries import rank_gallery
from ccs.analysis.preference import measure_part_changes
from ccs.app.services.galleries import DRAWN, PHOTOGRAPHED, world
from ccs.app.services.images import has_edits
from ccs.app.session import Screen
from ccs.app.state import OWN
from ccs.app.views import claims, fairer
from ccs.app.views.base import Figure, View, empty, if_ready
from ccs.app.views.query import DRAWS, BiasQuery, Embedded, bias_lines, embed_query, natural_order
from ccs.errors import InputError
from ccs.metrics.preference import PartChanges

FACES = 12
GALLERY_TITLES = {
    DRAWN.people: "synthetic faces",
    DRAWN.pairs: "synthetic faces that differ in their groups only",
    PHOTOGRAPHED.people: "FairFace (CC BY 4.0)",
}


def show_bias(screen: Screen) -> dict[str, Any]:
    """Return the query and its answer."""
    app, state, name = screen.app, screen.state, screen.gallery
    listed = dict.fromkeys((*app.galleries.names(state.model), name))
    titles = {n: "your own" if n.startswith(OWN) else GALLERY_TITLES.get(n, n) for n in listed}
    sizes = {n: f" ({len(app.galleries.people(n).images)})" for n in listed if app.galleries.has(n)}
    values: dict[str, Any] = {"galleries": [(n, titles[n] + sizes.get(n, "")) for n in listed], "name": name}
    try:
        app.galleries.find(name, screen.tell)
        query = BiasQuery.from_state(app, state)
    except InputError as error:
        advice = "You can rank your own faces instead: “Your own …” takes a zip or Parquet file."
        answer = empty(f"{titles[name]} can't be shown", f"{error} {advice}")
        return {**values, "query": None, "answer": answer}
    figures = if_ready(lambda: _answer(screen, query))  # before the comparison is read, which it may make
    key, comparison = screen.session.fairer or (None, "")
    usual = name == world(state.model).people
    return {
        **values,
        "query": query,
        "claim": claims.held_out(screen.records, state.ablate, query.attribute) if usual else None,
        "edited": has_edits(state.ablate),
        "answer": figures,
        "comparison": comparison if key == (state.model, query.key) else "",
    }


def _answer(screen: Screen, query: BiasQuery) -> dict[str, Any]:
    """Return the measured bias, and its figures."""
    fairer.compare_methods(screen)
    embedded = embed_query(screen, query)
    table, ablate = embedded.measure(screen), screen.state.ablate
    settings = {**screen.settings, **query.settings, "k": query.k}
    of_row = {**settings, "occupation": query.occupation}
    shares = table.shares.loc[query.occupation]
    values = {"query": query, "result": table, "ablate": ablate}
    changes = part_changes(embedded) if ablate else None
    figures = [
        first_images(screen, embedded, of_row),
        Figure("groups", shares.loc[natural_order(shares.index)].reset_index(), of_row, values=values),
        Figure("by-occupation", table.rows, settings, values=values),
        Figure("preference", table.preference.rows, settings, values={**values, "changes": changes}),
    ]
    return {"result": table, "skew": table.of("MaxSkew").loc[MEAN], "figures": figures}


def first_images(screen: Screen, embedded: Embedded, settings: Mapping[str, Any]) -> Figure:
    """Return the first images for the occupation shown, before and after.

    Args:
        screen: The screen, with the images.
        embedded: The embeddings that rank them.
        settings: Settings of the figure.
    """
    query, pool = embedded.query, len(embedded.query.pool())
    labels, n = query.gallery.groups[query.attribute], min(FACES, pool)
    orders = dict(zip(("before", "after"), embedded.first(n), strict=True))
    rows = pd.DataFrame(orders, range(1, n + 1)).rename_axis("rank")
    rows = rows.melt(var_name="ranking", value_name="image", ignore_index=False).reset_index()
    rows = rows.assign(group=labels[rows["image"]])[["ranking", "rank", "image", "group"]]
    values = {"orders": orders, "labels": labels, "face": partial(screen.app.face, query.gallery.name)}
    return Figure("first-images", rows, settings, values={**values, "pool": pool, "query": query})


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
