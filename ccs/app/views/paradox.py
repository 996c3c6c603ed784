"""The view Paradox: the cost of each measured ablation set in accuracy, against its effect on bias."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from ccs import paper
from ccs.analysis.ablation_sets import AblationName
from ccs.app.html import program
from ccs.app.routes import post_fields
from ccs.app.session import App, Screen
from ccs.app.state import State, parse_ablation
from ccs.app.views.base import Figure, View, run_lines
from ccs.bundled import planted_truth
from ccs.errors import InputError
from ccs.metrics.stats import Ranked, against_random
from ccs.results import queries

KEYS = ["model", "weights", "ablation", "seed", "heads", "n_heads"]
CHANGES = ["difference", "difference_low", "difference_high"]
AXES = [f"{metric}{end}" for metric in ("accuracy", "MaxSkew") for end in ("", "_low", "_high")]
FEWEST_SETS = 5  # random sets for a comparison
PUBLISHED = (("table5", "/", 100), ("table8", "gender/", 104))
"""The paper's table of accuracy and that of MaxSkew, a part of the columns' names, and what divides a cell:
the first has percentages, the second sums over 104 occupations."""
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
        raise InputError("No model has tables of accuracy and bias; clip-ccs compute makes them.")
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
    points = across[KEYS + CHANGES].merge(up[KEYS + CHANGES], on=KEYS).set_axis(KEYS + AXES, axis=1)
    points = queries.few_sets(points[~points["ablation"].str.contains("@") & (points["n_heads"] > 0)])
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
    change = rows.loc[rows["ablation"] == "high", "difference"].to_numpy()[:1]
    random = queries.random_sets(rows)[["difference"]].to_numpy()
    if not len(change) or len(random) < FEWEST_SETS:
        return None
    return float(change[0]), against_random(change, random)[0]


def published_changes() -> list[list[float]]:
    """Return the paper's mean changes with high and with low heads ablated: of accuracy, of MaxSkew."""
    changes = []
    for key, columns, divisor in PUBLISHED:
        table = paper.tables()[key]
        means = pd.DataFrame(table.rows, table.columns).mean(axis=1).filter(like=columns)
        high, low, before = (means.filter(like=kind).mean() for kind in ("high", "low", "original"))
        changes.append([float(high - before) / divisor, float(low - before) / divisor])
    return changes


post_fields("paradox/axes", "attribute", "quality")


def _axes(screen: Screen) -> Axes:
    """Return the plot's axes, for the attribute that the other views show."""
    key = screen.state.model, screen.state.quality, screen.app.attribute(screen.state)
    return screen.app.cache.get(("axes", *key), lambda: read_axes(screen.app, *key))


def show_paradox(screen: Screen) -> dict[str, Any]:
    """Return the answer, and all measured ablation sets in one plot. InputError as `read_axes` raises it."""
    axes = _axes(screen)
    marks = place_marks(axes, screen.state)
    names = {"gallery": axes.gallery, "attribute": axes.attribute, "accuracy dataset": axes.quality or "mean"}
    rows = marks[axes.points.columns].rename(columns={"heads": "ablated heads"})
    models = sorted(marks["model"].unique(), key=lambda name: (name != screen.state.model, name))
    values = {"axes": axes, "models": models, "marks": list(marks.itertuples())}
    values |= {
        "x": scale(100 * marks.filter(like="accuracy"), 6),
        "y": scale(-marks.filter(like="MaxSkew"), 7),
    }
    claim = screen.records.held_out(screen.state.ablate, axes.attribute, axes.gallery)
    figure = Figure.of(screen, "paradox", rows, names, **values)
    return {**values, "published": published_changes(), "claim": claim, "figure": figure}


def place_marks(axes: Axes, state: State) -> pd.DataFrame:
    """Return the sets that are shown: the last of the table first, so that single heads hide no other set.

    Those of models with planted heads are shown only for the chosen model. The columns that are added: `kind`
    of set; `title`, the set in words; `ablated`, whether the screen's heads are exactly these; `link`, the
    address at which they are ablated, "" for the mean of random sets; `dx` and `dy`, by how many pixels the
    mark is moved since it would hide another.

    Args:
        axes: The axes, with the sets.
        state: The state, with the model and the ablated heads.
    """
    visible = [name == state.model or not planted_truth(name) for name in axes.points["model"]]
    marks, added = axes.points[visible].iloc[::-1], []
    for model, ablation, seed, text in marks[["model", "ablation", "seed", "heads"]].itertuples(index=False):
        name, heads = AblationName.parse(ablation), parse_ablation(text)
        link = replace(state, model=model, ablate=heads).query() if heads else ""
        ablated = bool(heads) and (model, heads) == (state.model, state.ablate)
        added.append((name.kind, name.words(None if pd.isna(seed) else int(seed)), ablated, link))
    marks = marks.join(pd.DataFrame(added, marks.index, ["kind", "title", "ablated", "link"]))
    steps = marks[["accuracy", "MaxSkew"]] / [np.ptp([0, *marks[name]]) / 60 or 1 for name in AXES[::3]]
    place = marks.groupby([steps[name].round() for name in steps]).cumcount()
    ring = 7 * np.sqrt(place)
    marks = marks.assign(dx=(ring * np.cos(2.4 * place)).round(), dy=(ring * np.sin(2.4 * place)).round())
    return marks.sort_values("ablated", kind="stable")


def scale(changes: pd.DataFrame, n: int) -> dict[str, Any]:
    """Return the ends of an axis on which 0 lies, with a margin, and its ticks at round numbers.

    Args:
        changes: Values and ends of intervals, NaN for none.
        n: The largest number of steps between ticks.
    """
    known = np.nan_to_num([0.0, *changes.to_numpy(float).ravel()])
    margin = np.ptp(known) * 0.05 or 0.02
    low, high = known.min() - margin, known.max() + margin
    steps = (factor * 10.0**power for power in range(-6, 6) for factor in (1, 2, 5))
    step = next(step for step in steps if high - low <= n * step)
    ticks = [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return {"low": low, "high": high, "ticks": ticks}


def paradox_program(screen: Screen) -> str:
    """Return a program that prints the changes of all ablation sets."""
    own_tables = replace(screen, state=replace(screen.state, analysis=""))
    return run_lines(own_tables) + program("paradox", axes=_axes(screen))


VIEW = View("paradox", show_paradox, paradox_program)
