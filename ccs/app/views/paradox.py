"""The view Paradox: the cost of each measured ablation set in accuracy, against its effect on bias."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup, escape

from ccs import paper
from ccs.analysis.ablation_sets import AblationName
from ccs.app.html import program, render
from ccs.app.routes import Form, Name, post
from ccs.app.services.model_cache import saw_drawings_only
from ccs.app.session import App, Screen
from ccs.app.state import State, parse_ablation, require_choice
from ccs.app.views import claims
from ccs.app.views.base import Empty, Figure, View, run_lines
from ccs.bundled import planted_truth
from ccs.errors import InputError
from ccs.metrics.stats import Effect, Estimate
from ccs.results import queries

COLUMNS = (
    *("model", "weights", "ablation", "seed", "ablated heads", "n heads"),
    *(f"{axis} change{end}" for axis in ("accuracy", "MaxSkew") for end in ("", " low", " high")),
)
NAN = float("nan")
KEYS = ["model", "weights", "ablation", "seed", "heads", "n_heads"]
PRINTED = ("table5", ("cifar10", "cifar100", "food101")), ("table8", ("gender",))  # accuracy, MaxSkew of 104


@dataclass(frozen=True)
class Point:
    """One ablation set of one model on both axes: changes from all heads on, with intervals (NaN if none)."""

    model: str
    weights: str
    plan: AblationName
    seed: int | None
    heads: str
    n_heads: int
    x: Effect
    y: Effect

    @property
    def words(self) -> str:
        """The model and the set in words."""
        return f"{self.model}: {self.plan.words(self.seed)}"


@dataclass(frozen=True)
class Contrast:
    """The high-CCS heads against random sets of the same size: their changes, and how many sets there are."""

    high: float
    random: Estimate
    sets: int

    @property
    def verdict(self) -> str:
        """The conclusion in words."""
        if self.random.low <= self.high <= self.random.high:
            return "no evidence of a difference"
        return "less than 97.5% of them" if self.high < self.random.low else "more than 97.5% of them"


@dataclass(frozen=True)
class Axes:
    """What the plot shows of all models' tables.

    Attributes:
        quality: the accuracy dataset across, "" for the mean of all.
        qualities: the datasets to choose from.
        gallery, attribute: the MaxSkew up.
        attributes: the attributes to choose from.
        points: all ablation sets.
        contrasts: the answer by model, for accuracy and MaxSkew.
    """

    quality: str
    qualities: tuple[str, ...]
    gallery: str
    attribute: str
    attributes: tuple[str, ...]
    points: tuple[Point, ...]
    contrasts: dict[str, tuple[Contrast | None, Contrast | None]]

    @classmethod
    def of(cls, app: App, quality: str = "", attribute: str = "") -> Axes:
        """Read the axes; InputError without tables of both."""
        return app.cache.get(("axes", quality, attribute), lambda: cls._read(app, quality, attribute))

    @classmethod
    def _read(cls, app: App, quality: str, attribute: str) -> Axes:
        models = [results for results in app.collection.models.values() if len(queries.max_skew(results))]
        accuracy = _join(queries.top1(results) for results in models)
        skew = _join(queries.max_skew(results) for results in models)
        if not len(accuracy) or not len(skew):
            raise InputError("There are no tables of accuracy and bias yet.")
        qualities = tuple(map(str, accuracy["dataset"].unique()))
        attributes = tuple(map(str, skew["attribute"].unique()))
        quality = quality if quality in qualities else ""
        attribute = attribute if attribute in attributes else attributes[0]
        skew = skew[skew["attribute"] == attribute]
        gallery = str(skew["dataset"].iloc[0])
        across = accuracy[accuracy["dataset"] == quality] if quality else _mean_of_sets(accuracy)
        up = skew[skew["dataset"] == gallery]
        contrasts = {
            results.model: (_contrast(across, results.model), _contrast(up, results.model))
            for results in models
        }
        both = across.merge(up, on=KEYS, suffixes=("", " up"))
        points = []
        for row in queries.few_sets(both[both["n_heads"] > 0]).to_dict("records"):
            plan = AblationName.parse(row["ablation"])
            if plan.k is None:
                seed = None if row["seed"] < 0 else int(row["seed"])
                about = row["model"], row["weights"], plan, seed, row["heads"], int(row["n_heads"])
                points.append(Point(*about, *(_effect(row, end) for end in ("", " up"))))
        return cls(quality, qualities, gallery, attribute, attributes, tuple(points), contrasts)


def _join(tables: Any) -> pd.DataFrame:
    kept = [rows for rows in tables if len(rows)]
    rows = pd.concat(kept, ignore_index=True) if kept else pd.DataFrame()
    return rows.assign(seed=rows["seed"].fillna(-1)) if len(rows) else rows


def _mean_of_sets(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the mean change over all datasets of each ablation set that was measured on all of a model's."""
    groups = rows.groupby(KEYS, dropna=False)["difference"]
    table = groups.agg(["mean", "count"]).reset_index()
    whole = table["count"] == table.groupby("model")["count"].transform("max")
    table = table[whole].rename(columns={"mean": "difference"})
    return table.assign(difference_low=NAN, difference_high=NAN, p_value=NAN)


