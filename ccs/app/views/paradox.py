"""The view Paradox: the cost of each measured ablation set in accuracy, against its effect on bias."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ccs import paper
from ccs.analysis.ablation_sets import AblationName
from ccs.app.html import program
from ccs.app.routes import post_fields
from ccs.app.services.model_cache import saw_drawings_only
from ccs.app.session import App, Screen
from ccs.app.state import State, parse_ablation
from ccs.app.views import claims
from ccs.app.views.base import Figure, View, run_lines
from ccs.bundled import planted_truth
from ccs.errors import InputError
from ccs.metrics.stats import Ranked, against_random
from ccs.results import queries

KEYS = ["model", "weights", "ablation", "seed", "heads", "n_heads"]
CHANGES = ["difference", "difference_low", "difference_high"]
FEWEST_SETS = 5  # random sets for a comparison
PUBLISHED = (("table5", ("cifar10", "cifar100", "food101"), 100), ("table8", ("gender",), None))
"""Of accuracy and MaxSkew: the paper's table, its datasets, and its unit; None for a sum over occupations."""
Contrast = tuple[float, Ranked]
"""The change with the high-CCS heads ablated, and its rank among random sets of the same size."""


@dataclass(frozen=True)
class Axes:
    """The data of the plot, from all models' tables.

    Attributes:
        quality: The accuracy dataset of the horizontal axis, "" for the mean of `averaged`.
        qualities: The datasets to choose from.
        averaged: The datasets on which the chosen model was measured.
        gallery: The gallery of MaxSkew.
        attribute: The attribute of MaxSkew.
        attributes: The attributes to choose from.
        points: One row per model and ablation set: KEYS, and the changes "accuracy" and "MaxSkew" from all
            heads on, each with "_low" and "_high" of its interval (NaN if there is none).
        contrasts: The comparison with random sets by model, for accuracy and MaxSkew.
    """

    quality: str
    qualities: list[str]
    averaged: list[str]
    gallery: str
    attribute: str
    attributes: list[str]
    points: pd.DataFrame
    contrasts: dict[str, tuple[Contrast | None, Contrast | None]]


def read_axes(app: App, model: str, quality: str = "", attribute: str = "") -> Axes:
    """Read the axes from all models' tables.

    Args:
        app: The app, with the tables.
        model: The chosen model. A mean is over its datasets; models that lack one of them have no mean.
        quality: The accuracy dataset; by default the mean.
        attribute: The attribute of MaxSkew; by default the first.

    Raises:
        InputError: Without tables of accuracy and bias.
    """
    pairs = [(queries.top1(results), queries.max_skew(results)) for results in app.collection.models.values()]
    pairs = [tables for tables in pairs if all(map(len, tables))]
    if not pairs:
        raise InputError(
            "This view needs tables of accuracy and bias of at least one model; clip-ccs compute makes them."
        )
    accuracy, skew = (pd.concat(tables, ignore_index=True) for tables in zip(*pairs, strict=True))
    qualities, attributes = list(accuracy["dataset"].unique()), list(skew["attribute"].unique())
    quality = quality if quality in qualities else ""
    attribute = attribute if attribute in attributes else attributes[0]
    chosen = accuracy[accuracy["model"] == model]
    averaged = list((chosen if len(chosen) else accuracy)["dataset"].unique())
    across = accuracy[accuracy["dataset"] == quality] if quality else mean_of_sets(accuracy, averaged)
    up = skew[skew["attribute"] == attribute]
    gallery = str(up["dataset"].iloc[0])
    up = up[up["dataset"] == gallery]
    points = queries.few_sets(
        across[KEYS + CHANGES].merge(up[KEYS + CHANGES], on=KEYS, suffixes=(" accuracy", " MaxSkew"))
    ).rename(columns=lambda name: re.sub(r"difference(\w*) (\w+)", r"\2\1", name))
    points = points[~points["ablation"].str.contains("@") & (points["n_heads"] > 0)]
    contrasts = {name: (contrast(across, name), contrast(up, name)) for name in up["model"].unique()}
    return Axes(quality, qualities, averaged, gallery, attribute, attributes, points, contrasts)


def mean_of_sets(rows: pd.DataFrame, datasets: Sequence[str]) -> pd.DataFrame:
    """Return the mean change over some datasets of each ablation set that was measured on all of them.

    Args:
        rows: Accuracies by model, ablation set, and dataset.
        datasets: The datasets.
    """
    groups = rows[rows["dataset"].isin(datasets)].groupby(KEYS, dropna=False)["difference"]
    table = groups.agg(difference="mean", count="count").reset_index()
    return table[table["count"] == len(datasets)].assign(difference_low=math.nan, difference_high=math.nan)


def contrast(rows: pd.DataFrame, model: str) -> Contrast | None:
    """Compare a model's high-CCS heads with random sets of the same size.

    Args:
        rows: Changes of one metric by model and ablation set, with the columns model, ablation, seed, and
            difference.
        model: The model's name.

    Returns:
        The comparison. None without high-CCS heads, or with fewer than `FEWEST_SETS` random sets.
    """
    rows = rows[rows["model"] == model].dropna(subset="difference")
    high, random = rows[rows["ablation"] == "high"], queries.random_sets(rows)
    if not len(high) or len(random) < FEWEST_SETS:
        return None
    change = high["difference"].to_numpy()[:1]
    return float(change[0]), against_random(change, random[["difference"]].to_numpy())[0]


