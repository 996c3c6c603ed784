"""The picture of a table of bias, with matplotlib."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd

from ccs.errors import require


def draw(rows: pd.DataFrame, metric: str, title: str, off: str, ax: Any = None) -> Any:
    """Draw rows of `BiasTable.of`, the first at the bottom, on matplotlib's Axes; returns them.

    off: the heads that are off, for the legend; with none there is no figure before.
    """
    require("plot", "matplotlib")
    from matplotlib.figure import Figure

    if ax is None:  # not pyplot's, which would keep it, and show it a second time
        ax = Figure(figsize=(6.4, 1.2 + 0.26 * len(rows)), layout="constrained").add_subplot()
    places = np.arange(len(rows))
    low, high = rows["chance_low"], rows["chance_high"]
    ax.barh(places, high - low, left=low, color="0.88", label="random rankings (95%)")
    if "before" in rows:
        ax.plot(rows["before"], places, "o", color="0.45", mfc="none", label="all heads on")
    value = rows["value"]
    reach = [(value - rows["low"]).clip(lower=0), (rows["high"] - value).clip(lower=0)]
    few = off if len(off) <= 30 else f"{len(off.split())} heads"
    ax.errorbar(
        value, places, xerr=reach, fmt="o", color="C0", label=f"{few} off" if off else "measured (95%)"
    )
    ax.set_yticks(places, [str(name) for name in rows.index])
    ax.set(xlabel=metric, title=title)
    ax.legend(loc="lower right", fontsize="small")
    return ax


def as_svg(ax: Any) -> str:
    """The figure of these Axes as SVG, to stand in HTML."""
    held = io.StringIO()
    ax.figure.savefig(held, format="svg")
    return held.getvalue()[held.getvalue().index("<svg") :]
