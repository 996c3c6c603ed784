"""The versioned schema of all results: tables' columns, with types, meanings and keys, and the manifest.

The tables are described in schema.toml, from which `python -m scripts.tables_page` prints docs/tables.md;
they are validated against it when they are written and when they are read. Manifests may come from a
stranger on the Hub.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import Annotated, Any

import pyarrow as pa
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from ccs.errors import InputError

VERSION = 5
"""Incremented whenever a table or column is added, removed or changes its meaning; no other is read."""
PLAN_KEY = ("model", "weights", "plan", "seed")
"""Key columns that identify the model and plan of a row, not which figure it holds."""
TOP_SHARE = "top share: "
"""The start of the name of the bias metric "a group's share of an occupation's top K"; the group follows."""
ONE_POOL = " (one-pool)"
"""The end of the name of a set whose images show occupations, when every occupation ranks all of them."""
AS_PUBLISHED = " (as-published)"
"""The end of the name of a set of clips, retrieved as the study does it."""

MAX_MANIFEST = 8 * 2**20
"""The most bytes of a manifest."""

_TYPES = {"text": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column. `kind`: text, int, float or bool. NaN counts as empty; only nullable columns may be empty.

    `one_of`: the allowed values; any if empty. `below`: whole numbers from 0 to less than this; 0 allows any
    number.
    """

    name: str
    kind: str
    meaning: str
    nullable: bool = False
    one_of: tuple[str, ...] = ()
    below: int = 0


@dataclass(frozen=True)
class Table:
    """One table: its columns in order, and the columns that together identify a row (`key`)."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the parquet file."""
        fields = [
            pa.field(column.name, _TYPES[column.kind], nullable=column.nullable) for column in self.columns
        ]
        return pa.schema(fields, metadata={"ccs_table": self.name, "ccs_schema": str(VERSION)})


def _tables(described: Mapping[str, Any]) -> dict[str, Table]:
    def columns(entries: list[Any]) -> tuple[Column, ...]:
        described_columns: list[Column] = []
        for entry in entries:
            if isinstance(entry, str):
                described_columns += groups[entry]
            else:
                described_columns.append(Column(**entry | {"one_of": tuple(entry.get("one_of", ()))}))
        return tuple(described_columns)

    groups: dict[str, tuple[Column, ...]] = {}
    for group in described["groups"]:
        groups[group["name"]] = columns(group["columns"])
    return {
        table["name"]: Table(
            table["name"],
            table["meaning"],
            columns(["model", *table["columns"]]),
            ("model", "weights", *table["key"]),
        )
        for table in described["tables"]
    }


_DESCRIBED = tomllib.loads(files("ccs.results").joinpath("schema.toml").read_text("utf-8"))
TABLES: Mapping[str, Table] = MappingProxyType(_tables(_DESCRIBED))
MANIFEST: Mapping[str, str] = MappingProxyType(_DESCRIBED["manifest"])


def check_version(version: object, name: str) -> None:
    if str(version) != str(VERSION):
        raise InputError(
            f"{name} has schema version {str(version)[:20]} and this program reads {VERSION}: "
            "compute it again, or use the release that wrote it."
        )


def _model_name(name: str) -> str:
    path = name.startswith(("/", "~", ".", "local-dir:")) or "\\" in name or ".." in name.split("/")
    if not name.isprintable() or not name.strip() or path:
        raise ValueError("this is no name of a model")
    return name


def _table_name(name: str) -> str:
    if name not in TABLES:
        raise ValueError("this is no name of a table")
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
    tables: dict[Annotated[str, AfterValidator(_table_name)], _Table]


def parse_manifest(text: bytes, name: str) -> dict[str, Any]:
    """The manifest in a file's content; `name`: its name in errors.

    Raises InputError for content that is not JSON, has another schema version, or entries of other types.
    """
    if len(text) > MAX_MANIFEST:
        raise InputError(f"{name} is larger than a manifest is: {len(text):,} bytes.")
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
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{name} is no manifest of results: {where[:80]!r}: {first['msg']}.") from None
    return manifest
