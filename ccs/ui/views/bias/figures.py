"""The figures of the view Bias, from one measurement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccs.heads import HeadSet
from ccs.measures import bias, ranking
from ccs.measures.bias import BiasResult
from ccs.measures.skew import ceiling
from ccs.measures.stats import Estimate
from ccs.ui import claims
from ccs.ui.app import App
from ccs.ui.views.base import Figure
from ccs.ui.views.bias.query import SHOWN_METRICS, BiasQuery, top
from ccs.ui.views.charts import Line, strip
from ccs.ui.views.points import NONE

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

    exact: False where later layers do not react, an estimate. person: MaxSkew of the ranking for "a person",
    which names no occupation, before and after; None where occupations rank images of their own. control: of
    the same rankings by a model that was taught no preference; empty where its tables do not say.
    """

    query: BiasQuery
    first: BiasResult
    second: BiasResult
    before: np.ndarray
    after: np.ndarray
    texts: np.ndarray
    exact: bool
    person: tuple[float, float] | None = None
    control: Sequence[float] = ()

    @property
    def change(self) -> Estimate:
        """The change of mean MaxSkew."""
        return bias.compare(self.second, self.first)

    @property
    def most(self) -> float:
        """The largest MaxSkew that there can be over the whole gallery."""
        return float(ceiling(self.first.pool, self.first.k, self.first.target))

    @property
    def same(self) -> Sequence[Sequence[str]]:
        """Occupations that are one text to the model."""
        return ranking.alike(self.query.occupations, self.texts)

    @property
    def ceilings(self) -> list[float]:
        """The largest MaxSkew per occupation; infinite where a fault is reproduced."""
        return [math.inf] * len(self.query.occupations) if self.query.fault else self.first.ceilings.tolist()


def skews(found: Measurement) -> Figure:
    """MaxSkew per occupation and their mean, before and after, over what chance gives."""
    one, two, query = found.first.max_skew, found.second.max_skew, found.query
    n = len(query.occupations)
    order = list(range(n))
    if n > LINES:
        order = sorted(order, key=lambda i: -float(one.values[i]))[:LINES]
    before, after = ([Estimate(m.values[i], m.low[i], m.high[i]) for i in order] for m in (one, two))
    names = (query.occupations[i] for i in order)
    most, mean_most = found.ceilings, sum(found.ceilings) / n
    lines = [
        Line(name, old, new, one.chance, most[i])
        for i, name, old, new in zip(order, names, before, after, strict=True)
    ]
    if n > 1:
        lines.append(Line("mean", one.mean, two.mean, one.chance_mean, mean_most))
    if found.person is not None:
        old, new = (Estimate(value, NONE, NONE) for value in found.person)
        lines.append(Line("(a person)", old, new, one.chance, max(most)))
    if found.control:
        control = Estimate(sum(found.control) / n, NONE, NONE)
        lines.append(Line("(the control)", control, None, one.chance_mean, mean_most))
    label = f"MaxSkew at {query.k} by {query.attribute}, before and after"
    return Figure(
        "maxskew",
        f"MaxSkew@{query.k} by {query.attribute}",
        "natural log of a ratio of shares",
        COLUMNS,
        _rows(found),
        {
            "query": query,
            "chart": strip(lines, label=label),
            "left_out": n > LINES,
            "most": LINES,
            "control": bool(found.control),
            "at_most": any(line.at_most(e) for line in lines for e in (line.before, line.after)),
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


def groups(app: App, found: Measurement, model: str, off: HeadSet) -> Figure:
    """Each group's share of the top for one occupation, beside its share of the pool."""
    first, second, row, query = found.first, found.second, found.query.row, found.query
    pool = first.pools[row] / first.pools[row].sum()
    rows: list[list[Any]] = [
        [group, float(first.top[row, g] / first.k), float(second.top[row, g] / second.k), float(pool[g])]
        for g, group in enumerate(first.groups)
    ]
    # What the embedded models were taught is known, and the control stands for what comes by itself.
    known = query.gallery.name == claims.FACES and query.templates == query.gallery.templates
    occupation = query.occupations[row]
    taught = claims.taught(model, occupation, query.attribute) if known else {}
    control = (
        claims.control_shares(app.records(claims.CONTROL), occupation, query.attribute, first.k)
        if taught
        else {}
    )
    if taught and control:
        rows = [[*cells, taught[cells[0]], control.get(cells[0])] for cells in rows]
    return Figure(
        "groups",
        f"Who is in the top {query.k} for “{query.occupations[row]}”",
        "share of the top, %",
        ["group", "before", "after", "pool", *(["taught", "control"] if len(rows[0]) > 4 else [])],
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
        if name == "MaxSkew" and found.person is not None:
            cells = [cell for value in found.person for cell in (value, NONE, NONE)]
            rows.append(["(a person)", *fixed, *cells, chance.value, chance.low, chance.high])
        if name == "MaxSkew" and found.control:
            cells = [sum(found.control) / len(found.control), *[NONE] * 5]
            rows.append(["(the control)", *fixed, *cells, level.value, level.low, level.high])
    return rows
