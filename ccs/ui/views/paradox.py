"""The view Paradox: what each measured set of heads costs in accuracy, against what it does to bias."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from markupsafe import Markup, escape

from ccs.analysis.ablation_sets import PlanName
from ccs.benchmark import planted_models
from ccs.errors import InputError
from ccs.metrics.stats import Effect, Estimate
from ccs.results import Results, queries
from ccs.ui.actions import action, parse_heads, set_model
from ccs.ui.html import program, render
from ccs.ui.service.model_cache import saw_drawings_only
from ccs.ui.session import App, Screen
from ccs.ui.state import State, one_of
from ccs.ui.views import claims
from ccs.ui.views.base import Empty, Figure, View, run_lines

COLUMNS = (
    *("model", "weights", "template", "ablation", "seed", "heads off", "n heads"),
    *(f"{axis} change{end}" for axis in ("accuracy", "MaxSkew") for end in ("", " low", " high")),
)


@dataclass(frozen=True)
class Measured:
    """One plan of one model on both axes: differences from nothing off (intervals NaN if none)."""

    model: str
    weights: str
    template: str
    plan: PlanName
    seed: int | None
    heads: str
    n_heads: int
    x: Effect
    y: Effect

    @property
    def words(self) -> str:
        """The model and the plan in words."""
        return f"{self.model}: {self.plan.words(self.seed)}"


@dataclass(frozen=True)
class Axes:
    """What the plot shows of all models' tables: top-1 accuracy on the set `quality` across, and mean MaxSkew
    by the attribute of the gallery up. attributes: those that could be asked for.
    """

    quality: str
    gallery: str
    attribute: str
    attributes: tuple[str, ...]
    points: tuple[Measured, ...]

    @classmethod
    def of(cls, app: App, attribute: str = "") -> Axes:
        """On the set that the high heads matter most for, by this attribute or else the first.

        InputError without tables of both.
        """
        return app.cache.get(("axes", attribute), lambda: cls._read(app, attribute))

    @classmethod
    def _read(cls, app: App, attribute: str) -> Axes:
        models = app.collection.models.values()
        accuracy = _plans(queries.top1(results) for results in models)
        skew = _plans(queries.max_skew(results) for results in models)
        if not len(accuracy) or not len(skew):
            raise InputError("There are no tables pruning and bias yet.")
        high = queries.of_plan(accuracy, "high").groupby("dataset")["difference"].mean()
        quality = str(high.idxmin()) if high.notna().any() else str(accuracy["dataset"].iloc[0])
        attributes = tuple(map(str, skew["attribute"].unique()))
        attribute = attribute if attribute in attributes else attributes[0]
        skew = skew[skew["attribute"] == attribute]
        gallery = str(skew["dataset"].iloc[0])
        prompts = {results.model: _template(results, gallery) for results in models}
        up = {_key(row): row for row in skew[skew["dataset"] == gallery].to_dict("records")}
        found = []
        for row in accuracy[accuracy["dataset"] == quality].to_dict("records"):
            if row["n_heads"] and (key := _key(row)) in up:
                both = queries.difference(row), queries.difference(up[key])
                plan, seed = PlanName.parse(row["ablation"]), key[2]
                about = row["model"], row["weights"], prompts[row["model"]], plan, seed
                found.append(Measured(*about, row["heads"], int(row["n_heads"]), *both))
        return cls(quality, gallery, attribute, attributes, tuple(found))


def _template(found: Results, gallery: str) -> str:
    """The templates of a run's gallery, as every CSV has them."""
    sets = found.manifest.get("sets", ())
    return next((" | ".join(one.get("templates", ())) for one in sets if one["name"] == gallery), "")


