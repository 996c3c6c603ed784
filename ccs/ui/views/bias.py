"""The view Bias: who comes first when images of people are ranked for an occupation, before and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from markupsafe import Markup

from ccs.errors import InputError
from ccs.measures import bias
from ccs.measures.bias import BiasResult
from ccs.measures.stats import Estimate
from ccs.paper import figures as paper
from ccs.ui.actions import Action
from ccs.ui.app import App
from ccs.ui.html import program, render
from ccs.ui.service.galleries import DRAWN
from ccs.ui.session import Session
from ccs.ui.state import State
from ccs.ui.views.base import Empty, Figure, View, waiting
from ccs.ui.views.bias_query import (
    DRAWS,
    BiasQuery,
    all_occupations,
    ask,
    show_row,
    top,
)
from ccs.ui.views.charts import Line, strip

LARGE = 200  # images from which on an instant estimate is worth having
FACES = 12
LINES = 30
COLUMNS = (
    *("occupation", "attribute", "metric", "k", "target", "mode"),
    *("before", "before low", "before high", "after", "after low", "after high"),
    *("chance", "chance low", "chance high"),
)


@dataclass(frozen=True)
class Measurement:
    """The answer to a query: results and embeddings before and after, and the occupations' embeddings.

    exact: False where later layers do not react, an estimate.
    """

    query: BiasQuery
    first: BiasResult
    second: BiasResult
    before: np.ndarray
    after: np.ndarray
    texts: np.ndarray
    exact: bool


class Bias(View):
    """Rankings of a gallery for occupations."""

    name = "bias"
    title = "Bias"
    purpose = "Whom the model puts first when it ranks people for an occupation."
    actions: ClassVar[Mapping[str, Action]] = {"bias": ask, "occupations": all_occupations, "row": show_row}

    def models(self, state: State) -> tuple[str, ...]:
        return (state.model,)

    def pending(self, app: App, session: Session) -> bool:
        model, name = app.model_cache.get(session.state.model), BiasQuery.of(app, session.state).gallery.name
        if app.galleries.ready(model, name, session.state.off):
            return False
        seen = app.galleries.known(model, name)
        # Where there is no estimate, the figures before stay until the new ones are there.
        return (seen is not None and seen.direct is not None) or "view-bias" not in session.shown.get(
            "main", ""
        )

    def prepare(self, app: App, session: Session) -> Iterator[tuple[float, str]]:
        model, off = app.model_cache.get(session.state.model), session.state.off
        gallery = BiasQuery.of(app, session.state).gallery
        name, n = gallery.name, len(gallery.images)
        for share in app.galleries.seen(model, name):
            yield share, f"Looking at {n} images"
        if n >= LARGE and off:
            for share in app.galleries.collect(model, name):
                yield share, "Collecting direct effects, for instant estimates from now on"
        for share in app.galleries.pruned(model, name, off):
            yield share, f"Computing the exact answer for {n} images with {len(off)} heads off"

    def render(self, app: App, session: Session, complete: bool = True) -> Markup:
        query, state = BiasQuery.of(app, session.state), session.state
        try:
            found = measure(app, session, complete)
        except InputError as error:
            found = Empty("Nothing to measure", str(error))
        shown: dict[str, Any] = {"missing": found} if isinstance(found, Empty) else _shown(app, found)
        own = set(query.gallery.occupations) != set(paper.occupations())
        return render(
            "views/bias.html",
            query=query,
            state=state,
            attributes=[(a, a) for a in query.gallery.groups],
            numbered=list(enumerate(query.occupations)),
            listed=[(o, o) for o in sorted({*query.gallery.occupations, *paper.occupations()})],
            galleries=[(n, f"{n} ({len(app.galleries.get(n).images)} images)") for n in app.galleries.names],
            n_study=len(paper.occupations()),
            n_own=len(query.gallery.occupations) if own else 0,
            **shown,
        )

    def figures(self, app: App, session: Session) -> list[Figure]:
        found = measure(app, session)
        assert isinstance(found, Measurement)
        figures: list[Figure] = _shown(app, found)["figures"]
        return figures

    def snippet(self, app: App, session: Session) -> str:
        query, state = BiasQuery.of(app, session.state), session.state
        name = query.gallery.name
        spec, drawn = app.galleries.specs.get(name), DRAWN.get(name)
        rest = program("bias", query=query, spec=spec, drawn=drawn, draws=DRAWS)
        return program("model", model=state.model, off=state.off) + rest


def measure(app: App, session: Session, complete: bool = True) -> Measurement | Empty:
    """The answer to what is asked. With `complete` False an estimate from what is known, or nothing."""
    query, off, galleries = BiasQuery.of(app, session.state), session.state.off, app.galleries
    if not complete and session.state.model not in app.model_cache.loaded():
        return waiting(session.state.model)
    model, name = app.model_cache.get(session.state.model), query.gallery.name
    if not complete and galleries.known(model, name) is None:
        return Empty("The images are being looked at", "The measurement follows.")
    exact = complete or galleries.ready(model, name, off)
    before = galleries.base(model, name)
    after = galleries.embeddings(model, name, off) if exact else galleries.estimate(model, name, off)
    if after is None:
        return Empty("The measurement is under way", "Its figures follow.")
    texts = query.texts(session, model)
    return Measurement(query, *query.measure(before, after, texts), before, after, texts, exact)


def _shown(app: App, found: Measurement) -> dict[str, Any]:
    """The values that the template prints of a measurement."""
    one, two = found.first.max_skew, found.second.max_skew
    return {
        "one": one,
        "two": two,
        "inside": two.chance_mean.low <= two.mean.value <= two.chance_mean.high,
        "change": bias.compare(found.second, found.first),
        "exact": found.exact,
        "figures": [_skews(found), _faces(app, found), _groups(found), _table(found)],
    }


def _skews(found: Measurement) -> Figure:
    """MaxSkew per occupation and their mean, before and after, over what chance gives."""
    one, two, query = found.first.max_skew, found.second.max_skew, found.query
    n = len(query.occupations)
    order = list(range(n))
    if n > LINES:
        order = sorted(order, key=lambda i: -float(one.values[i]))[:LINES]
    before, after = ([Estimate(m.values[i], m.low[i], m.high[i]) for i in order] for m in (one, two))
    names = (query.occupations[i] for i in order)
    lines = [Line(*row, one.chance) for row in zip(names, before, after, strict=True)]
    if n > 1:
        lines.append(Line("mean", one.mean, two.mean, one.chance_mean))
    label = f"MaxSkew at {query.k} by {query.attribute}, before and after"
    return Figure(
        "maxskew",
        f"MaxSkew@{query.k} by {query.attribute}",
        "natural log of a ratio of shares",
        COLUMNS,
        _rows(found),
        {"query": query, "chart": strip(lines, label=label), "left_out": n > LINES, "most": LINES},
    )


def _faces(app: App, found: Measurement) -> Figure:
    """The first images for one occupation, before and after."""
    query, occupation = found.query, found.texts[found.query.row]
    labels, name, pools = query.gallery.groups[query.attribute], query.gallery.name, query.pools
    own = np.arange(len(labels)) if pools is None else np.flatnonzero(pools[query.row])
    n = min(FACES, len(own))
    old, new = (own[top(images[own], occupation, n)] for images in (found.before, found.after))
    strips = [
        (title, [(app.face(name, int(i)), labels[i], i not in others) for i in order])
        for title, order, others in (("before", old, new), ("after", new, old))
    ]
    rows = [
        [title, rank, int(i), labels[i]]
        for title, order in (("before", old), ("after", new))
        for rank, i in enumerate(order, 1)
    ]
    return Figure(
        "first-images",
        f"First {n} images for “{query.occupations[query.row]}”",
        "rank",
        ["ranking", "rank", "image", query.attribute],
        rows,
        {"strips": strips, "n": n, "pool": len(own), "drawn": name == "world/faces"},
    )


def _groups(found: Measurement) -> Figure:
    """Each group's share of the top for one occupation, beside its share of the pool."""
    first, second, row, query = found.first, found.second, found.query.row, found.query
    pool = first.pools[row] / first.pools[row].sum()
    rows = [
        [group, float(first.top[row, g] / first.k), float(second.top[row, g] / second.k), float(pool[g])]
        for g, group in enumerate(first.groups)
    ]
    return Figure(
        "groups",
        f"Who is in the top {query.k} for “{query.occupations[row]}”",
        "share of the top, %",
        ["group", "before", "after", "pool"],
        rows,
        {"k": query.k},
    )


