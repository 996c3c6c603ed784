"""The base of all results of `ccs.analysis`, which a notebook, a file, and a program can read."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from importlib.util import find_spec
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ccs.errors import require
from ccs.metrics.stats import Effect, Estimate

if TYPE_CHECKING:
    from ccs.model.handle import ModelHandle
    from ccs.model.model import Model

FEWEST_IMAGES = {
    "head statistics": (100, "images"),
    "accuracy": (30, "images"),
    "bias": (10, "images per group"),
    "heads": (100, "images"),
}
"""Result -> the smallest useful number, and its unit.

Head statistics of fewer images than a head has dimensions (64 in the usual models) have too low a rank for
five texts to be told apart. With 30 images the 95% interval of an accuracy of 50% is 36 points wide; with ten
images per group, one image moves a MaxSkew by 0.1.
"""
CHANGE_COLUMNS = ("difference", "difference_low", "difference_high", "p_value")
VALUE_COLUMNS = ("before", "after", "low", "high", *CHANGE_COLUMNS)
NO_CHANGE = Effect(0.0, 0.0, 0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """The content of `Result.plot`: horizontal bars, or points with intervals, the first row at the bottom.

    Attributes:
        rows: One row per bar. `chance` or its range, and `before` ablation, are drawn, too.
        names: Names of the rows.
        value: Column of the bars.
        label: Label of the bars in the legend.
        points: Whether to draw points with the interval from `low` to `high`.
        colors: Colors of the bars.
        xlabel, title: Label of the axis, and the title. By default the title is the result's `subject`.
    """

    rows: pd.DataFrame
    names: Iterable[Any]
    value: str = "after"
    label: str | None = None
    points: bool = False
    colors: Any = "C0"
    xlabel: str
    title: str = ""


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Result:
    """The answer to one question about a model.

    Attributes:
        about: Choices behind the numbers: model, weights, dataset, ablated heads, ...
        rows: Numbers, one row per case.
    """

    about: Mapping[str, Any]
    rows: pd.DataFrame

    @property
    def subject(self) -> str:
        """The model, with the data and the attribute, if there are any."""
        data = self.about.get("gallery") or self.about.get("dataset")
        words = {"on": data, "by": self.about.get("attribute")}
        return str(self.about["model"]) + "".join(f" {word} {of}" for word, of in words.items() if of)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.subject}: {self._summary()}>"

    def _summary(self) -> str:
        return f"{len(self.rows)} rows, see .rows"

    def plot(self, *, max_rows: int = 20, ax: Any = None, **choice: Any) -> Any:
        """Draw the result.

        Args:
            max_rows: Maximum number of rows to draw.
            ax: Axes of matplotlib to draw on. By default those of a new figure.
            **choice: `metric` of a bias or an audit, `image` of a classification.

        Returns:
            Axes: The axes of matplotlib.

        Raises:
            InputError: If the metric or image is unknown.
            MissingExtra: If matplotlib isn't installed.
        """
        chart = self._chart(max_rows, **choice)
        rows, ax, places = chart.rows, axes(len(chart.rows), ax), np.arange(len(chart.rows))
        if "chance_low" in rows:
            left, width = rows["chance_low"], rows["chance_high"] - rows["chance_low"]
            ax.barh(places, width, left=left, color="0.88", label="random rankings (95%)")
        elif "chance" in rows:
            ax.plot(rows["chance"], places, "|", color="0.5", markersize=14, label="random rankings")
        value = rows[chart.value]
        if chart.points:
            reach = [(value - rows["low"]).clip(lower=0), (rows["high"] - value).clip(lower=0)]
            ax.errorbar(value, places, xerr=reach, fmt="o", color="C0", label=chart.label)
        else:
            ax.barh(places, value, color=chart.colors, height=0.5, label=chart.label)
        if self.about.get("ablate"):
            ax.plot(rows["before"], places, "o", color="0.45", mfc="none", label="all heads on")
        ax.set_yticks(places, [str(name) for name in chart.names])
        ax.set(xlabel=chart.xlabel, title=chart.title or self.subject)
        if ax.get_legend_handles_labels()[0]:
            ax.legend(loc="lower right", fontsize="small")
        return ax

    def _chart(self, *args: Any, **choice: Any) -> Chart:
        """Return what `plot` draws."""
        raise NotImplementedError

    def to_json(self) -> str:
        """Return all fields as JSON: `about`, the list `rows`, and the others; missing numbers are null."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps({name: _plain(value) for name, value in values.items()}, ensure_ascii=False)

    def flat(self) -> pd.DataFrame:
        """Return the rows with each entry of `about` in its own column, for a CSV file."""
        columns = {key: [value] * len(self.rows) for key, value in self.about.items()}
        return self.rows.assign(**{key: values for key, values in columns.items() if key not in self.rows})

    def _repr_html_(self) -> str:
        """Return the plot as SVG, or the rows as a table if matplotlib isn't installed."""
        if find_spec("matplotlib") is None:
            return str(self.rows.to_html(index=False))
        drawing = StringIO()
        self.plot().figure.savefig(drawing, format="svg")
        return drawing.getvalue()[drawing.getvalue().index("<svg") :]


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class TradeoffResult(Result):
    """A result with changes of MaxSkew and of accuracy, by `ablation` or `method`: the first column."""

    def plot(self, *, max_rows: int = 20, ax: Any = None, **choice: Any) -> Any:
        """Plot changes of MaxSkew against changes of accuracy, one point per ablation set or method.

        Args:
            max_rows: Maximum number of points to draw.
            ax: Axes of matplotlib to draw on. By default those of a new figure.
            **choice: Not used.

        Returns:
            Axes: The axes of matplotlib.

        Raises:
            MissingExtra: If matplotlib isn't installed.
        """
        ax = axes(12, ax)
        for label, points in list(self.rows.groupby(self.rows.columns[0], sort=False))[:max_rows]:
            skew, accuracy = (points[points["metric"] == metric] for metric in ("MaxSkew", "accuracy"))
            ax.plot(100 * accuracy["difference"], skew["difference"], "o", label=str(label))
        ax.axhline(0, color="0.8", zorder=0)
        ax.axvline(0, color="0.8", zorder=0)
        ax.set(xlabel="change of accuracy (points)", ylabel="change of MaxSkew", title=self.subject)
        ax.legend(fontsize="small")
        return ax


