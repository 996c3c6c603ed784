"""The view Paradox: the cost of each measured ablation set in accuracy, against its effect on bias."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
from markupsafe import Markup, escape

from ccs import paper
from ccs.analysis.ablation_sets import AblationName
from ccs.app.html import program, render
from ccs.app.routes import Name, post
from ccs.app.services.model_cache import saw_drawings_only
from ccs.app.session import App, Screen
from ccs.app.state import State, parse_ablation, require_choice
from ccs.app.views import claims
from ccs.app.views.base import Empty, Figure, View, run_lines
from ccs.bundled import planted_truth
from ccs.errors import InputError
from ccs.metrics.stats import LEVEL, Ranked, against_random
from ccs.results import queries

KEYS = ["model", "weights", "ablation", "seed", "heads", "n_heads"]
CHANGES = {"difference": "", "difference_low": "_low", "difference_high": "_high"}
FEWEST_SETS = 5  # random sets for a comparison
SHAPES = {
    "high": "M0-6A6 6 0 1 1 0 6A6 6 0 1 1 0-6Z",
    "low": "M-5.5-5.5H5.5V5.5H-5.5Z",
    "moderate": "M0-6.5L6 5H-6Z",
    "random": "M-5-3L-3-5L0-2L3-5L5-3L2 0L5 3L3 5L0 2L-3 5L-5 3L-2 0Z",
    "concept": "M-2-6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z",
    "equal-high": "M0-7L6.5 0L0 7L-6.5 0Z",
    "equal-low": "M0 6.5L6-5H-6Z",
    "single": "M0-2.6A2.6 2.6 0 1 1 0 2.6A2.6 2.6 0 1 1 0-2.6Z",
}


class Contrast(NamedTuple):
    """The change with the high-CCS heads ablated, and its rank among random sets of the same size."""

    high: float
    ranked: Ranked

    @property
    def verdict(self) -> str:
        """The conclusion in words."""
        if not self.ranked.p_value <= 1 - LEVEL:
            return "no evidence of a difference"
        return "significantly less" if self.ranked.value < 0 else "significantly more"


@dataclass(frozen=True)
class Axes:
    """The data of the plot, from all models' tables.

    Attributes:
        quality: The accuracy dataset of the horizontal axis, "" for the mean of all.
        qualities: The datasets to choose from.
        gallery: The gallery of MaxSkew.
        attribute: The attribute of MaxSkew.
        attributes: The attributes to choose from.
        points: One row per model and ablation set: KEYS, and the changes "accuracy" and "MaxSkew" from all
            heads on, each with "_low" and "_high" of its interval (NaN if there is none).
        contrasts: The comparison with random sets by model, for accuracy and MaxSkew.
    """

    quality: str
    qualities: tuple[str, ...]
    gallery: str
    attribute: str
    attributes: tuple[str, ...]
    points: pd.DataFrame
    contrasts: dict[str, tuple[Contrast | None, Contrast | None]]


def read_axes(app: App, quality: str = "", attribute: str = "") -> Axes:
    """Read the axes from all models' tables.

    Args:
        app: The app, with the tables.
        quality: The accuracy dataset; by default the mean of all.
        attribute: The attribute of MaxSkew; by default the first.

    Raises:
        InputError: Without tables of accuracy and bias.
    """
    return app.cache.get(("axes", quality, attribute), lambda: _read_axes(app, quality, attribute))


def _read_axes(app: App, quality: str, attribute: str) -> Axes:
    models = [results for results in app.collection.models.values() if len(queries.max_skew(results))]
    accuracy, skew = _join(map(queries.top1, models)), _join(map(queries.max_skew, models))
    if not len(accuracy) or not len(skew):
        raise InputError("There are no tables of accuracy and bias yet.")
    qualities, attributes = (
        tuple(map(str, column.unique())) for column in (accuracy["dataset"], skew["attribute"])
    )
    quality = quality if quality in qualities else ""
    attribute = attribute if attribute in attributes else attributes[0]
    across = accuracy[accuracy["dataset"] == quality] if quality else _mean_of_sets(accuracy)
    up = skew[skew["attribute"] == attribute]
    gallery = str(up["dataset"].iloc[0])
    up = up[up["dataset"] == gallery]
    contrasts = {table.model: (contrast(across, table.model), contrast(up, table.model)) for table in models}
    sides = [
        side[[*KEYS, *CHANGES]].rename(columns={name: axis + end for name, end in CHANGES.items()})
        for axis, side in (("accuracy", across), ("MaxSkew", up))
    ]
    points = queries.few_sets(sides[0].merge(sides[1], on=KEYS))
    main = points["ablation"].map(lambda name: AblationName.parse(name).k is None)
    points = points[main & (points["n_heads"] > 0)]
    return Axes(quality, qualities, gallery, attribute, attributes, points, contrasts)


def _join(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    rows = pd.concat([table for table in tables if len(table)] or [pd.DataFrame()], ignore_index=True)
    return rows.assign(seed=rows["seed"].fillna(-1)) if len(rows) else rows


def _mean_of_sets(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the mean change over all datasets of each ablation set that was measured on all of a model's."""
    groups = rows.groupby(KEYS, dropna=False)["difference"]
    table = groups.agg(["mean", "count"]).reset_index()
    whole = table["count"] == table.groupby("model")["count"].transform("max")
    table = table[whole].rename(columns={"mean": "difference"})
    return table.assign(difference_low=math.nan, difference_high=math.nan)


