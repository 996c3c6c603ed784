"""The base of all results of `ccs.analysis`, which a notebook, a file, and a program can read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from importlib.util import find_spec
from io import StringIO
from typing import Any

import pandas as pd

from ccs.errors import require


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Result:
    """The answer to one question about a model.

    Attributes:
        about: the choices behind the numbers: model, weights, dataset, ablated heads, ...
        rows: the numbers, one row per case.
    """

    about: Mapping[str, Any]
    rows: pd.DataFrame

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the result and return matplotlib's Axes (`ax`, if given).

        Raises:
            MissingExtra: Without matplotlib.
        """
        raise NotImplementedError

    def to_json(self) -> str:
        """Return all fields as JSON: `about`, the list `rows`, and the others; missing numbers are null."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps({name: _plain(value) for name, value in values.items()}, ensure_ascii=False)

    def flat(self) -> pd.DataFrame:
        """Return the rows with each entry of `about` in a column of its own, for a CSV file."""
        return self.rows.assign(
            **{name: value for name, value in self.about.items() if name not in self.rows}
        )

    def _repr_html_(self) -> str:
        """Return the plot as SVG, or the rows as a table without matplotlib."""
        if find_spec("matplotlib") is None:
            return str(self.rows.to_html(index=False))
        drawing = StringIO()
        self.plot().figure.savefig(drawing, format="svg")
        return drawing.getvalue()[drawing.getvalue().index("<svg") :]


def axes(rows: int, ax: Any = None) -> Any:
    """Return matplotlib's Axes, of a new figure if none are given.

    Args:
        rows: number of bars, for the height of a new figure.
        ax: Axes to draw on.

    Raises:
        MissingExtra: Without matplotlib.
    """
    require("plot", "matplotlib")
    from matplotlib.figure import Figure

    if ax is not None:
        return ax
    # A Figure that pyplot doesn't know; a notebook would show pyplot's a second time.
    return Figure(figsize=(6.4, 1.2 + 0.26 * rows), layout="constrained").add_subplot()


def _plain(value: Any) -> Any:
    if isinstance(value, pd.DataFrame):
        indexed = value if isinstance(value.index, pd.RangeIndex) else value.reset_index()
        return json.loads(indexed.to_json(orient="records", double_precision=15))
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    return str(value)
