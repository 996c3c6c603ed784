"""The data sets, what the study did differently with each, and what was asked for and not computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from batch.report.page import Block, table
from ccs.datasets import SOURCES
from ccs.results import Results


def dataset_blocks(models: Mapping[str, Results]) -> Iterator[Block]:
    """The section on data sets, and the holes in the results."""
    yield "## Data sets"
    yield (
        "docs/datasets.md says how each was verified, under which terms it stands, and how to use a "
        "local copy."
    )
    rows = [
        {
            "set": source.title,
            "on the Hub": source.hub or "local only",
            "split": source.split,
            "rows": f"{source.rows:,}",
            "what the study did differently": source.study or "nothing noted",
        }
        for source in SOURCES.values()
    ]
    yield table(pd.DataFrame(rows))
    holes = {
        f"{name}: {entry.get('name')}": str(entry.get("reason"))
        for name, found in models.items()
        for entry in found.manifest.get("absent") or []
        if isinstance(entry, dict)
    }
    if holes:
        yield table(pd.DataFrame(holes.items(), columns=["asked for, not computed", "why"]), "Holes")
