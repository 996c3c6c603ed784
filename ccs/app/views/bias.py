"""The view Bias: who ranks first when images of people are ranked for an occupation, before and after."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from markupsafe import Markup

from ccs.analysis.bias import measure_gallery, rank_gallery
from ccs.analysis.preference import PartChanges, Preference, measure_part_changes, measure_preference
from ccs.app.html import render
from ccs.app.services.galleries import DRAWN, PAIRS, PHOTOGRAPHED, world
from ccs.app.session import App, Screen
from ccs.app.state import OWN
from ccs.app.views import claims, fairer
from ccs.app.views.base import Empty, Figure, View, with_model
from ccs.app.views.query import SHOWN_METRICS, BiasQuery, bias_lines, embedded, top
from ccs.errors import InputError
from ccs.heads import TEXT, HeadSet
from ccs.metrics import bias_result, ranking, skew
from ccs.metrics.bias_result import BiasResult
from ccs.metrics.stats import Estimate

FACES = 12
DRAWS = 400  # of the intervals
GALLERY_TITLES = {
    DRAWN.people: "synthetic faces",
    PAIRS: "synthetic faces that differ in their groups only",
    PHOTOGRAPHED.people: "FairFace",
}


@dataclass(frozen=True)
class Measurement:
    """The answer to a query: results and embeddings of images and occupations, before and after ablation."""

    query: BiasQuery
    before: BiasResult
    after: BiasResult
    images: Sequence[np.ndarray]
    texts: Sequence[np.ndarray]
    preference: Preference
    moved: PartChanges | None

    @property
    def change(self) -> Estimate:
        """The change of mean MaxSkew."""
        return bias_result.compare(self.after, self.before)

    @property
    def ceiling(self) -> float:
        """The largest possible MaxSkew over the whole gallery."""
        return float(skew.ceiling(self.before.pool, self.before.k))

    @property
    def alike(self) -> Sequence[Sequence[str]]:
        """Occupations that the model encodes identically."""
        return ranking.alike(self.query.occupations, self.texts[0])


def bias_stage(screen: Screen) -> Hashable:
    """Return None if the gallery is embedded, else whether it is here (`View.stage`)."""
    galleries, name = screen.app.galleries, screen.gallery
    ready = galleries.ready(screen.model, name, screen.state.ablate) and screen.session.budget is None
    return None if ready else galleries.has(name)


def prepare_bias(screen: Screen) -> Iterator[tuple[float, str]]:
    """Embed the gallery, and compare ways to make the model fairer if the visitor wants that."""
    galleries, model = screen.app.galleries, screen.model
    name = screen.gallery
    if screen.session.budget is not None:
        yield from galleries.prepare(model, name, HeadSet())
        yield from fairer.compare_methods(screen)
    yield from galleries.prepare(model, name, screen.state.ablate)


def render_bias(screen: Screen, complete: bool = True) -> Markup:
    """Return the view."""
    app, state = screen.app, screen.state
    name = screen.gallery
    listed = dict.fromkeys((*app.galleries.names(state.model), name))
    values: dict[str, Any] = {"galleries": [(n, _gallery_title(app, n)) for n in listed], "name": name}
    try:
        query = BiasQuery.of(app, state)
    except InputError as error:
        advice = "You can rank your own faces instead: “Your own …” takes a zip or Parquet file."
        empty = Empty(f"{_gallery_title(app, name)} can't be shown", f"{error} {advice}")
        return render("bias.html", query=None, answer=empty, **values)
    answer = with_model(screen, complete, lambda model: measure(screen, complete))
    figures = []
    if isinstance(answer, Measurement):
        figures = [first_images(app, answer), _groups(answer, state.ablate), metric_figure(answer)]
        figures.append(_preference_figure(answer, state.ablate))
    comparison = screen.session.fairer
    usual = name == world(state.model).people
    return render(
        "bias.html",
        query=query,
        state=state,
        records=screen.records,
        matter=claims.that_matter(screen.records),
        claim=claims.held_out(screen.records, state.ablate, query.attribute) if usual else None,
        answer=answer,
        comparison=comparison[1]
        if figures and comparison and comparison[0] == (state.model, query.key)
        else "",
        figures=figures,
        **values,
    )


def _gallery_title(app: App, name: str) -> str:
    title = "your own" if name.startswith(OWN) else GALLERY_TITLES.get(name, name)
    return f"{title} ({len(app.galleries.get(name).images)})" if app.galleries.has(name) else title


def measure(screen: Screen, complete: bool = True) -> Measurement | Empty:
    """Return the answer to the screen's query; with `complete` False, only if nothing has to be computed."""
    query = BiasQuery.of(screen.app, screen.state)
    ready = embedded(screen, query, complete)
    if ready is None:
        return Empty("Measuring", "The results follow.")
    images, texts = ready
    settings = {"metrics": SHOWN_METRICS, "draws": DRAWS, "logit_scale": screen.model.logit_scale}
    before, after = measure_gallery(query.gallery, query.attribute, images, texts, **settings)
    preference = preference_of(screen, query, images, texts)
    moved = _part_changes(query, images, texts) if screen.state.ablate else None
    return Measurement(query, before, after, images, texts, preference, moved)