def _contrast(rows: pd.DataFrame, model: str) -> Contrast | None:
    rows = rows[rows["model"] == model]
    high = rows[rows["ablation"] == "high"]["difference"]
    drawn = rows[(rows["ablation"] == "random") & (rows["seed"] >= 0)]["difference"].dropna()
    if not len(high) or len(drawn) < 5:
        return None
    low, top = np.quantile(drawn, (0.025, 0.975))
    return Contrast(float(high.iloc[0]), Estimate(float(drawn.mean()), float(low), float(top)), len(drawn))


def _effect(row: dict[Any, Any], end: str) -> Effect:
    names = ("difference", "difference_low", "difference_high", "p_value")
    return Effect(*(float(row[name + end]) for name in names))


def printed() -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the paper's mean changes with the high and the low heads pruned: of accuracy and of MaxSkew."""
    changes = []
    for key, datasets in PRINTED:
        table = paper.tables()[key]
        per = 100 if key == "table5" else len(paper.occupations())
        for kind in ("high", "low"):
            cells = [
                (table.value(row, f"{name}/{kind}"), table.value(row, f"{name}/original"))
                for row in table.rows
                for name in datasets
            ]
            known = [(new - old) / per for new, old in cells if new is not None and old is not None]
            changes.append(sum(known) / len(known))
    return (changes[0], changes[1]), (changes[2], changes[3])


class AxisForm(Form):
    attribute: Name = ""
    quality: Name = ""


@post("paradox/axes")
def choose_axes(screen: Screen, form: AxisForm) -> None:
    """Plot another attribute's MaxSkew, or the accuracy on another dataset."""
    axes = _axes(screen)
    attribute = require_choice(form.attribute or axes.attribute, axes.attributes, "attribute")
    screen.change(attribute=attribute, quality=require_choice(form.quality, ("", *axes.qualities), "dataset"))


class Paradox(View):
    """The answer, and all measured ablation sets in one plot."""

    name = "paradox"
    title = "Paradox"
    purpose = "Do high-CCS heads carry accuracy and bias? Every measured set of heads."

    def models(self, state: State) -> tuple[str, ...]:
        return ()

    def render(self, screen: Screen, complete: bool = True) -> Markup:
        state = screen.state
        try:
            axes = _axes(screen)
        except InputError:
            words = "This view needs tables of accuracy and bias of at least one model. Compute them with: "
            return escape(Empty("Nothing measured yet", words + "clip-ccs compute"))
        points = shown_points(axes, state)
        models = list(dict.fromkeys(point.model for point in points))
        size = next((p.n_heads for p in points if p.model == state.model and p.plan.kind == "high"), 0)
        return render(
            "paradox.html",
            axes=axes,
            state=state,
            others=[] if state.model in models else models,
            drawings=all(map(saw_drawings_only, models)),
            contrasts=[(name, axes.contrasts[name]) for name in models if any(axes.contrasts.get(name, ()))],
            size=size,
            printed=printed(),
            now=next((point for point in points if _is_ablated(point, state)), None),
            claim=claims.held_out(screen.records, state.ablate, axes.attribute),
            figure=plot(points, axes, state),
        )

    def program(self, screen: Screen) -> str:
        axes = _axes(screen)
        quality = {"subset": "", "metric": "top1", **({"dataset": axes.quality} if axes.quality else {})}
        fairness = {"dataset": axes.gallery, "attribute": axes.attribute, "target": "pool", "mode": "correct"}
        fairness |= {"occupation": "", "metric": "MaxSkew mean"}
        both = [("quality", "pruning", quality), ("fairness", "bias", fairness)]
        return run_lines(screen.app, replace(screen.state, analysis="")) + program("paradox", quantities=both)


