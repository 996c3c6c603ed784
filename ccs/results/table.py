"""One table of results as a parquet file: written atomically, validated when written and when read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ccs.errors import InputError
from ccs.files import atomic_write, sha256
from ccs.results import schema

Rows: TypeAlias = "pd.DataFrame | Sequence[Mapping[str, Any]]"


def to_arrow(name: str, rows: Rows) -> pa.Table:
    """Rows as the Arrow table of that name, columns in the schema's order.

    Raises InputError for a missing or unknown column, a wrong type, an empty cell where none may be, a value
    outside the allowed ones, or two rows of one key.
    """
    table = schema.TABLES[name]
    names = [column.name for column in table.columns]
    frame = pd.DataFrame(rows) if len(rows) else pd.DataFrame(rows, columns=names)
    _check_columns(name, frame.columns)
    try:
        arrays = [
            pa.array(
                [_plain(value) for value in frame[column].tolist()], type=table.schema.field(column).type
            )
            for column in names
        ]
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"Table {name} cannot be written: {error}.") from error
    arrow = pa.Table.from_arrays(arrays, schema=table.schema)
    _check_rows(name, arrow)
    return arrow


def _plain(value: Any) -> Any:
    """A cell without pandas' several ways to say that it is empty."""
    return (
        None if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)) else value
    )


def _check_columns(name: str, present: Iterable[str]) -> None:
    wanted, got = {column.name for column in schema.TABLES[name].columns}, set(present)
    if missing := sorted(wanted - got):
        raise InputError(f"Table {name} lacks the columns {', '.join(missing)}.")
    if unknown := sorted(got - wanted):
        raise InputError(f"Table {name} has columns that its schema does not know: {', '.join(unknown)}.")


def _check_rows(name: str, arrow: pa.Table) -> None:
    table = schema.TABLES[name]
    for column in table.columns:
        if not column.nullable and arrow[column.name].null_count:
            raise InputError(f"Table {name} has empty cells in column {column.name}, which may have none.")
        if column.among and (wrong := set(arrow[column.name].to_pylist()) - {*column.among, None}):
            allowed = ", ".join(repr(value) for value in column.among)
            raise InputError(
                f"Table {name} has {sorted(wrong)[0]!r} in column {column.name}; allowed are {allowed}."
            )
    seen: set[tuple[Any, ...]] = set()
    for row in zip(*(arrow[column].to_pylist() for column in table.key), strict=True):
        if row in seen:
            raise InputError(f"Table {name} has two rows for {dict(zip(table.key, row, strict=True))}.")
        seen.add(row)


def write_table(folder: Path, name: str, rows: Rows) -> dict[str, Any]:
    """Write one table; the same rows give the same bytes. Returns its entry in the manifest."""
    arrow, path = to_arrow(name, rows), folder / f"{name}.parquet"
    with atomic_write(path) as temporary:
        pq.write_table(arrow, temporary, compression="zstd")
    return {"rows": arrow.num_rows, "sha256": sha256(path)}


def check_version(version: object, path: Path) -> None:
    if str(version) not in map(str, schema.READABLE):
        raise InputError(
            f"{path} has schema version {version} and this program reads "
            f"{' and '.join(map(str, schema.READABLE))}: "
            "compute it again, or use the release that wrote it."
        )


def read_table(path: Path) -> pd.DataFrame:
    """A table of results, validated. Nullable integers and verdicts come as pandas' `Int64` and `boolean`."""
    try:
        arrow = pq.read_table(path, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is not a readable parquet file.") from error
    metadata = {key.decode(): value.decode() for key, value in (arrow.schema.metadata or {}).items()}
    name = metadata.get("ccs_table", "")
    if name not in schema.TABLES or "ccs_schema" not in metadata:
        raise InputError(f"{path} is not a table of results that this project wrote.")
    check_version(metadata["ccs_schema"], path)
    _check_columns(name, arrow.column_names)
    if [f.type for f in arrow.schema] != [f.type for f in schema.TABLES[name].schema]:
        raise InputError(f"{path} has columns of other types than table {name} has.")
    _check_rows(name, arrow)
    return to_pandas(name, arrow)


def to_pandas(name: str, arrow: pa.Table) -> pd.DataFrame:
    frame: pd.DataFrame = arrow.to_pandas()
    extension = {"int": "Int64", "bool": "boolean"}
    for column in schema.TABLES[name].columns:
        if column.nullable and column.kind in extension:
            frame[column.name] = pd.array(arrow[column.name].to_pylist(), dtype=extension[column.kind])
    return frame
