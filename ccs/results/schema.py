"""The versioned schema of all tables of results: names, types, meanings and keys of their columns.

The tables are described in schema.toml, from which `python -m scripts.tables_page` prints docs/tables.md;
they are validated against it when they are written and when they are read.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import pyarrow as pa

VERSION = 4
"""Incremented whenever a table or column is added, removed or changes its meaning; no other is read."""
PLAN_KEY = ("model", "weights", "plan", "seed")
"""Key columns that identify the model and plan of a row, not which figure it holds."""
TOP_SHARE = "top share: "
"""The start of the name of the bias metric "a group's share of an occupation's top K"; the group follows."""
ONE_POOL = " (one-pool)"
"""The end of the name of a set whose images show occupations, when every occupation ranks all of them."""

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
        found: list[Column] = []
        for entry in entries:
            if isinstance(entry, str):
                found += groups[entry]
            else:
                found.append(Column(**entry | {"one_of": tuple(entry.get("one_of", ()))}))
        return tuple(found)

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
