"""The figures of the view Bias, from one measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccs.heads import HeadSet
from ccs.measures import bias, ranking
from ccs.measures.bias import BiasResult
from ccs.measures.skew import MetricName, ceiling
from ccs.measures.stats import Estimate
from ccs.ui.shared import App
from ccs.ui.views import claims
from ccs.ui.views.base import Figure
from ccs.ui.views.bias.bias_query import SHOWN_METRICS, BiasQuery, top
from ccs.ui.views.charts import Line, strip

FACES = 12
LINES = 30
COLUMNS = (
    *("occupation", "attribute", "metric", "k"),
    *("before", "before low", "before high", "after", "after low", "after high"),
    *("chance", "chance low", "chance high"),
)


@dataclass(frozen=True)
class Measurement:
    """The answer to a query: results and embeddings before and after, and the occupations' embeddings."""

    query: BiasQuery
    first: BiasResult
    second: BiasResult
    before: np.ndarray
    after: np.ndarray
    texts: np.ndarray

    @property
    def change(self) -> Estimate:
        """The change of mean MaxSkew."""
        return bias.compare(self.second, self.first)

    @property
    def most(self) -> float:
        """The largest MaxSkew that there can be over the whole gallery."""
        return float(ceiling(self.first.pool, self.first.k))

    @property
    def same(self) -> Sequence[Sequence[str]]:
        """Occupations that are one text to the model."""
        return ranking.alike(self.query.occupations, self.texts)

    @property
    def ceilings(self) -> list[float]:
        """The largest MaxSkew per occupation."""
        return list(self.first.ceilings.tolist())


def _lines(found: Measurement, name: MetricName) -> list[Line]:
    """A metric per occupation, their mean, and what MaxSkew is set beside."""
    one, two, ceilings = found.first.metrics[name], found.second.metrics[name], found.ceilings
    lines = []
    for i, (occupation, most) in enumerate(zip(found.query.occupations, ceilings, strict=True)):
        before, after = (Estimate(m.values[i], m.low[i], m.high[i]) for m in (one, two))
        lines.append(Line(occupation, before, after, one.chance, most))
    most = sum(ceilings) / len(ceilings)
    lines.append(Line("(mean)", one.mean, two.mean, one.chance_mean, most))
    return lines


def skews(found: Measurement) -> Figure:
    """MaxSkew per occupation and their mean, before and after, over what chance gives."""
    query, n = found.query, len(found.query.occupations)
    lines = _lines(found, "MaxSkew")
    shown, others = lines[:n], lines[n:] if n > 1 else lines[2:]
    if n > LINES:
        shown = sorted(shown, key=lambda line: -line.before.value)[:LINES]
    shown += others
    return Figure(
        "maxskew",
        f"MaxSkew@{query.k} by {query.attribute}",
        "natural log of a ratio of shares",
        COLUMNS,
        _rows(found),
        {
            "query": query,
            "chart": strip(shown, f"MaxSkew at {query.k} by {query.attribute}, before and after"),
            "left_out": n > LINES,
            "most": LINES,
            "at_most": any(line.at_most(e) for line in shown for e in (line.before, line.after)),
        },
    )


def faces(app: App, found: Measurement) -> Figure:
    """The first images for one occupation, before and after."""
    query, occupation = found.query, found.texts[found.query.row]
    labels, name, pools = query.gallery.groups[query.attribute], query.gallery.name, query.pools
    own = np.arange(len(labels)) if pools is None else np.flatnonzero(pools[query.row])
    n = min(FACES, len(own))
    old, new = (own[top(images[own], occupation, n)] for images in (found.before, found.after))
    strips = [
        (title, [(int(i), app.face(name, int(i)), labels[i], i not in others) for i in order])
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
        {"strips": strips, "n": n, "pool": len(own), "drawn": name == "world/faces", "query": query},
    )


def groups(found: Measurement, off: HeadSet) -> Figure:
    """Each group's share of the top for one occupation, beside its share of the pool."""
    first, second, row, query = found.first, found.second, found.query.row, found.query
    pool = first.pools[row] / first.pools[row].sum()
    rows: list[list[Any]] = [
        [group, float(first.top[row, g] / first.k), float(second.top[row, g] / second.k), float(pool[g])]
        for g, group in enumerate(first.groups)
    ]
    return Figure(
        "groups",
        f"Who is in the top {query.k} for “{query.occupations[row]}”",
        "share of the top, %",
        ["group", "before", "after", "pool"],
        rows,
        {"k": query.k, "words": claims.WORDS, "off": bool(off)},
    )


def table(found: Measurement) -> Figure:
    """All metrics per occupation and over all, beside chance; a click on an occupation shows its images."""
    first, second = found.first, found.second
    names = [name for name in SHOWN_METRICS if name in first.metrics]
    return Figure(
        "by-occupation",
        "By occupation",
        "natural log of a ratio of shares",
        COLUMNS,
        _rows(found),
        {
            "names": names,
            "occupations": found.query.occupations,
            "both": [result.metrics[name] for name in names for result in (first, second)],
            "ceilings": found.ceilings,
            "ties": int(max(first.ties.max(), second.ties.max())),
        },
    )


def _rows(found: Measurement) -> list[list[Any]]:
    """All metrics: a row per occupation, and one for their mean."""
    rows: list[list[Any]] = []
    for name in found.first.metrics:
        query = found.query
        for line in _lines(found, name):
            estimates = (line.before, line.after, line.chance)
            cells = [float(cell) for e in estimates for cell in (e.value, e.low, e.high)]
            rows.append([line.name, query.attribute, name, query.k, *cells])
    return rows
