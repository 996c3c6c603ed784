"""The versioned schema of all results, and tables as Parquet files that are checked against it.

The tables are described in schema.toml, which the documentation's page "Results schema" lists.
Tables and manifests may be untrusted files from the Hub.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from ccs import sandbox
from ccs.errors import InputError
from ccs.files import atomic_write, sha256

VERSION = 6
"""Incremented whenever a table or column is added, removed, or changes its meaning; others aren't read."""
ABLATION_KEY = ("model", "weights", "ablation", "seed")
"""Key columns that identify the model and the ablated heads of a row, not which result it holds."""
TOP_SHARE = "top share: "
"""The beginning of names of the bias metric "a group's share of the top K"; the group follows."""
ONE_POOL = " (one-pool)"
"""The end of the name of a set whose images show occupations, if every occupation ranks all of them."""
AS_PUBLISHED = " (as-published)"
"""The end of the name of a set of clips that are retrieved as in the paper."""

PRECOMPUTED = (Path(__file__).parents[1] / "precomputed").resolve()
"""The bundled tables: in a clone a link to `precomputed/`, in the wheel a folder of the package."""
MAX_MANIFEST, MAX_ROWS, MAX_BYTES = 8 * 2**20, 1_000_000, 2**28
"""The most bytes of a manifest, and rows and bytes, once unpacked, of a table that is read."""

_TYPES = {"text": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column.

    Attributes:
        name: Its name.
        kind: Type of the values: "text", "int", "float", or "bool".
        meaning: Meaning of the values, for the docs.
        nullable: True if cells may be empty or NaN.
        one_of: The allowed values; empty allows any.
        below: Whole numbers from 0 to less than this; 0 allows any.
    """

    name: str
    kind: str
    meaning: str
    nullable: bool = False
    one_of: Sequence[str] = ()
    below: int = 0


@dataclass(frozen=True)
class Table:
    """One table: its columns in order, and the columns that together identify a row (`key`)."""

    name: str
    meaning: str
    columns: Sequence[Column]
    key: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the Parquet file."""
        fields = [pa.field(column.name, _TYPES[column.kind], column.nullable) for column in self.columns]
        return pa.schema(fields, metadata={"ccs_table": self.name, "ccs_schema": str(VERSION)})


def _tables(described: Mapping[str, Any]) -> dict[str, Table]:
    groups: dict[str, list[Column]] = {}

    def columns(entries: Sequence[Any]) -> list[Column]:
        """Return the columns that entries describe; an entry may also name a group of columns."""
        lists = [groups[entry] if isinstance(entry, str) else [Column(**entry)] for entry in entries]
        return [column for part in lists for column in part]

    for group in described["groups"]:
        groups[group["name"]] = columns(group["columns"])
    tables = dict[str, Table]()
    for table in described["tables"]:
        key, name = ("model", "weights", *table["key"]), table["name"]
        tables[name] = Table(name, table["meaning"], columns(["model", *table["columns"]]), key)
    return tables


_DESCRIBED = tomllib.loads(files("ccs.results").joinpath("schema.toml").read_text("utf-8"))
TABLES: Mapping[str, Table] = MappingProxyType(_tables(_DESCRIBED))
MANIFEST: Mapping[str, str] = MappingProxyType(_DESCRIBED["manifest"])


def check_version(version: object, name: str) -> None:
    """Check that a table has this program's schema version.

    Args:
        version: The table's schema version.
        name: The table's name, for the error.

    Raises:
        InputError: If the version differs from `VERSION`.
    """
    if str(version) != str(VERSION):
        raise InputError(
            f"{name} has schema version {str(version)[:20]} and this program reads {VERSION}. "
            "Compute it again (version 6 renames the column `plan` to `ablation`), or use the release "
            "that wrote it."
        )


def _model_name(name: str) -> str:
    path = name.startswith(("/", "~", ".", "local-dir:")) or "\\" in name or ".." in name.split("/")
    if not name.isprintable() or not name.strip() or path:
        raise ValueError("this is not the name of a model")
    return name


Name = Annotated[str, Field(max_length=200), AfterValidator(_model_name)]
Records = list[dict[str, Any]]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class _Model(_Part):
    name: Name
    weights_hash: str = ""


class _Judge(_Part):
    name: Annotated[str, Field(max_length=200)]
    stand_in: bool = False


class _Table(_Part):
    rows: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Manifest(_Part):
    """The types of the entries that are read by programs; `MANIFEST` says what each means."""

    schema_version: str | int
    created: str
    model: _Model
    texts: dict[str, Any]
    images: dict[str, Any]
    sets: Records
    labeler: dict[str, Any] | None
    judges: list[_Judge]
    chance_ccs: list[Annotated[float, Field(ge=0, le=1)]]
    settings: dict[str, Any]
    seeds: dict[str, Any]
    versions: dict[str, Any]
    largest_error: dict[str, Any]
    measured: dict[str, Any]
    absent: Records
    tables: dict[Literal[tuple(TABLES)], _Table]  # type: ignore[valid-type]


def parse_manifest(text: bytes, name: str) -> dict[str, Any]:
    """Parse the content of a manifest.

    Args:
        text: The file's content.
        name: Its name in errors.

    Raises:
        InputError: Other content, or another version.
    """
    if len(text) > MAX_MANIFEST:
        raise InputError(f"{name} is too large for a manifest: {len(text):,} bytes.")
    try:
        manifest = from_json(text)
    except ValueError:  # also for deep nesting
        raise InputError(f"{name} is not readable JSON.") from None
    if not isinstance(manifest, dict) or "schema_version" not in manifest:
        raise InputError(f"{name} is not a manifest of this project.")
    check_version(manifest["schema_version"], name)
    try:
        Manifest.model_validate(manifest)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        location = ".".join(map(str, first["loc"]))
        raise InputError(f"{name} is not a manifest of results: {location[:80]!r}: {first['msg']}.") from None
    return manifest


# Files -----------------------------------------------------------------------------------------------------

Rows: TypeAlias = "pd.DataFrame | Sequence[Mapping[str, Any]]"


def _check_columns(name: str, present: Iterable[str]) -> None:
    wanted, got = set(TABLES[name].schema.names), set(present)
    for words, names in (("lacks the columns", wanted - got), ("has unknown columns:", got - wanted)):
        if names:
            raise InputError(f"Table {name} {words} {', '.join(sorted(names))}.")


def _check_rows(name: str, arrow: pa.Table) -> None:
    table = TABLES[name]
    for column in table.columns:
        if not column.nullable and pc.any(pc.is_null(arrow[column.name], nan_is_null=True)).as_py():
            raise InputError(f"Table {name} has empty cells in column {column.name}, which may have none.")
        if column.one_of and (wrong := {*pc.unique(arrow[column.name]).to_pylist()} - {*column.one_of, None}):
            allowed = ", ".join(repr(value) for value in column.one_of)
            raise InputError(
                f"Table {name} has {min(wrong)!r} in column {column.name}; allowed are {allowed}."
            )
        if column.below and arrow[column.name].null_count < len(arrow):
            span = pc.min_max(arrow[column.name]).as_py()
            if span["min"] < 0 or span["max"] >= column.below:
                raise InputError(
                    f"Table {name} has {span['min']} to {span['max']} in column {column.name}; "
                    f"allowed is 0 to {column.below - 1}."
                )
    rows = arrow.group_by(list(table.key), use_threads=False).aggregate([([], "count_all")])
    if twice := rows.filter(pc.field("count_all") > 1).drop_columns("count_all").slice(length=1).to_pylist():
        raise InputError(f"Table {name} has two rows for {twice[0]}.")


def write_table(folder: Path, name: str, rows: Rows) -> dict[str, Any]:
    """Write one table, with columns in the schema's order; the same rows give the same bytes.

    Args:
        folder: The model's folder.
        name: The table's name.
        rows: Its rows.

    Returns:
        Its entry for the manifest.

    Raises:
        InputError: Other columns, types, or values, an empty cell in a column that allows none, or two rows
            with the same key.
    """
    schema, path = TABLES[name].schema, folder / f"{name}.parquet"
    frame = pd.DataFrame(rows) if len(rows) else pd.DataFrame(rows, columns=schema.names)
    _check_columns(name, frame.columns)
    try:
        cells = [pa.array(frame[field.name].tolist(), type=field.type, from_pandas=True) for field in schema]
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"Table {name} cannot be written: {error}.") from error
    arrow = pa.Table.from_arrays(cells, schema=schema)
    _check_rows(name, arrow)
    with atomic_write(path) as temporary:
        pq.write_table(arrow, temporary, compression="zstd")
    return {"rows": arrow.num_rows, "sha256": sha256(path)}