def _axes(screen: Screen) -> Axes:
    """Return the axes of the plot: by the attribute that the other views show."""
    claim = claims.of(screen.records)
    attribute = screen.state.attribute or (claim.attribute if claim else "")
    return Axes.of(screen.app, screen.state.quality, attribute)


def shown_points(axes: Axes, state: State) -> list[Point]:
    """Return the sets that are shown; those of models with planted heads only for the chosen model."""
    return [p for p in axes.points if p.model == state.model or planted_truth(p.model) is None]


def _is_ablated(point: Point, state: State) -> bool:
    return bool(point.heads) and point.model == state.model and point.heads == str(state.ablate)


def plot(points: Sequence[Point], axes: Axes, state: State) -> Figure:
    """Return the sets as marks: single heads first, so that named sets lie above, the ablated one on top."""
    models = list(dict.fromkeys(point.model for point in points))
    kinds = {point.plan.kind for point in points}
    named = [p for p in points if p.model == models[0] and p.seed is None and p.plan.kind in NAMED]

    def above(point: Point) -> tuple[bool, ...]:
        return _is_ablated(point, state), point.plan.kind != "single", point.plan.kind != "random"

    rows = [
        [point.model, point.weights, str(point.plan), point.seed, point.heads, point.n_heads]
        + [value for effect in (point.x, point.y) for value in (effect.value, effect.low, effect.high)]
        for point in points
    ]
    x, y = Scale.of([p.x.times(100) for p in points], 6), Scale.of([p.y for p in points], 7)
    return Figure(
        "paradox",
        "Cost in accuracy, and effect on bias",
        "points; natural log",
        COLUMNS,
        rows,
        {
            "points": [
                (point, _is_ablated(point, state), _link(state, point), *at)
                for point, at in spread_marks(sorted(points, key=above), x, y)
            ],
            "axes": axes,
            "x": x,
            "y": y,
            "shapes": SHAPES,
            "kinds": [kind for kind in SHAPES if kind in kinds],
            "named": named,
            "models": models,
        },
        made={
            "gallery": axes.gallery,
            "attribute": axes.attribute,
            "accuracy dataset": axes.quality or "mean",
        },
    )


def _link(state: State, point: Point) -> str:
    """Return the address at which a set is ablated."""
    if not point.heads:
        return ""
    head = state.head if point.model == state.model else None
    return replace(state, model=point.model, head=head, ablate=parse_ablation(point.heads)).query()


# -- the chart: positions in percent, text at its own size on every screen; scatter.html draws it ------------

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
NAMED = ("high", "moderate", "low", "random")  # sets of the first model whose names stand beside their marks
LEAST = 0.02  # the shortest margin of an axis


def spread_marks(points: Sequence[Point], x: Scale, y: Scale) -> list[tuple[Point, tuple[int, int]]]:
    """Return the points with the pixels by which each mark is moved so that none hides another."""
    taken: dict[tuple[int, int], int] = {}
    moved = []
    for point in points:
        cell = round(x.share(100 * point.x.value) * 80), round(y.share(point.y.value) * 40)
        n = taken[cell] = taken.get(cell, -1) + 1
        angle, ring = n * 2.4, 0 if n == 0 else 7 * math.sqrt(n)
        moved.append((point, (round(ring * math.cos(angle)), round(ring * math.sin(angle)))))
    return moved


@dataclass(frozen=True)
class Scale:
    """Values from `low` to `high` as percent of the chart's width, or of its height from above."""

    low: float
    high: float
    ticks: tuple[float, ...]

    @classmethod
    def of(cls, effects: Sequence[Estimate], n: int) -> Scale:
        """For 0, the effects and the ends of their intervals, and a margin; about `n` round numbers on it."""
        known = [0.0, *(v for e in effects for v in (e.low, e.value, e.high) if v == v)]
        pad = (max(known) - min(known)) * 0.05 or LEAST
        low, high = min(known) - pad, max(known) + pad
        power = 10 ** math.floor(math.log10((high - low) / n))
        step = next(power * factor for factor in (1, 2, 5, 10) if (high - low) / (power * factor) <= n)
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        return cls(low, high, tuple(step * i for i in range(first, last + 1)))

    def across(self, value: float) -> str:
        """From the left."""
        return f"{100 * self.share(value):.2f}%"

    def down(self, value: float) -> str:
        """From above."""
        return f"{100 * (1 - self.share(value)):.2f}%"

    def share(self, value: float) -> float:
        """Return the place on the axis, from 0 to 1."""
        return (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