def _table(found: Measurement) -> Figure:
    """All metrics per occupation and over all, beside chance; a click on an occupation shows its images."""
    first, second = found.first, found.second
    names = [name for name in bias.METRICS if name in first.metrics]
    return Figure(
        "by-occupation",
        "By occupation",
        "nats",
        COLUMNS,
        _rows(found),
        {
            "names": names,
            "occupations": found.query.occupations,
            "both": [result.metrics[name] for name in names for result in (first, second)],
            "ties": int(max(first.ties.max(), second.ties.max())),
        },
    )


def _rows(found: Measurement) -> list[list[Any]]:
    """All metrics: a row per occupation, and one for their mean."""
    rows, query = [], found.query
    for name, one in found.first.metrics.items():
        two, fixed = (
            found.second.metrics[name],
            (query.attribute, name, query.k, query.target, found.first.mode),
        )
        chance, level = one.chance, one.chance_mean
        for i, occupation in enumerate(query.occupations):
            cells = [float(m[i]) for metric in (one, two) for m in (metric.values, metric.low, metric.high)]
            rows.append([occupation, *fixed, *cells, chance.value, chance.low, chance.high])
        means = [cell for e in (one.mean, two.mean, level) for cell in (e.value, e.low, e.high)]
        rows.append(["(mean)", *fixed, *means])
    return rows
