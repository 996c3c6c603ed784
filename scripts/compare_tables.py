"""Compare two folders of results: python scripts/compare_tables.py precomputed/organism results/organism.

Prints the largest relative difference per table. Exits with 1 if a table is missing on one side, has other
rows, or differs by more than the tolerance; with 2 if a table cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ccs.errors import InputError
from ccs.results import read_table, schema


def difference(name: str, ours: pd.DataFrame, theirs: pd.DataFrame) -> tuple[float, str]:
    """The largest relative difference of two tables of that name, and its column.

    Rows are matched by the table's key, without the model's name and weights. Infinite where rows, texts or
    empty cells differ. Magnitudes below 0.001 count as 0.001.
    """
    key = [column for column in schema.TABLES[name].key if column not in ("model", "weights")]
    if len(ours) != len(theirs):
        return np.inf, f"rows ({len(ours)} and {len(theirs)})"
    sides = [table.sort_values(key, ignore_index=True) for table in (ours, theirs)]
    worst, where = 0.0, ""
    for column in ours.columns.difference(["model", "weights"]):
        left, right = (side[column] for side in sides)
        if ours[column].dtype == np.float64:
            scale = np.maximum(np.maximum(left.abs(), right.abs()), 1e-3)
            found = np.inf if (left.isna() != right.isna()).any() else ((left - right).abs() / scale).max()
        else:
            found = 0.0 if left.equals(right) else np.inf
        if found > worst:
            worst, where = float(found), column
    return worst, where


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", nargs=2, type=Path, metavar="FOLDER", help="one model's folder of tables")
    parser.add_argument("--rtol", type=float, default=1e-6, help="tolerance (default 1e-6)")
    args = parser.parse_args(argv)
    try:
        ours, theirs = ({path.stem: read_table(path) for path in f.glob("*.parquet")} for f in args.folders)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    failed = not ours
    for name in sorted({*ours, *theirs}):
        if name not in ours or name not in theirs:
            missing = args.folders[name in ours]
            print(f"{name:14s} is missing in {missing}")
            failed = True
            continue
        worst, where = difference(name, ours[name], theirs[name])
        print(f"{name:14s} {len(ours[name]):6d} rows  {worst:.1e}  {where}")
        failed |= not worst <= args.rtol
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
