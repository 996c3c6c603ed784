"""Tables of results as parquet files, written atomically and validated when written and when read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ccs import gate
from ccs.errors import InputError
from ccs.files import atomic_write, sha256
from ccs.results import schema

PRECOMPUTED = (Path(__file__).parents[1] / "precomputed").resolve()
"""The tables that ship: in a clone a link to `precomputed/`, in the wheel a folder of the package."""
MAX_ROWS, MAX_BYTES = 1_000_000, 2**28
"""The most rows, and bytes once unpacked, of a table that is read."""

Rows: TypeAlias = "pd.DataFrame | Sequence[Mapping[str, Any]]"


def to_arrow(name: str, rows: Rows) -> pa.Table:
    """Rows as the Arrow table of that name, with columns in the schema's order.

    Raises InputError for a missing or unknown column, a wrong type, an empty cell in a column that allows
    none, a value that is not allowed, or two rows with the same key.
    """
    table = schema.TABLES[name]
    names = [column.name for column in table.columns]
    frame = pd.DataFrame(rows) if len(rows) else pd.DataFrame(rows, columns=names)
    _check_columns(name, frame.columns)
    try:
        arrays = [
            pa.array(frame[field.name].tolist(), type=field.type, from_pandas=True) for field in table.schema
        ]
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"Table {name} cannot be written: {error}.") from error
    arrow = pa.Table.from_arrays(arrays, schema=table.schema)
    _check_rows(name, arrow)
    return arrow


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
        if column.one_of and (wrong := set(arrow[column.name].to_pylist()) - {*column.one_of, None}):
            allowed = ", ".join(repr(value) for value in column.one_of)
            raise InputError(
                f"Table {name} has {sorted(wrong)[0]!r} in column {column.name}; allowed are {allowed}."
            )
        if column.below and len(arrow):
            span = pc.min_max(arrow[column.name]).as_py()
            if span["min"] < 0 or span["max"] >= column.below:
                raise InputError(
                    f"Table {name} has {span['min']} to {span['max']} in column {column.name}; "
                    f"allowed is 0 to {column.below - 1}."
                )
    rows = Counter(zip(*(arrow[column].to_pylist() for column in table.key), strict=True))
    if twice := next((row for row, count in rows.items() if count > 1), None):
        raise InputError(f"Table {name} has two rows for {dict(zip(table.key, twice, strict=True))}.")


def write_table(folder: Path, name: str, rows: Rows) -> dict[str, Any]:
    """Write one table and return its entry for the manifest; the same rows give the same bytes."""
    arrow, path = to_arrow(name, rows), folder / f"{name}.parquet"
    with atomic_write(path) as temporary:
        pq.write_table(arrow, temporary, compression="zstd")
    return {"rows": arrow.num_rows, "sha256": sha256(path)}


def read_table(path: Path) -> pd.DataFrame:
    """The table of results that a file is named after, validated; nullable integers and verdicts are `Int64`
    and `boolean`.

    It is read behind the gate, but for those that ship with this program. Raises InputError.
    """
    path = path.absolute()  # a worker may be elsewhere
    shown = f"{path.parent.name}/{path.name}"
    if path.is_relative_to(PRECOMPUTED):
        data = _read(str(path), shown)
    else:
        # The largest that is allowed takes 4 seconds of processor time; on the clock a busy machine takes
        # many times that.
        limits = {"memory": MAX_BYTES * 4, "answer": MAX_BYTES, "patience": 60}
        data = gate.run(_read, str(path), shown, what=shown, **limits)
    with pa.ipc.open_stream(data) as stream:
        return to_pandas(path.stem, stream.read_all())


def _read(path: str, shown: str) -> bytes:
    """The rows of a table, as Arrow's stream."""
    name = Path(path).stem
    with pq.ParquetFile(path) as file:
        _check_kind(name, shown, file.metadata, file.schema_arrow)
        arrow = file.read()
    _check_rows(name, arrow)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, arrow.schema) as stream:
        stream.write_table(arrow)
    stream_bytes: bytes = out.getvalue().to_pybytes()
    return stream_bytes


def _check_kind(name: str, shown: str, about: pq.FileMetaData, columns: pa.Schema) -> None:
    """InputError unless the file's metadata say that it is this table, and columns and size fit."""
    metadata = columns.metadata or {}
    if (
        name not in schema.TABLES
        or metadata.get(b"ccs_table") != name.encode()
        or b"ccs_schema" not in metadata
    ):
        raise InputError(f"{shown} is not a table of results under the name that this project gave it.")
    schema.check_version(metadata[b"ccs_schema"].decode(errors="replace"), shown)
    _check_columns(name, columns.names)
    if columns.types != schema.TABLES[name].schema.types:
        raise InputError(f"{shown} has columns of other types than table {name} has.")
    if about.num_rows > MAX_ROWS:
        raise InputError(f"{shown} is too large: {about.num_rows:,} rows.")


def empty(name: str) -> pd.DataFrame:
    """The table of that name without rows."""
    return to_pandas(name, to_arrow(name, []))


def to_pandas(name: str, arrow: pa.Table) -> pd.DataFrame:
    """An Arrow table of that name as a frame, with pandas' nullable types."""
    frame: pd.DataFrame = arrow.to_pandas()
    extension = {"int": "Int64", "bool": "boolean"}
    for column in schema.TABLES[name].columns:
        if column.nullable and column.kind in extension:
            frame[column.name] = pd.array(arrow[column.name].to_pylist(), dtype=extension[column.kind])
    return frame
