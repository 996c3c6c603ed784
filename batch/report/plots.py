"""The report's charts (Plotly)."""

from __future__ import annotations

from itertools import cycle

import pandas as pd
import plotly.express as px
import plotly.graph_objects as go

GRAY = "#7c8591"
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "star", "x", "pentagon")


def dots(points: pd.DataFrame, unit: str) -> go.Figure:
    """Dots with intervals, one line per `row`, one symbol per `series`.

    Columns: row, series, value, low and high (NaN without an interval), and measured: symbols are filled
    where it is true and hollow where the value was published. Where the chart has both, the legend says so.
    """
    measured = points["measured"].astype(bool)
    both = measured.nunique() == 2 and "chance" not in set(points["series"])
    published = (", " + measured.map({True: "measured", False: "published"})) if both else ""
    frame = points.assign(
        name=points["series"] + published,
        above=(points["high"] - points["value"]).astype(float).fillna(0.0),
        below=(points["value"] - points["low"]).astype(float).fillna(0.0),
    )
    series = list(dict.fromkeys(points["series"]))
    # Told apart by color-blind readers, and on white as on black; symbols differ too.
    colors = dict(zip(series, cycle(px.colors.qualitative.Safe)))
    symbols = dict(zip(series, cycle(SYMBOLS)))
    names = list(zip(frame["name"], points["series"], measured, strict=True))
    styles = {
        "color_discrete_map": {name: colors[one] for name, one, _ in names},
        "symbol_map": {name: symbols[one] + ("" if filled else "-open") for name, one, filled in names},
    }
    bars = {"error_x": "above", "error_x_minus": "below"}
    rows = {"category_orders": {"row": list(dict.fromkeys(points["row"]))}}
    labels = {"value": unit, "row": "", "name": ""}
    figure = px.scatter(
        frame, x="value", y="row", labels=labels, color="name", symbol="name", **styles, **bars, **rows
    )
    figure.update_traces(error_x_width=0, marker_line_width=2)
    figure.for_each_trace(lambda trace: trace.update(marker_line_color=trace.marker.color))
    figure.update_yaxes(automargin=True)
    return _styled(figure, 150 + 26 * points["row"].nunique())


def _styled(figure: go.Figure, height: int) -> go.Figure:
    """Transparent, with grays that can be read on a light and on a dark page."""
    figure.update_traces(marker_size=10, selector={"mode": "markers"})
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 60, "r": 20, "t": 50, "b": 50},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13, "color": GRAY},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
    )
    figure.update_xaxes(gridcolor="rgba(124,133,145,.25)", zeroline=False)
    figure.update_yaxes(gridcolor="rgba(124,133,145,.25)", zeroline=False)
    return figure
