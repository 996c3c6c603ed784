"""The view Bias: who ranks first when images of people are ranked for an occupation, before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from markupsafe import Markup

from ccs.analysis.bias import measure_gallery, rank_gallery
from ccs.analysis.preference import measure_part_changes
from ccs.app.html import render
from ccs.app.services.galleries import DRAWN, PHOTOGRAPHED, world
from ccs.app.services.images import has_edits
from ccs.app.session import App, Screen
from ccs.app.state import OWN
from ccs.app.views import claims, fairer
from ccs.app.views.base import Empty, Figure, View, with_model
from ccs.app.views.query import DRAWS, BiasQuery, Embedded, bias_lines, embed_query
from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.metrics import bias_result, ranking, skew
from ccs.metrics.bias_result import BiasResult
from ccs.metrics.preference import PartChanges
from ccs.metrics.skew import MetricName
from ccs.metrics.stats import Estimate

FACES = 12
SHOWN_METRICS: tuple[MetricName, ...] = ("MaxSkew", "AUC", "NDKL", "logit gap")
GALLERY_TITLES = {
    DRAWN.people: "synthetic faces",
    DRAWN.pairs: "synthetic faces that differ in their groups only",
    PHOTOGRAPHED.people: "FairFace",
}


@dataclass(frozen=True)
class Measurement:
    """The answer to a query: embeddings, and results before and after ablation."""

    embedded: Embedded
    before: BiasResult
    after: BiasResult

    @property
    def query(self) -> BiasQuery:
        """The query that was measured."""
        return self.embedded.query

    @property
    def change(self) -> Estimate:
        """The change of mean MaxSkew."""
        return bias_result.compare_bias(self.after, self.before)

    @property
    def ceiling(self) -> float:
        """The largest possible MaxSkew over the whole gallery."""
        return float(skew.ceiling(self.before.pool, self.before.k))

    @property
    def alike(self) -> Sequence[Sequence[str]]:
        """Occupations that the model encodes identically."""
        return ranking.alike(self.query.occupations, self.embedded.texts[0])

    @property
    def part_changes(self) -> PartChanges | None:
        """How the ablation changes the general and the occupation-specific preference."""
        query, (images, after), (texts, texts_after) = self.query, self.embedded.images, self.embedded.texts
        task = rank_gallery(query.gallery, query.attribute, texts, one_pool=True)
        prompts = [texts_after[task.first_positions]]
        return measure_part_changes(images, [after], task, prompts=prompts, draws=DRAWS)[0]


def prepare_bias(screen: Screen) -> None:
    """Embed the gallery, and compare ways to make the model fairer if the visitor wants that."""
    screen.people.whole(screen.model)
    fairer.compare_methods(screen)
    screen.people.embed(screen.model, screen.state.ablate)


def render_bias(screen: Screen, complete: bool = True) -> Markup:
    """Return the view.

    Args:
        screen: The screen.
        complete: False for the parts that need no long work.
    """
    app, state, name = screen.app, screen.state, screen.gallery
    listed = dict.fromkeys((*app.galleries.names(state.model), name))
    values: dict[str, Any] = {"galleries": [(n, _gallery_title(app, n)) for n in listed], "name": name}
    try:
        query = BiasQuery.from_state(app, state)
    except InputError as error:
        advice = "You can rank your own faces instead: “Your own …” takes a zip or Parquet file."
        empty = Empty(f"{_gallery_title(app, name)} can't be shown", f"{error} {advice}")
        return render("bias.html", query=None, answer=empty, **values)
    answer = with_model(screen, complete, lambda model: measure(screen, complete))
    figures = []
    if isinstance(answer, Measurement):
        figures = [first_images(app, answer), _groups(answer, state.ablate), metric_figure(answer)]
        figures.append(_preference_figure(screen, answer))
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
        figures=figures,
        **values,
    )


def _gallery_title(app: App, name: str) -> str:
    title = "your own" if name.startswith(OWN) else GALLERY_TITLES.get(name, name)
    return f"{title} ({len(app.galleries.people(name).images)})" if app.galleries.has(name) else title


def measure(screen: Screen, complete: bool = True) -> Measurement | Empty:
    """Return the answer to the screen's query.

    Args:
        screen: The screen.
        complete: False for an `Empty` if something has to be computed first.
    """
    query = BiasQuery.from_state(screen.app, screen.state)
    embedded = embed_query(screen, query, complete)
    if embedded is None:
        return Empty("Measuring", "The results follow.")
    settings = {"metrics": SHOWN_METRICS, "draws": DRAWS, "logit_scale": screen.model.logit_scale}
    results = measure_gallery(query.gallery, query.attribute, embedded.images, embedded.texts, **settings)
    return Measurement(embedded, *results)


def first_images(app: App, answer: Measurement) -> Figure:
    """Return the first images for the occupation shown, before and after.

    Args:
        app: The app, with the images.
        answer: The measurement.
    """
    query, pool = answer.query, len(answer.query.pool())
    labels, n = query.gallery.groups[query.attribute], min(FACES, pool)
    before, after = answer.embedded.first(n)
    strips, rows = [], []
    for title, order, others in (("before", before, after), ("after", after, before)):
        faces = [(i, app.face(query.gallery.name, i), labels[i], i not in others) for i in order]
        strips.append((title, faces))
        rows += [[title, rank, i, labels[i]] for rank, i in enumerate(order, 1)]
    values = {"strips": strips, "n": n, "pool": pool, "query": query}
    settings = {**query.settings, "occupation": query.occupation}
    return Figure("first-images", ["ranking", "rank", "image", "group"], rows, values, settings=settings)


def _groups(answer: Measurement, ablate: HeadSet) -> Figure:
    """Return each group's share of the top for the occupation shown, and its share of the pool."""
    query, before = answer.query, answer.before
    shares = [before.top_shares, answer.after.top_shares, before.pool_shares]
    places = [before.groups.index(group) for group in query.groups]
    rows = [[before.groups[i], *(float(share[query.row, i]) for share in shares)] for i in places]
    settings = {**query.settings, "occupation": query.occupation, "k": query.k}
    values = {"query": query, "ablate": ablate}
    return Figure("groups", ["group", "before", "after", "pool"], rows, values, settings=settings)