def contrast(rows: pd.DataFrame, model: str) -> Contrast | None:
    """Compare a model's high-CCS heads with random sets of the same size.

    Args:
        rows: Changes of one metric by model and ablation set, with the columns model, ablation, seed, and
            difference.
        model: The model's name.

    Returns:
        The comparison. None without high-CCS heads, or with fewer than `FEWEST_SETS` random sets.
    """
    rows = rows[rows["model"] == model]
    high = rows[rows["ablation"] == "high"]["difference"]
    random = rows[(rows["ablation"] == "random") & (rows["seed"] >= 0)]["difference"].dropna()
    if not len(high) or len(random) < FEWEST_SETS:
        return None
    return Contrast(float(high.iloc[0]), against_random(high[:1], random.to_numpy()[:, None])[0])


def published_changes() -> list[tuple[float, float]]:
    """Return the paper's mean changes with high and with low heads ablated: of accuracy, of MaxSkew."""
    changes = []
    for key, datasets, per in (
        ("table5", ("cifar10", "cifar100", "food101"), 100),
        ("table8", ("gender",), len(paper.occupations())),
    ):
        table = paper.tables()[key]
        cells = pd.DataFrame(table.rows, index=table.columns).T.astype(float)
        high, low = (
            np.nanmean([cells[f"{name}/{kind}"] - cells[f"{name}/original"] for name in datasets]) / per
            for kind in ("high", "low")
        )
        changes.append((float(high), float(low)))
    return changes


@post("paradox/axes")
def choose_axes(screen: Screen, attribute: Name = "", quality: Name = "") -> None:
    """Plot another attribute's MaxSkew, or the accuracy on another dataset.

    Args:
        screen: The screen that the form changes.
        attribute: The attribute; "" for the one that is plotted now.
        quality: The accuracy dataset; "" for the mean of all.

    Raises:
        InputError: If the tables don't have the attribute or the dataset, or there are none.
    """
    axes = _axes(screen)
    attribute = require_choice(attribute or axes.attribute, axes.attributes, "attribute")
    screen.change(attribute=attribute, quality=require_choice(quality, ("", *axes.qualities), "dataset"))


def _axes(screen: Screen) -> Axes:
    """Return the plot's axes, for the attribute that the other views show."""
    claim = claims.find_claim(screen.records)
    attribute = screen.state.attribute or (claim.attribute if claim else "")
    return read_axes(screen.app, screen.state.quality, attribute)


def render_paradox(screen: Screen, complete: bool = True) -> Markup:
    """Return the view as HTML: the answer, and all measured ablation sets in one plot.

    Args:
        screen: The screen.
        complete: Has no effect, since this view needs no long work.
    """
    state = screen.state
    try:
        axes = _axes(screen)
    except InputError:
        advice = "This view needs tables of accuracy and bias of at least one model. Compute them with: "
        return escape(Empty("Nothing measured yet", advice + "clip-ccs compute"))
    marks = shown_marks(axes, state)
    models = list(dict.fromkeys(mark.point.model for mark in marks))
    return render(
        "paradox.html",
        axes=axes,
        state=state,
        models=models,
        drawings=all(map(saw_drawings_only, models)),
        contrasts={name: axes.contrasts[name] for name in models if any(axes.contrasts.get(name, ()))},
        published=published_changes(),
        marks=marks,
        claim=claims.held_out(screen.records, state.ablate, axes.attribute),
        figure=plot(marks, axes),
    )


class Mark(NamedTuple):
    """One ablation set of one model in the plot.

    Attributes:
        point: Its row of `Axes.points`.
        kind: The kind of set.
        title: The set in words.
        ablated: Whether the screen's heads are exactly these.
        link: The address at which they are ablated, "" for the mean of random sets.
    """

    point: Any
    kind: str
    title: str
    ablated: bool
    link: str


