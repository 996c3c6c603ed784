"""Direct effects of plans beside their total ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from batch.document import Block, Grid, Heading, Text
from batch.wording import interval
from ccs.stats import Estimate


def effect_blocks(effects: pd.DataFrame) -> Iterator[Block]:
    """A row a plan and set; of random plans the mean over seeds, none at further K."""
    seeded = effects["plan"].str.startswith("random") & effects["seed"].notna()
    frame = effects[~seeded & ~effects["plan"].str.contains("@", regex=False)]
    if not len(frame):
        return
    rows = []
    for _, row in frame.sort_values(
        ["metric", "dataset", "factor"], ascending=False, kind="stable"
    ).iterrows():
        scale, digits = (100.0, 1) if row["metric"] == "top1" else (1.0, 3)
        what = "accuracy (points)" if row["metric"] == "top1" else str(row["metric"])
        where = ", ".join(part for part in (row["dataset"], row["factor"]) if part)
        rows.append(
            [f"{row['plan']} ({row['n_heads']})", what, where]
            + [_cell(row, name, scale, digits) for name in ("direct", "total")]
        )
    yield Heading(3, "Direct and total effects of plans")
    yield Text(
        "What changes if the heads' contributions are subtracted from the embedding (direct), and if their "
        "outputs are zero in the forward pass, so that later layers see it (total). All else in this report "
        "is total. In brackets the 95% interval."
    )
    columns = ["plan (heads off)", "what", "where", "direct effect", "total effect"]
    yield Grid(columns, rows, "", frozenset({"what", "where"}))


def _cell(row: pd.Series, name: str, scale: float, digits: int) -> str:
    value, low, high = (
        np.nan if pd.isna(one) else float(one) for one in (row[name], row[f"{name}_low"], row[f"{name}_high"])
    )
    around = interval(Estimate(value, low, high), scale, digits)
    return f"{value * scale:+.{digits}f}" + (f" ({around})" if around != "–" else "")
