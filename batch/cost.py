"""What a run would take."""

from __future__ import annotations

from batch.run import Run


def page(run: Run) -> str:
    return ""