def read_table(path: Path) -> pd.DataFrame:
    """Read and validate the table that a file is named after; bundled ones outside the sandbox.

    Nullable integers and verdicts are `Int64` and `boolean`. Raises InputError.
    """
    path = path.absolute()  # a worker may be elsewhere
    label = f"{path.parent.name}/{path.name}"
    if path.is_relative_to(PRECOMPUTED):
        data = _read(str(path), label)
    else:
        # The largest takes 4 seconds of processor time; on the clock a busy machine takes many times that.
        limits = {"memory": MAX_BYTES * 4, "answer": MAX_BYTES, "patience": 60}
        data = sandbox.run(_read, str(path), label, title=label, **limits)
    with pa.ipc.open_stream(data) as stream:
        return to_pandas(path.stem, stream.read_all())


def _read(path: str, label: str) -> bytes:
    """Read a file whose metadata say that it is this table, and whose columns, size, and rows fit."""
    name = Path(path).stem
    with pq.ParquetFile(path) as file:
        columns, rows = file.schema_arrow, file.metadata.num_rows
        metadata = columns.metadata or {}
        if name not in TABLES or metadata.get(b"ccs_table") != name.encode() or b"ccs_schema" not in metadata:
            raise InputError(f"{label} is not a table of results under the name that this project gave it.")
        check_version(metadata[b"ccs_schema"].decode(errors="replace"), label)
        _check_columns(name, columns.names)
        if columns.types != TABLES[name].schema.types:
            raise InputError(f"{label} has columns of other types than table {name} has.")
        if rows > MAX_ROWS:
            raise InputError(f"{label} is too large: {rows:,} rows.")
        arrow = file.read()
    _check_rows(name, arrow)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, arrow.schema) as stream:
        stream.write_table(arrow)
    return bytes(out.getvalue())


def empty(name: str) -> pd.DataFrame:
    """Return the table without rows."""
    return to_pandas(name, TABLES[name].schema.empty_table())


def to_pandas(name: str, arrow: pa.Table) -> pd.DataFrame:
    """Convert an Arrow table to a frame with pandas' nullable types.

    Args:
        name: The table's name.
        arrow: The table.
    """
    frame: pd.DataFrame = arrow.to_pandas()
    extension = {"int": "Int64", "bool": "boolean"}
    for column in TABLES[name].columns:
        if column.nullable and column.kind in extension:
            frame[column.name] = pd.array(arrow[column.name].to_pylist(), dtype=extension[column.kind])
    return frame
