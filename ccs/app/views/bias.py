"""The view Bias: who comes first when images of people are ranked for an occupation, before and after."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from markupsafe import Markup

from ccs.app.html import render
from ccs.app.services.galleries import DRAWN, PAIRS, PHOTOGRAPHED, world
from ccs.app.session import App, Screen
from ccs.app.state import OWN
from ccs.app.views import claims, fairer
from ccs.app.views.base import Empty, Figure, View, of_model
from ccs.app.views.query import SHOWN_METRICS, BiasQuery, embedded, lines, top
from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.metrics import bias_result, ranking, skew
from ccs.metrics.bias_result import BiasResult
from ccs.metrics.stats import Estimate

FACES = 12
COLUMNS = (
    *("occupation", "attribute", "metric", "k"),
    *("before", "before low", "before high", "after", "after low", "after high"),
    *("chance", "chance low", "chance high"),
)
WORDS = {
    DRAWN.people: "drawn faces",
    PAIRS: "drawn faces that differ in their groups alone",
    PHOTOGRAPHED.people: "FairFace",
}


@dataclass(frozen=True)
class Measurement:
    """The answer to a query: results, and embeddings of images and occupations, before and after."""

    query: BiasQuery
    first: BiasResult
    second: BiasResult
    images: Sequence[np.ndarray]
    texts: Sequence[np.ndarray]

    @property
    def change(self) -> Estimate:
        """The change of mean MaxSkew."""
        return bias_result.compare(self.second, self.first)

    @property
    def ceiling(self) -> float:
        """The largest MaxSkew that there can be over the whole gallery."""
        return float(skew.ceiling(self.first.pool, self.first.k))

    @property
    def same(self) -> Sequence[Sequence[str]]:
        """Occupations that are one text to the model."""
        return ranking.alike(self.query.occupations, self.texts[0])


class Bias(View):
    """Rankings of a gallery for occupations."""

    name = "bias"
    title = "Bias"
    purpose = "Who ranks first for an occupation, before and after ablation."

    def pending(self, screen: Screen) -> bool:
        session, galleries, name = screen.session, screen.app.galleries, _name(screen)
        if galleries.ready(screen.model, name, screen.state.ablate):
            return session.budget is not None
        return True

    def news(self, screen: Screen) -> Hashable:
        galleries, name = screen.app.galleries, _name(screen)
        return galleries.has(name), galleries.part(screen.model, name) is not None

    def prepare(self, screen: Screen) -> Iterator[tuple[float, str]]:
        galleries, name, model = screen.app.galleries, _name(screen), screen.model
        if screen.session.budget is not None:
            yield from galleries.looking(model, name, HeadSet())
            yield from fairer.run(screen)
        yield from galleries.looking(model, name, screen.state.ablate)

    def render(self, screen: Screen, complete: bool = True) -> Markup:
        app, session, state = screen.app, screen.session, screen.state
        galleries, name = app.galleries, _name(screen)
        listed = [
            (n, _words(n) + (f" ({len(galleries.get(n).images)})" if galleries.has(n) else ""))
            for n in dict.fromkeys((*galleries.names(state.model), name))
        ]
        try:
            query = BiasQuery.of(app, state)
        except InputError as error:
            wait = "You can rank your own faces instead: “Your own …” takes a zip or Parquet file."
            empty = Empty(f"{_words(name)} can't be shown", f"{error} {wait}")
            return render("bias.html", query=None, galleries=listed, found=empty, name=name)
        found = of_model(screen, complete, lambda model: measure(screen, complete))
        figures: list[Figure] = []
        if not isinstance(found, Empty):
            figures = [first_images(app, found), _groups(found, state.ablate), table(found)]
        if figures and session.fairer is not None and session.fairer.fits(screen):
            figures.insert(0, fairer.figure(app, session.fairer))
        return render(
            "bias.html",
            query=query,
            name=name,
            state=state,
            matter=claims.that_matter(screen.records),
            printed=screen.records.published,
            claim=claims.held_out(screen.records, state.ablate, query.attribute)
            if name == world(state.model).people
            else None,
            numbered=list(enumerate(query.occupations)),
            listed=sorted(query.listed),
            galleries=listed,
            found=found,
            figures=figures,
        )

    def program(self, screen: Screen) -> str:
        return lines(screen.state, BiasQuery.of(screen.app, screen.state), SHOWN_METRICS)


def _name(screen: Screen) -> str:
    return BiasQuery.name(screen.app, screen.state)


def _words(name: str) -> str:
    return "your own" if name.startswith(OWN) else WORDS.get(name, name)


def measure(screen: Screen, complete: bool = True) -> Measurement | Empty:
    """The answer to what is asked. With `complete` False nothing, unless it is at hand."""
    model, query, off = screen.model, BiasQuery.of(screen.app, screen.state), screen.state.ablate
    found = embedded(screen.app, model, query, off, complete)
    if found is None:
        return Empty("Measuring", "The results follow.")
    query, *images = found
    texts = [query.texts(screen.session, model, one) for one in (HeadSet(), off)]
    first, second = query.measure(images, texts, model.logit_scale)
    return Measurement(query, first, second, images, texts)


def first_images(app: App, found: Measurement) -> Figure:
    """The first images for one occupation, before and after."""
    query, occupations = found.query, [texts[found.query.row] for texts in found.texts]
    labels, name, pools = query.gallery.groups[query.attribute], query.gallery.name, query.pools
    own = np.arange(len(labels)) if pools is None else np.flatnonzero(pools[query.row])
    n = min(FACES, len(own))
    both = zip(found.images, occupations, strict=True)
    old, new = (own[top(images[own], occupation, n)] for images, occupation in both)
    strips, rows = [], []
    for title, order, others in (("before", old, new), ("after", new, old)):
        strips.append((title, [(int(i), app.face(name, int(i)), labels[i], i not in others) for i in order]))
        rows += [[title, rank, int(i), labels[i]] for rank, i in enumerate(order, 1)]
    title = f"First {n} images for “{query.occupations[query.row]}”"
    shown = {"strips": strips, "n": n, "pool": len(own), "query": query}
    columns = ["ranking", "rank", "image", "group"]
    return Figure("first-images", title, "rank", columns, rows, shown, made=query.shown)


def _groups(found: Measurement, off: HeadSet) -> Figure:
    """Each group's share of the top for one occupation, beside its share of the pool."""
    first, second, row, query = found.first, found.second, found.query.row, found.query
    rows: list[list[Any]] = [
        [group, *(float(of[row, g]) for of in (first.top_shares, second.top_shares, first.pool_shares))]
        for g, group in sorted(enumerate(first.groups), key=lambda pair: query.groups.index(pair[1]))
    ]
    title = f"Who is in the top {query.k} for “{query.occupations[row]}”"
    columns = ["group", "before", "after", "pool"]
    shown, made = {"k": query.k, "off": bool(off)}, {**query.shown, "k": query.k}
    return Figure("groups", title, "share of the top, %", columns, rows, shown, made=made)


def table(found: Measurement) -> Figure:
    """All metrics per occupation and over all, beside chance; a click on an occupation shows its images."""
    first, second, query = found.first, found.second, found.query
    rows: list[list[Any]] = []
    places = [*enumerate(query.occupations), (None, "(mean)")]
    for name, (place, occupation) in product(SHOWN_METRICS, places):
        before, after = first.figure(name, place), second.figure(name, place)
        ends = [end for one in (before, after, before.chance) for end in (one.value, one.low, one.high)]
        rows.append([occupation, query.attribute, name, query.k, *map(float, ends)])
    return Figure(
        "by-occupation",
        f"MaxSkew@{query.k} by {query.attribute}, and measures of whole rankings",
        "natural log of a ratio of shares",
        COLUMNS,
        rows,
        {
            "names": SHOWN_METRICS,
            "query": query,
            "both": [result.metrics[name] for name in SHOWN_METRICS for result in (first, second)],
            "ties": int(max(first.ties.max(), second.ties.max())),
        },
        made=query.made,
    )