def _part_changes(
    query: BiasQuery, images: Sequence[np.ndarray], texts: Sequence[np.ndarray]
) -> PartChanges | None:
    """Return how the ablation changes the general and the occupation-specific preference."""
    ranking = rank_gallery(query.gallery, query.attribute, texts[0], one_pool=True)
    prompts = [texts[1][ranking.first]]
    return measure_part_changes(images[0], [images[1]], ranking, prompts=prompts, draws=DRAWS)[0]


def preference_of(
    screen: Screen, query: BiasQuery, images: Sequence[np.ndarray], texts: Sequence[np.ndarray]
) -> Preference:
    """Return how much of the rankings is a general preference, before and after ablation.

    Args:
        screen: names the model and the ablated heads.
        query: names gallery, attribute, and occupations.
        images: embeddings [n, d] before and after ablation.
        texts: embeddings [occupations, d] before and after ablation.
    """
    model, ablate, gallery = screen.model, screen.state.ablate, query.gallery
    task, heads = rank_gallery(gallery, query.attribute, texts[0]), ablate.of_encoder(TEXT) or None
    if not ablate:
        images, texts = images[:1], texts[:1]

    def split() -> Preference:
        return measure_preference(model, images, task, texts, gallery.templates, ablate=heads, draws=DRAWS)

    return screen.app.cache.get(("preference", model.weights_hash, query.key, ablate), split)


def first_images(app: App, answer: Measurement) -> Figure:
    """Return the first images for the occupation shown, before and after."""
    query, pool = answer.query, answer.query.pool()
    labels, n = query.gallery.groups[query.attribute], min(FACES, len(pool))
    pairs = zip(answer.images, answer.texts, strict=True)
    before, after = (pool[top(images[pool], texts[query.row], n)].tolist() for images, texts in pairs)
    strips, rows = [], []
    for title, order, others in (("before", before, after), ("after", after, before)):
        strips.append(
            (title, [(i, app.face(query.gallery.name, i), labels[i], i not in others) for i in order])
        )
        rows += [[title, rank, i, labels[i]] for rank, i in enumerate(order, 1)]
    values = {"strips": strips, "n": n, "pool": len(pool), "query": query}
    settings = {**query.settings, "occupation": query.occupation}
    return Figure("first-images", ["ranking", "rank", "image", "group"], rows, values, settings=settings)


def _groups(answer: Measurement, ablate: HeadSet) -> Figure:
    """Return each group's share of the top for the occupation shown, and its share of the pool."""
    query, results = answer.query, (answer.before, answer.after)
    columns = [*(result.top_shares[query.row] for result in results), answer.before.pool_shares[query.row]]
    places = [answer.before.groups.index(group) for group in query.groups]
    rows = [[query.groups[i], *(float(c[place]) for c in columns)] for i, place in enumerate(places)]
    settings = {**query.settings, "occupation": query.occupation, "k": query.k}
    values = {"query": query, "ablate": ablate}
    return Figure("groups", ["group", "before", "after", "pool"], rows, values, settings=settings)


def metric_figure(answer: Measurement) -> Figure:
    """Return all metrics per occupation and their means, with chance levels."""
    query, results, rows = answer.query, (answer.before, answer.after), []
    places = [*enumerate(query.occupations), (None, "(mean)")]
    for name, (place, occupation) in product(SHOWN_METRICS, places):
        before, after = (result.figure(name, place) for result in results)
        ends = [
            end for level in (before, after, before.chance) for end in (level.value, level.low, level.high)
        ]
        rows.append([occupation, query.attribute, name, query.k, *map(float, ends)])
    columns = [f"{column}{end}" for column in ("before", "after", "chance") for end in ("", " low", " high")]
    values = {
        "names": SHOWN_METRICS,
        "query": query,
        "metrics": [result.metrics[name] for name in SHOWN_METRICS for result in results],
        "ties": int(max(result.ties.max() for result in results)),
    }
    columns = ["occupation", "attribute", "metric", "k", *columns]
    return Figure("by-occupation", columns, rows, values, settings=query.settings)


def _preference_figure(answer: Measurement, ablate: HeadSet) -> Figure:
    """Return the split into a general and an occupation-specific preference."""
    table, query = answer.preference.rows, answer.query
    moved = answer.moved
    parts = [("any text", moved.general), ("these occupations alone", moved.specific)] if moved else []
    if moved and len(query.occupations) < 4:
        parts[1] = (", ".join(query.occupations), moved.specific)
    values = {"preference": answer.preference, "query": query, "parts": parts, "ablate": ablate}
    rows = table.to_numpy().tolist()
    return Figure("preference", list(map(str, table)), rows, values, settings=query.settings)


def bias_program(screen: Screen) -> str:
    """Return a program that prints the metrics of the screen's query."""
    return bias_lines(screen, BiasQuery.of(screen.app, screen.state), SHOWN_METRICS)


VIEW = View(
    "bias",
    "Bias",
    "Who ranks first for an occupation, before and after ablation.",
    render_bias,
    bias_program,
    prepare_bias,
    bias_stage,
)
