"""The data sets, what the study did differently with each, and what was asked for and not computed."""

from __future__ import annotations

from collections.abc import Mapping

from batch.report.page import Block, fill
from ccs.datasets import SOURCES
from ccs.results import Results


def dataset_blocks(models: Mapping[str, Results]) -> list[Block]:
    """The section on data sets, and the holes in the results."""
    sets = [
        {
            "set": source.title,
            "on the Hub": source.hub or "local only",
            "split": source.split,
            "rows": f"{source.rows:,}",
            "what the study did differently": source.study or "nothing noted",
        }
        for source in SOURCES.values()
    ]
    holes = [
        {"asked for, not computed": f"{name}: {entry.get('name')}", "why": str(entry.get("reason"))}
        for name, found in models.items()
        for entry in found.manifest.get("absent") or []
        if isinstance(entry, dict)
    ]
    return fill("datasets", sets=sets, holes=holes)