def metric_figure(answer: Measurement) -> Figure:
    """Return all metrics per occupation and their means, with chance levels."""
    query, results, rows = answer.query, (answer.before, answer.after), []
    places = [*enumerate(query.occupations), (None, "(mean)")]
    for name, (place, occupation) in product(SHOWN_METRICS, places):
        before, after = (result.figure(name, place) for result in results)
        levels = (before, after, before.chance)
        ends = [float(end) for level in levels for end in (level.value, level.low, level.high)]
        rows.append([occupation, query.attribute, name, query.k, *ends])
    columns = [f"{column}{end}" for column in ("before", "after", "chance") for end in ("", " low", " high")]
    values = {
        "names": SHOWN_METRICS,
        "query": query,
        "metrics": [result.metrics[name] for name in SHOWN_METRICS for result in results],
        "ties": int(max(result.ties.max() for result in results)),
    }
    columns = ["occupation", "attribute", "metric", "k", *columns]
    return Figure("by-occupation", columns, rows, values, settings=query.settings)


def _preference_figure(screen: Screen, answer: Measurement) -> Figure:
    """Return the split into a general and an occupation-specific preference, and its change by ablation."""
    ablate, query, parts = screen.state.ablate, answer.query, []
    if ablate and (changes := answer.part_changes):
        few = len(query.occupations) < 4
        occupations = ", ".join(query.occupations) if few else f"these {len(query.occupations)} occupations"
        parts = [("any text", changes.general), (occupations, changes.specific)]
    preference = answer.embedded.preference(screen)
    values = {"preference": preference, "query": query, "parts": parts, "ablate": ablate}
    rows = preference.rows.to_numpy().tolist()
    return Figure("preference", list(map(str, preference.rows)), rows, values, settings=query.settings)


def bias_program(screen: Screen) -> str:
    """Return a program that prints the metrics of the screen's query."""
    return bias_lines(screen, BiasQuery.from_state(screen.app, screen.state), SHOWN_METRICS)


VIEW = View(
    "bias",
    "Bias",
    "Who ranks first for an occupation, before and after ablation.",
    render_bias,
    bias_program,
    prepare_bias,
)
