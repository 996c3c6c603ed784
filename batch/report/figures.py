"""The report's charts (Plotly), and their static files where a Chrome can be found to print them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from batch.report.page import Chart

# Told apart by color-blind readers and on white as on black; symbols differ too.
SERIES: Mapping[str, tuple[str, str]] = {
    "original": ("#7c8591", "circle"),
    "none": ("#7c8591", "circle"),
    "high": ("#d1495b", "diamond"),
    "low": ("#2e86c1", "square"),
    "random": ("#c28a1a", "triangle-up"),
    "moderate": ("#8e6bbf", "cross"),
    "locations": ("#2e86c1", "square"),
    "animals": ("#c28a1a", "triangle-up"),
    "objects": ("#d1495b", "diamond"),
    "chance": ("#7c8591", "line-ns"),
    "organism": ("#d1495b", "diamond"),
    "organism-control": ("#7c8591", "circle-open"),
    "searched": ("#3a9679", "star"),
    "step of the search": ("#3a9679", "star-open"),
    "single": ("#7c8591", "circle-open"),
    "concept": ("#8e6bbf", "cross"),
    "equal-high": ("#d1495b", "diamond-open"),
    "equal-low": ("#2e86c1", "square-open"),
}
_OTHER = ("#3a9679", "star")


@dataclass(frozen=True)
class Point:
    """One value of a series in a row of a dot chart; `filled` where it was measured, hollow where
    published.
    """

    row: str
    series: str
    value: float
    low: float | None = None
    high: float | None = None
    filled: bool = False


def dots(points: Sequence[Point], unit: str) -> go.Figure:
    """Rows of dots: one row a thing, one symbol a series, bars for intervals.

    Names in the legend say "published" and "measured" where the chart has both.
    """
    both = len({point.filled for point in points}) == 2 and not any(p.series == "chance" for p in points)
    figure = go.Figure()
    rows = list(dict.fromkeys(point.row for point in points))
    seen: dict[tuple[str, bool], list[Point]] = {}
    for point in points:
        seen.setdefault((point.series, point.filled), []).append(point)
    for (series, filled), some in seen.items():
        color, symbol = SERIES.get(series, _OTHER)
        bars = [
            (point.high - point.value, point.value - point.low)
            if point.low is not None and point.high is not None
            else (0.0, 0.0)
            for point in some
        ]
        figure.add_trace(
            go.Scatter(
                x=[point.value for point in some],
                y=[point.row for point in some],
                mode="markers",
                name=f"{series}, {'measured' if filled else 'published'}" if both else series,
                marker={"color": color, "symbol": symbol if filled else f"{symbol}-open", "size": 10}
                | {"line": {"width": 2, "color": color}},
                error_x={"type": "data", "symmetric": False, "color": color, "thickness": 1.5, "width": 0}
                | {"array": [bar[0] for bar in bars], "arrayminus": [bar[1] for bar in bars]},
            )
        )
    figure.update_yaxes(categoryorder="array", categoryarray=rows[::-1], automargin=True)
    figure.update_xaxes(title=unit)
    return styled(figure, 150 + 26 * len(rows))


def plane(
    points: Sequence[tuple[str, float, float, str]],
    x: str,
    y: str,
    *,
    front: Sequence[tuple[float, float]] = (),
    level: tuple[str, float] | None = None,
) -> go.Figure:
    """A plane of named points (name, x, y, series), a line through `front`, a dotted one at `level`."""
    figure = go.Figure()
    if front:
        line = {"color": _OTHER[0], "width": 1.5}
        across, up = zip(*front, strict=True)
        figure.add_trace(go.Scatter(x=across, y=up, mode="lines", name="front", line=line, hoverinfo="skip"))
    for series in dict.fromkeys(point[3] for point in points):
        some = [point for point in points if point[3] == series]
        color, symbol = SERIES.get(series, _OTHER)
        figure.add_trace(
            go.Scatter(
                x=[point[1] for point in some],
                y=[point[2] for point in some],
                text=[point[0] for point in some],
                mode="markers",
                name=series,
                hovertemplate="%{text}<br>%{x:.3g}, %{y:.3g}<extra></extra>",
                marker={"color": color, "symbol": symbol, "size": 10},
            )
        )
    if level is not None:
        name, value = level
        figure.add_hline(
            y=value, line={"color": "#7c8591", "width": 1.5, "dash": "dot"}, annotation_text=name
        )
    figure.update_xaxes(title=x)
    figure.update_yaxes(title=y)
    return styled(figure, 440)


def styled(figure: go.Figure, height: int) -> go.Figure:
    """Transparent, with grays that read on a light and on a dark page."""
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 60, "r": 20, "t": 50, "b": 50},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13, "color": "#7c8591"},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
    )
    figure.update_xaxes(gridcolor="rgba(124,133,145,.25)", zeroline=False)
    figure.update_yaxes(gridcolor="rgba(124,133,145,.25)", zeroline=False)
    return figure


def browser() -> str | None:
    """A Chrome that can print charts: what BROWSER_PATH names, or one on the path."""
    named = os.environ.get("BROWSER_PATH")
    if named:
        return named if Path(named).exists() else None
    return next(
        filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome", "chromium-browser"))), None
    )


def write_static(charts: Sequence[Chart], folder: Path) -> frozenset[str]:
    """Write KEY.svg for each chart with one browser; the keys written: none without a browser or kaleido."""
    path = browser()
    if path is None or not charts:
        return frozenset()
    try:
        import kaleido  # type: ignore[import-untyped]
    except ImportError:
        return frozenset()
    specs: list[dict[str, Any]] = []
    for chart in charts:
        size = {"width": 960, "height": chart.figure.layout.height or 420}
        target = folder / f"{chart.key}.svg"
        specs.append({"fig": chart.figure, "path": str(target), "opts": {"format": "svg", **size}})
    kaleido.write_fig_from_object_sync(specs, kopts={"path": path})
    return frozenset(chart.key for chart in charts if (folder / f"{chart.key}.svg").exists())
