"""Write the results of edits to docs/mitigation.md: `python -m research.editing`; `--run` measures first."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from research.editing.document import write_document
from research.editing.frontiers import measure_cases

CELLS = Path(__file__).with_name("frontiers.csv")

if __name__ == "__main__":
    if "--run" in sys.argv[1:]:
        measure_cases(CELLS)
    write_document(pd.read_csv(CELLS))
