"""Measure edits of heads: `python -m research.editing [--run]`."""

from __future__ import annotations

import sys
from pathlib import Path

from research.editing.frontiers import measure_cases

CELLS = Path(__file__).with_name("frontiers.csv")

if __name__ == "__main__":
    if "--run" in sys.argv[1:]:
        measure_cases(CELLS)