def _plans(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """The rows of all models, of few random sets, and of plans at the main K."""
    kept = []
    for rows in filter(len, tables):
        rows = queries.few_sets(rows)
        plans = [PlanName.parse(name) for name in rows["ablation"]]
        kept.append(rows[[plan.k is None for plan in plans]])
    return pd.concat(kept, ignore_index=True) if kept else pd.DataFrame()


def _key(row: Mapping[Hashable, Any]) -> tuple[str, str, int | None, str]:
    """The cells that name a plan of a model; a mean over seeds has no seed."""
    return row["model"], row["ablation"], None if pd.isna(row["seed"]) else int(row["seed"]), row["heads"]


@action("points")
def _points(screen: Screen, value: str) -> None:
    screen.change(attribute=one_of(value, _axes(screen).attributes, "attribute"))


@action("plan")
def _plan(screen: Screen, model: str, heads: str) -> None:
    if model != screen.state.model:
        set_model(screen, model)
        screen.session.tell(f"The page shows {model} now, whose mark that was.")
    screen.set_off(parse_heads(screen, heads))


class Paradox(View):
    """All measured plans in one plot."""

    name = "paradox"
    title = "Paradox"
    purpose = "Sets of heads that were measured: what each costs in accuracy, what it does to bias."

    def models(self, state: State) -> tuple[str, ...]:
        return ()

    def render(self, screen: Screen, complete: bool = True) -> Markup:
        state = screen.state
        try:
            axes = _axes(screen)
        except InputError:
            words = "This view needs the tables pruning and bias of at least one model. Compute them with: "
            return escape(Empty("Nothing measured yet", words + "clip-ccs compute"))
        points = shown(axes, state)
        models = list(dict.fromkeys(one.model for one in points))
        return render(
            "views/paradox.html",
            axes=axes,
            state=state,
            others=[] if state.model in models else models,
            drawn=all(map(saw_drawings_only, models)),
            now=next((one for one in points if _is_off(one, state)), None),
            claim=claims.held_out(screen.records, state.off, axes.attribute),
            figure=plot(points, axes, state),
        )

    def snippet(self, screen: Screen) -> str:
        axes = _axes(screen)
        quality = {"dataset": axes.quality, "subset": "", "metric": "top1"}
        fairness = {"dataset": axes.gallery, "attribute": axes.attribute, "target": "pool", "mode": "correct"}
        fairness |= {"occupation": "", "metric": "MaxSkew mean"}
        both = [("quality", "pruning", quality), ("fairness", "bias", fairness)]
        return run_lines(screen.app, replace(screen.state, apart="")) + program("paradox", quantities=both)


def _axes(screen: Screen) -> Axes:
    """The axes of the plot: by the attribute that the other views show."""
    claim = claims.of(screen.records)
    return Axes.of(screen.app, screen.state.attribute or (claim.attribute if claim else ""))


def shown(axes: Axes, state: State) -> list[Measured]:
    """The plans that are shown; those of models with planted heads only while one is chosen."""
    return [one for one in axes.points if one.model == state.model or planted_models.known(one.model) is None]


def _is_off(one: Measured, state: State) -> bool:
    """True for the set that is off now."""
    return bool(one.heads) and one.model == state.model and one.heads == str(state.off)


def plot(found: Sequence[Measured], axes: Axes, state: State) -> Figure:
    """The sets as marks. Small and many ones come first, so that named sets lie on top, the one that is off
    above all.
    """
    models = list(dict.fromkeys(one.model for one in found))
    kinds = {one.plan.kind for one in found}
    ours = [one for one in found if one.model == models[0] and one.seed is None]

    def above(one: Measured) -> tuple[bool, ...]:
        return _is_off(one, state), one.plan.kind != "single", one.plan.kind != "random"

    rows = [
        [one.model, one.weights, one.template, str(one.plan), one.seed, one.heads, one.n_heads]
        + [value for of in (one.x, one.y) for value in (of.value, of.low, of.high)]
        for one in found
    ]
    return Figure(
        "paradox",
        "What switching off costs, and what it does to bias",
        "points; natural log",
        COLUMNS,
        rows,
        {
            "points": [(one, _is_off(one, state)) for one in sorted(found, key=above)],
            "axes": axes,
            "x": Scale.of([one.x.times(100) for one in found], 6),
            "y": Scale.of([one.y for one in found], 7),
            "shapes": SHAPES,
            "kinds": [kind for kind in SHAPES if kind in kinds],
            "named": [one for one in ours if one.plan.kind in NAMED],
            "models": models,
        },
        made={"gallery": axes.gallery, "attribute": axes.attribute, "accuracy set": axes.quality},
    )


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
        return f"{100 * self._share(value):.2f}%"

    def down(self, value: float) -> str:
        """From above."""
        return f"{100 * (1 - self._share(value)):.2f}%"

    def _share(self, value: float) -> float:
        return (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
