"""The view Bias: who ranks first when images of people are ranked for an occupation, before and after."""

import itertools
import secrets
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from ccs.analysis.bias import rank_gallery
from ccs.analysis.evidence import Subject
from ccs.analysis.preference import measure_part_changes
from ccs.app.routes import Files, Long, Name, post, post_fields
from ccs.app.services.galleries import world
from ccs.app.services.uploads import MAX_BYTES
from ccs.app.session import Screen
from ccs.app.state import OWN
from ccs.app.views.base import Figure, View, if_ready
from ccs.app.views.query import DRAWS, BiasQuery, Embedded, bias_lines, embed_query, natural_order
from ccs.data import ClassificationSet
from ccs.data.open import open_upload
from ccs.errors import InputError
from ccs.metrics.preference import PartChanges
from ccs.metrics.ranking import cosines

SHOWN_IMAGES = 12
COMPARED_METHODS = ("ablation", "scaling", "edit of all heads", "projection")  # of `ccs.mitigate`


def show_bias(screen: Screen) -> dict[str, Any]:
    """Return the query and its answer."""
    try:
        query = BiasQuery.from_state(screen.app, screen.state, screen.tell)
    except InputError as error:
        return {"query": None, "error": error}
    return {
        "query": query,
        "claim": screen.records.held_out(screen.state.ablate, query.attribute, query.gallery.name),
        "answer": if_ready(partial(_answer, screen, query)),
    }


def _answer(screen: Screen, query: BiasQuery) -> dict[str, Any]:
    """Return the measured bias, its figures, and the comparison of methods."""
    comparison = compare_methods(screen, query)
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
    return {"result": table, "comparison": comparison, "figures": figures}


def first_images(screen: Screen, embedded: Embedded, settings: Mapping[str, Any]) -> Figure:
    """Return the first images for the occupation shown, before and after.

    Args:
        screen: The screen, with the images.
        embedded: The embeddings that rank them.
        settings: Settings of the figure.
    """
    query, orders = embedded.query, dict(zip(("before", "after"), embedded.first(SHOWN_IMAGES), strict=True))
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
    query, images, texts = embedded
    task = rank_gallery(query.gallery, query.attribute, texts[0], one_pool=True)
    scores = [
        cosines(prompts[task.first_positions], units) for prompts, units in zip(texts, images, strict=True)
    ]
    return measure_part_changes(scores, task, draws=DRAWS)[0]


# -- make it fairer: four ways to lower a bias, fitted on half of the people and measured on the others -----


@post("bias/fairer")
def make_fairer(screen: Screen, budget: Annotated[int, Field(ge=0, le=100)] = 0) -> None:
    """Request a comparison of ways to lower the bias, which `compare_methods` does.

    Args:
        screen: The screen to change.
        budget: The points of accuracy that may be lost.
    """
    screen.session.budget = budget
    screen.change(tab="bias")


def compare_methods(screen: Screen, query: BiasQuery) -> Figure | str:
    """Return the comparison of ways to lower the bias, made now if the visitor has requested it; else "".

    Args:
        screen: The screen.
        query: Its query.
    """
    session, key = screen.session, (screen.state.model, query.key)
    if session.budget is not None:
        screen.tell(0.0, "Comparing methods")
        budget, session.budget = session.budget, None  # once: a canceled comparison isn't resumed
        try:
            session.fairer = key, _compare(screen, query, budget / 100)
        except InputError as error:
            session.notify(f"The methods weren't compared: {error}")
    key_of_figure, figure = session.fairer or (None, "")
    return figure if key_of_figure == key else ""


def _compare(screen: Screen, query: BiasQuery, max_loss: float) -> Figure:
    """Compare the methods at a loss of accuracy; InputError if they can't be compared."""
    from ccs.analysis import carriers  # these import PyTorch
    from ccs.analysis.mitigate import mitigate_subject
    from ccs.analysis.mitigations import METHODS

    model, controls, galleries = screen.model, world(screen.state.model).things, screen.app.galleries
    steps = itertools.count()

    def tell(line: str) -> None:
        screen.tell(min(1, next(steps) / (carriers.STEPS + 6)), line.partition(":")[0].capitalize())

    people, things = (
        galleries.images(name, screen.tell).trunk(model) for name in (query.gallery.name, controls)
    )
    if people is None or things is None:
        raise InputError("This gallery is too large for the app; use clip-ccs mitigate.")
    images = galleries.find(controls)
    assert isinstance(images, ClassificationSet)
    subject = Subject(model.load(), query.gallery, images, (people, things), fresh=True)
    methods = {name: METHODS[name] for name in COMPARED_METHODS}
    table = mitigate_subject(subject, query.attribute, methods, max_loss, tell=tell)
    settings = {**query.settings, "ablated heads": ""}
    return Figure.of(screen, "fairer", table.rows, settings, query=query, comparison=table)


# -- the query -----------------------------------------------------------------------------------------------


@post("bias")
def set_query(
    screen: Screen, occupations: Long = "", gallery: Name = "", attribute: Name = "", k: Name = ""
) -> None:
    """Rank a gallery for occupations. K goes back to the default with another gallery or attribute.

    Args:
        screen: The screen to change.
        occupations: The occupations, one per line or separated by commas; "" for the default.
        gallery: The gallery's name, "" for the one that is ranked now.
        attribute: The attribute whose bias is measured, "" for the current one.
        k: The number of images at the top of a ranking; "" or "0" for the gallery's own.

    Raises:
        InputError: If there is no such gallery, or the texts are too many or too long.
    """
    app, before = screen.app, (screen.gallery, screen.app.attribute(screen.state))
    name, attribute = chosen = gallery or before[0], attribute or before[1]
    top = k or 0 if chosen == before else 0
    screen.change(gallery=name, attribute=attribute, k=top, occupations=occupations, row=0)
    screen.change(attribute=app.attribute(screen.state))


@post("bias/gallery")
def add_gallery(screen: Screen, files: Files = ()) -> None:
    """Rank a gallery of the visitor's, from a zip or Parquet file.

    Args:
        screen: The screen to change.
        files: The upload; its first file is used.

    Raises:
        InputError: If it is too large, or isn't a gallery.
    """
    data = files[0].file.read() if files else b""
    if len(data) > MAX_BYTES:
        raise InputError(f"The file has {len(data) >> 20} MB; at most {MAX_BYTES >> 20} MB are accepted.")
    gallery = open_upload(data, f"{OWN}{secrets.token_urlsafe(12)}")
    screen.app.galleries.add(gallery)
    screen.session.gallery = gallery
    screen.change(tab="bias", gallery=gallery.name, attribute=next(iter(gallery.groups)), k=0, row=0)


post_fields("bias/row", "row")


def bias_program(screen: Screen) -> str:
    """Return a program that prints the metrics of the screen's query."""
    return bias_lines(screen, BiasQuery.from_state(screen.app, screen.state))


VIEW = View("bias", show_bias, bias_program)
