"""The figures of the view Bias, from one measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccs.heads import HeadSet
from ccs.measures import bias, ranking
from ccs.measures.bias import BiasResult
from ccs.measures.skew import ceiling
from ccs.measures.stats import Estimate
from ccs.ui.shared import App
from ccs.ui.views import claims
from ccs.ui.views.base import Figure
from ccs.ui.views.bias.bias_query import SHOWN_METRICS, BiasQuery, top

FACES = 12
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
    first, second, query = found.first, found.second, found.query
    rows: list[list[Any]] = []
    for name in SHOWN_METRICS:
        one, two = first.metrics[name], second.metrics[name]
        values = [np.stack([m.values, m.low, m.high], axis=1) for m in (one, two)]
        cells = [(*before, *after, *_cells(one.chance)) for before, after in zip(*values, strict=True)]
        cells.append((*_cells(one.mean), *_cells(two.mean), *_cells(one.chance_mean)))
        for occupation, of in zip((*query.occupations, "(mean)"), cells, strict=True):
            rows.append([occupation, query.attribute, name, query.k, *map(float, of)])
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
            "ceilings": first.ceilings.tolist(),
            "ties": int(max(first.ties.max(), second.ties.max())),
        },
    )


def _cells(one: Estimate) -> tuple[float, float, float]:
    return one.value, one.low, one.high