def published_changes() -> list[list[float]]:
    """Return the paper's mean changes with high and with low heads ablated: of accuracy, of MaxSkew."""
    changes = []
    for key, datasets, unit in PUBLISHED:
        table = paper.tables()[key]
        cells = pd.DataFrame(table.rows, index=table.columns).astype(float).T
        both = [[cells[f"{n}/{kind}"] - cells[f"{n}/original"] for n in datasets] for kind in ("high", "low")]
        changes.append([float(np.nanmean(kind)) / (unit or len(paper.occupations())) for kind in both])
    return changes


post_fields("paradox/axes", "attribute", "quality")


def _axes(screen: Screen) -> Axes:
    """Return the plot's axes, for the attribute that the other views show."""
    claim = claims.find_claim(screen.records)
    attribute = screen.state.attribute or (claim.attribute if claim else "")
    key = screen.state.model, screen.state.quality, attribute
    return screen.app.cache.get(("axes", *key), lambda: read_axes(screen.app, *key))


def show_paradox(screen: Screen) -> dict[str, Any]:
    """Return the answer, and all measured ablation sets in one plot. InputError as `read_axes` raises it."""
    axes = _axes(screen)
    marks = place_marks(axes, screen.state)
    models = list(marks["model"].unique())
    names = {"gallery": axes.gallery, "attribute": axes.attribute, "accuracy dataset": axes.quality or "mean"}
    rows = marks[axes.points.columns].rename(columns={"heads": "ablated heads"})
    values = {
        "axes": axes,
        "models": models,
        "marks": list(marks.itertuples()),
        "x": Scale.over(100 * marks.filter(like="accuracy"), 6),
        "y": Scale.over(-marks.filter(like="MaxSkew"), 7),
    }
    return {
        **values,
        "drawings": all(map(saw_drawings_only, models)),
        "contrasts": {name: axes.contrasts[name] for name in models if any(axes.contrasts[name])},
        "published": published_changes(),
        "claim": claims.held_out(screen.records, screen.state.ablate, axes.attribute),
        "figure": Figure("paradox", rows, {**screen.settings, **names}, values=values),
    }


def place_marks(axes: Axes, state: State) -> pd.DataFrame:
    """Return the sets that are shown, the one that is ablated last, after the single heads and random sets.

    Those of models with planted heads are shown only for the chosen model. The columns that are added: `kind`
    of set; `title`, the set in words; `ablated`, whether the screen's heads are exactly these; `link`, the
    address at which they are ablated, "" for the mean of random sets; `dx` and `dy`, by how many pixels the
    mark is moved since it would hide another.

    Args:
        axes: The axes, with the sets.
        state: The state, with the model and the ablated heads.
    """
    visible = [name == state.model or not planted_truth(name) for name in axes.points["model"]]
    marks, added = axes.points[visible], []
    for model, ablation, seed, text in marks[["model", "ablation", "seed", "heads"]].itertuples(index=False):
        name, heads, chosen = AblationName.parse(ablation), parse_ablation(text), model == state.model
        link = replace(state, model=model, head=state.head if chosen else None, ablate=heads).query()
        ablated = chosen and bool(heads) and heads == state.ablate
        title = name.words(None if pd.isna(seed) else int(seed))
        depth = 3 if ablated else {"single": 0, "random": 1}.get(name.kind, 2)
        added.append((name.kind, title, ablated, link if heads else "", depth))
    columns = pd.DataFrame(added, marks.index, ["kind", "title", "ablated", "link", "depth"])
    marks = marks.join(columns).sort_values("depth", kind="stable")
    cells = [
        (marks[name] / (np.ptp([0, *marks[name]]) / 60 or 1)).round() for name in ("accuracy", "MaxSkew")
    ]
    place = marks.groupby(cells).cumcount()
    ring = 7 * np.sqrt(place)
    return marks.assign(dx=(ring * np.cos(2.4 * place)).round(), dy=(ring * np.sin(2.4 * place)).round())


class Scale(NamedTuple):
    """An axis from `low` to `high`, with round numbers as ticks."""

    low: float
    high: float
    ticks: list[float]

    @classmethod
    def over(cls, changes: pd.DataFrame, n: int) -> Scale:
        """Return an axis with a margin; 0 is always on it.

        Args:
            changes: Values and ends of intervals, NaN for none.
            n: The largest number of steps between ticks.
        """
        known = np.nan_to_num([0.0, *changes.to_numpy(float).ravel()])
        margin = np.ptp(known) * 0.05 or 0.02
        low, high = known.min() - margin, known.max() + margin
        steps = (factor * 10.0**power for power in range(-6, 6) for factor in (1, 2, 5))
        step = next(step for step in steps if high - low <= n * step)
        return cls(low, high, [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)])

    def at(self, value: float) -> str:
        """Return the place of a value, in percent of the chart."""
        return f"{100 * (value - self.low) / (self.high - self.low):.2f}%"


def paradox_program(screen: Screen) -> str:
    """Return a program that prints the changes of all ablation sets."""
    own_tables = replace(screen, state=replace(screen.state, analysis=""))
    return run_lines(own_tables) + program("paradox", axes=_axes(screen))


VIEW = View("paradox", show_paradox, paradox_program)
