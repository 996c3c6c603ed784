"""Who says which head carries the bias: the rankings of the table `localization`, for what is shown."""

from __future__ import annotations

from collections.abc import Iterator

from ccs.heads import HeadSet
from ccs.model.model import Model
from ccs.results import localization
from ccs.results.localization import PLANTED
from ccs.ui.app import App
from ccs.ui.views.base import Figure
from ccs.ui.views.bias.query import BiasQuery

FIRST = 6


def located(app: App, query: BiasQuery, model: Model, off: HeadSet) -> Iterator[Figure]:
    """The first heads of every method, and the places of heads that are off; none without a table."""
    weights, dataset = model.weights_hash[:16], query.gallery.name
    asked = {"model": model.name, "weights": weights, "dataset": dataset, "attribute": query.attribute}
    orders = localization.orders(app.collection.localization, **asked)
    planted = HeadSet(orders.pop(PLANTED, ()))
    if not orders:
        return
    rows = []
    for method, heads in orders.items():
        places = {head: place for place, head in enumerate(heads, 1)}
        first = " ".join(f"{head}{'*' if head in planted else ''}" for head in heads[:FIRST])
        rows.append([method, first, ", ".join(f"{head}: {places.get(head, '–')}" for head in off)])
    yield Figure(
        "located",
        f"Who says which heads carry the bias by {query.attribute}",
        "place in a ranking",
        ["method", f"first {FIRST} heads", "places of the heads that are off"],
        rows,
        {"planted": planted, "n": max(map(len, orders.values()))},
    )