def describe_model(model: Model | ModelHandle) -> dict[str, Any]:
    """Return the first entries of a result's `about`."""
    return {"model": model.name, "weights": model.weights_hash[:16]}


def value_columns(before: float, after: Estimate, change: Effect) -> dict[str, float]:
    """Return the columns of a number before and after ablation, with its interval and the paired change.

    Args:
        before: Value without ablation.
        after: Value with ablation, and its interval.
        change: Paired change.
    """
    values = (before, after.value, after.low, after.high, *vars(change).values())
    return dict(zip(VALUE_COLUMNS, values, strict=True))


def warn_if_small(result: str, n: int) -> str:
    """Warn if a result comes from too few images.

    Args:
        result: A key of `FEWEST_IMAGES`.
        n: The number of images, or of those of the smallest group.

    Returns:
        The warning, for the result's `about` or a manifest; "" if there are enough.
    """
    smallest, unit = FEWEST_IMAGES[result]
    if n >= smallest:
        return ""
    message = f"Too few {unit} for {result}: {n}. Results mean little below {smallest}."
    warnings.warn(message, UserWarning, stacklevel=3)
    return message


def axes(rows: int, ax: Any = None) -> Any:
    """Return matplotlib's Axes, of a new figure if none are given.

    Args:
        rows: Number of bars, for the height of a new figure.
        ax: Axes to draw on.

    Raises:
        MissingExtra: If matplotlib isn't installed.
    """
    require("plot", "matplotlib")
    from matplotlib.figure import Figure

    if ax is not None:
        return ax
    # A Figure that pyplot doesn't know; a notebook would show pyplot's a second time.
    return Figure(figsize=(6.4, 1.2 + 0.26 * rows), layout="constrained").add_subplot()


def _plain(value: Any) -> Any:
    if isinstance(value, pd.DataFrame):
        indexed = value if isinstance(value.index, pd.RangeIndex) else value.reset_index()
        return json.loads(indexed.to_json(orient="records", double_precision=15))
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | bool | int) else str(value)
