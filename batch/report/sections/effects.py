"""Direct effects of plans beside their total ones."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from batch.report.page import Block, Grid, Heading, Text
from batch.report.wording import signed


def effect_blocks(effects: pd.DataFrame) -> Iterator[Block]:
    """Plans down, sets across, both effects in a cell; random plans by their mean, none at further K."""
    seeded = effects["plan"].str.startswith("random") & effects["seed"].notna()
    frame = effects[~seeded & ~effects["plan"].str.contains("@", regex=False)]
    if not len(frame):
        return
    keys = sorted(
        set(frame[["metric", "dataset", "factor"]].itertuples(index=False, name=None)), reverse=True
    )
    rows = []
    for (plan, size), some in frame.groupby(["plan", "n_heads"], sort=False):
        cells = {(row["metric"], row["dataset"], row["factor"]): row for _, row in some.iterrows()}
        rows.append([f"{plan} ({size})", *(_cell(cells.get(key)) for key in keys)])
    yield Heading(3, "Direct and total effects of plans")
    yield Text(
        "What changes if the heads' contributions are subtracted from the embedding (direct) / if their "
        "outputs are zero in the forward pass, so that later layers see it (total): points of accuracy, "
        "or mean MaxSkew. All else in this report is total. Intervals and p-values are in the table "
        "`effects`; how far the two agree over single heads is below."
    )
    names = [" ".join(part for part in (dataset, factor) if part) for _, dataset, factor in keys]
    yield Grid(["plan (heads off)", *names], rows)


def _cell(row: pd.Series | None) -> str:
    if row is None:
        return "–"
    scale, digits = (100.0, 1) if row["metric"] == "top1" else (1.0, 3)
    return " / ".join(signed(row[name], digits, scale) for name in ("direct", "total"))
