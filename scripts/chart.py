"""Draw README's chart, how well each method finds planted heads: python scripts/chart.py."""

from __future__ import annotations

import sys
from pathlib import Path

import plotly.graph_objects as go

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


def main() -> None:
    """Write docs/methods.svg from the table that ships."""
    from batch.report.sections.localization import PLANTED, scored, ways
    from ccs import results

    found = [way for way in ways(scored(results.load().localization)) if way.method != PLANTED][::-1]
    values = [way.found.value for way in found]
    high, low = ([getattr(way.found, end) for way in found] for end in ("high", "low"))
    bars = go.Bar(
        x=values,
        y=[way.method for way in found],
        orientation="h",
        marker_color=["#d6336c" if way.method.startswith("CCS") else "#4263eb" for way in found],
        error_x={
            "array": [end - value for end, value in zip(high, values, strict=True)],
            "arrayminus": [value - end for end, value in zip(low, values, strict=True)],
            "color": "#666",
        },
    )
    figure = go.Figure(bars)
    figure.update_layout(
        template="plotly_white",
        width=760,
        height=400,
        margin={"l": 10, "r": 20, "t": 10, "b": 50},
        xaxis={"title": "average precision (1: the planted heads come first)", "range": [0, 1.02]},
        yaxis={"automargin": True},
    )
    figure.write_image(ROOT / "docs" / "methods.svg")


if __name__ == "__main__":
    main()