def shown_marks(axes: Axes, state: State) -> list[Mark]:
    """Return the sets that are shown, the one that is ablated last, after the single heads and random sets.

    Those of models with planted heads are shown only for the chosen model.

    Args:
        axes: The axes, with the sets.
        state: The state, with the model and the ablated heads.
    """
    marks, points = [], cast("Iterable[Any]", axes.points.itertuples(index=False))
    for point in points:
        chosen = point.model == state.model
        if chosen or not planted_truth(point.model):
            name, heads = AblationName.parse(point.ablation), parse_ablation(point.heads)
            head = state.head if chosen else None
            link = replace(state, model=point.model, head=head, ablate=heads).query() if heads else ""
            title = name.words(None if point.seed < 0 else int(point.seed))
            marks.append(
                Mark(point, name.kind, title, chosen and bool(heads) and heads == state.ablate, link)
            )
    return sorted(marks, key=lambda m: (m.ablated, m.kind != "single", m.kind != "random"))


def plot(marks: list[Mark], axes: Axes) -> Figure:
    """Return the plot; a mark that would hide another is moved by some pixels.

    Args:
        marks: The sets.
        axes: The axes' names.
    """
    x = Scale.over([100 * change for mark in marks for change in mark.point[6:9]], 6)
    y = Scale.over([change for mark in marks for change in mark.point[9:12]], 7)
    taken, placed = Counter[tuple[int, int]](), []
    for mark in marks:
        cell = round(x.share(100 * mark.point.accuracy) * 80), round(y.share(mark.point.MaxSkew) * 40)
        angle, ring = taken[cell] * 2.4, 7 * math.sqrt(taken[cell])
        taken[cell] += 1
        placed.append((mark, round(ring * math.cos(angle)), round(ring * math.sin(angle))))
    values = {
        "marks": placed,
        "axes": axes,
        "x": x,
        "y": y,
        "shapes": SHAPES,
        "kinds": [kind for kind in SHAPES if any(mark.kind == kind for mark in marks)],
        "models": list(dict.fromkeys(mark.point.model for mark in marks)),
    }
    names = {"gallery": axes.gallery, "attribute": axes.attribute, "accuracy dataset": axes.quality or "mean"}
    columns = ["model", "weights", "ablation", "seed", "ablated heads", "n heads"]
    columns += [f"{axis} change{end}" for axis in ("accuracy", "MaxSkew") for end in ("", " low", " high")]
    rows = [[*p[:3], None if p.seed < 0 else int(p.seed), *p[4:]] for p, *_ in marks]
    return Figure("paradox", columns, rows, values, settings=names)


@dataclass(frozen=True)
class Scale:
    """Values from `low` to `high` as percent of the chart's width, or of its height from above."""

    low: float
    high: float
    ticks: tuple[float, ...]

    @classmethod
    def over(cls, changes: Iterable[float], n: int) -> Scale:
        """Return a scale with a margin, and round numbers as ticks.

        Args:
            changes: Values and ends of intervals, NaN for none; 0 is always on the scale.
            n: The approximate number of ticks.
        """
        known = [0.0, *(value for value in changes if value == value)]
        margin = (max(known) - min(known)) * 0.05 or 0.02
        low, high = min(known) - margin, max(known) + margin
        power = 10 ** math.floor(math.log10((high - low) / n))
        step = next(power * factor for factor in (1, 2, 5, 10) if (high - low) / (power * factor) <= n)
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        return cls(low, high, tuple(step * i for i in range(first, last + 1)))

    def share(self, value: float) -> float:
        """Return the place on the axis, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)

    def across(self, value: float) -> str:
        """Return the place from the left."""
        return f"{100 * self.share(value):.2f}%"

    def down(self, value: float) -> str:
        """Return the place from above."""
        return f"{100 * (1 - self.share(value)):.2f}%"


def paradox_program(screen: Screen) -> str:
    """Return a program that prints the changes of all ablation sets."""
    axes = _axes(screen)
    quality = {"subset": "", "metric": "top1", **({"dataset": axes.quality} if axes.quality else {})}
    fairness = {"dataset": axes.gallery, "attribute": axes.attribute, "target": "pool", "mode": "correct"}
    fairness |= {"occupation": "", "metric": "MaxSkew mean"}
    tables = [("quality", "pruning", quality), ("fairness", "bias", fairness)]
    main = Screen(screen.app, screen.session, replace(screen.state, analysis=""))
    return run_lines(main) + program("paradox", quantities=tables)


VIEW = View(
    "paradox",
    "Paradox",
    "Do high-CCS heads carry accuracy and bias? Every measured set of heads.",
    render_paradox,
    paradox_program,
    needs_model=False,
)
