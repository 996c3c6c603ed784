"""What tables of results are made of: typed columns with their meaning, and columns of several tables."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

VERSION = 2
"""Raised whenever a table or column appears, disappears or changes its meaning.

2: the tables `effects` and `correlations`; several `k` in `scores`, and texts of the largest in `spans` and
`judgments`.
"""
READABLE = (1, VERSION)
"""Versions whose tables are valid as they are: 2 only adds to 1."""

_TYPES = {"text": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}


@dataclass(frozen=True)
class Column:
    """One column. `kind`: text, int, float or bool. NaN is empty; only a nullable column may be empty.

    `below`: whole numbers from 0 to less than that; 0 where any number will do.
    """

    name: str
    kind: str
    meaning: str
    nullable: bool = False
    among: tuple[str, ...] = ()
    below: int = 0


@dataclass(frozen=True)
class Table:
    """One table: its columns in order and the columns that together name a row (`key`)."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema that the parquet file has."""
        fields = [
            pa.field(column.name, _TYPES[column.kind], nullable=column.nullable) for column in self.columns
        ]
        return pa.schema(fields, metadata={"ccs_table": self.name, "ccs_schema": str(VERSION)})


PLAN_KEY = ("model", "weights", "plan", "seed")
"""Key columns that say whose figure a row holds, and not which figure it is."""

MODEL = (
    Column("model", "text", "the model's name, e.g. `organism` or `ViT-B-32/openai`"),
    Column("weights", "text", "first 16 hexadecimal digits of the SHA-256 of the model's weights"),
)
HEAD = (
    Column("layer", "int", "layer of the head, from 0", below=1024),
    Column("head", "int", "head within its layer, from 0", below=1024),
)
PLAN = (
    Column(
        "plan",
        "text",
        "which heads are off: `none`, `high`, `low`, `random`, `concept:Colors`, `single:L7.H2`, ...; "
        "`high@7`: high at a further K, 7",
    ),
    Column(
        "seed", "int", "seed of a plan drawn at random; empty on other plans and on a mean over seeds", True
    ),
    Column("heads", "text", "the heads that are off, e.g. `L6.H1 L7.H2`; empty for none"),
    Column("n_heads", "int", "how many heads are off"),
)
INTERVAL = (
    Column("value", "float", "the metric with these heads off"),
    Column("low", "float", "lower end of its 95% interval", True),
    Column("high", "float", "upper end of its 95% interval", True),
)
AGAINST_NONE = (
    Column("baseline", "float", "the metric with no head off", True),
    Column("difference", "float", "value less baseline", True),
    Column("difference_low", "float", "lower end of the difference's 95% interval (paired bootstrap)", True),
    Column("difference_high", "float", "upper end of the difference's 95% interval", True),
    Column(
        "p_value", "float", "two-sided p-value of the difference, before any correction for many tests", True
    ),
)


def effect(name: str) -> tuple[Column, ...]:
    """The columns of an effect with its interval and p-value."""
    return (
        Column(name, "float", f"the {name} effect: the metric less its value with no head off"),
        Column(f"{name}_low", "float", "lower end of its 95% interval", True),
        Column(f"{name}_high", "float", "upper end of its 95% interval", True),
        Column(f"{name}_p_value", "float", "its p-value, before any correction for many tests", True),
    )


def model_table(name: str, meaning: str, columns: tuple[Column, ...], key: tuple[str, ...]) -> Table:
    """A table whose every row names its model and the model's weights."""
    return Table(name, meaning, (*MODEL, *columns), ("model", "weights", *key))
