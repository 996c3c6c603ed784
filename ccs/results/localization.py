"""The table `localization` of all models, in one file beside their folders: `<results>/localization.parquet`.

It lies beside the folders because it also holds models for which nothing else was computed, and because a new
run of `batch.compute` removes everything but its own tables from a model's folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ccs.heads import Head
from ccs.results import schema
from ccs.results.table import empty, read_table, write_table

NAME = "localization"
FILE = f"{NAME}.parquet"
PLANTED = "planted heads"
"""A method that stands for the truth, where it is known, as a reference for the others."""
KEY = [column for column in schema.TABLES[NAME].key if column not in ("layer", "head")]


def read(folder: Path) -> pd.DataFrame:
    """All models' rows in a folder of results, none without a table; InputError for another table."""
    path = folder / FILE
    return read_table(path) if path.exists() else empty(NAME)


def orders(rows: pd.DataFrame, **question: object) -> dict[str, tuple[Head, ...]]:
    """Method -> heads in its order, from the rows with these values of model, weights, dataset, ...

    Of several splits into halves it is the order of the heads' mean places.
    """
    for column, value in question.items():
        rows = rows[rows[column] == value]
    places = rows.groupby(["method", "layer", "head"])["rank"].mean().reset_index()
    return {
        str(method): tuple(Head(*head) for head in zip(one["layer"], one["head"], strict=True))
        for method, one in places.sort_values("rank", kind="stable").groupby("method")
    }


def keep(folder: Path, rows: pd.DataFrame | Sequence[Mapping[str, Any]]) -> None:
    """Write rows to the folder's table, replacing those with the same key.

    Rows of other weights of these models are removed too, since those models no longer exist.
    """
    new, old = pd.DataFrame(rows), read(folder)
    replaced = pd.MultiIndex.from_frame(old[KEY]).isin(pd.MultiIndex.from_frame(new[KEY]))
    weights = dict(zip(new["model"], new["weights"], strict=True))
    stale = old["weights"] != old["model"].map(weights).fillna(old["weights"])
    kept = old[~(replaced | stale)]
    both = pd.concat([kept, new], ignore_index=True) if len(kept) else new
    write_table(folder, NAME, both.sort_values([*KEY, "rank"]).reset_index(drop=True))
