"""Read images and columns from Parquet files. A path or address in a cell is never followed.

Rows are decoded in batches of at most 64 and about 32 MB, whatever the size of a row group. A writer may put
a whole row group into one page, which then has to be in memory, compressed and not: a group of 440 MB costs
1 GB (0.75 GB if its images can be packed). A file with a group above 1 GB, which could cost 2.3 GB, is
refused.
"""

from __future__ import annotations

import json
import os
import threading
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds

from ccs.data import DatasetRecord
from ccs.data.files import OnDisk, Opener
from ccs.data.rows import Rows, spread, tidy
from ccs.errors import InputError

IMAGES = ("image", "img", "jpg", "png", "webp", "picture", "photo")
"""The usual names of a column of images."""
_BINARY = ("binary", "large_binary", "binary_view")
AT_ONCE, BATCH_BYTES, GROUP_BYTES = 64, 2**25, 2**30
"""Rows that are decoded at once, roughly their most bytes, and the most bytes of a row group."""


class _Group(NamedTuple):
    """A row group: the file, its number there, the set's row that it begins with, and rows per batch."""

    opener: Opener
    number: int
    first: int
    at_once: int


def _open(opener: Opener) -> pq.ParquetFile:
    """Open a file; of one on the disk, pages are streamed."""
    if isinstance(opener, OnDisk):
        return pq.ParquetFile(opener.path, buffer_size=2**20, pre_buffer=False)
    return pq.ParquetFile(opener(), pre_buffer=False)


def read_parquet(
    files: Mapping[str, Opener],
    record: DatasetRecord,
    source: str,
    max_rows: int | None = None,
) -> Rows:
    """Read the rows of Parquet files; images stay where they are.

    Args:
        files: The files by path, in order.
        record: The set's record. Of images without labels (kind "images"), no other columns are read.
        source: Where the rows come from.
        max_rows: Maximum number of rows, as many of each file, from evenly spaced row groups; by default all.

    Raises:
        InputError: If a file is broken or has too large row groups, columns differ, or none holds images.
    """
    groups: list[_Group] = []
    columns: dict[str, list[Any]] = {}
    classes: dict[str, dict[str, None]] = defaultdict(dict)
    unusable: dict[str, str] = {}
    image_column, total = "", 0
    for number, (path, opener) in enumerate(files.items(), 1):
        wanted = None if max_rows is None else -(-max_rows * number // len(files)) - total
        try:
            opened = _open(opener)
            schema = opened.schema_arrow
            if not image_column:
                image_column, *others = image_columns(schema, record.image)
                left_out = {image_column, *others} if record.kind != "images" else {*schema.names}
                columns = {name: [] for name in schema.names if name not in left_out}
            if missing := {*columns, image_column} - {*schema.names}:
                raise ValueError(f"{path} has no column {min(missing)!r}, which the first file has")
            end, chosen = _row_groups(opened.metadata, opener, total, wanted)
            unusable |= {name: why for name in columns if (why := _unusable(schema.field(name).type))}
            usable = [name for name in columns if name not in unusable]
            # Group by group, since the columns of a group are next to each other in the file.
            tables = [opened.read_row_group(group.number, columns=usable) for group in chosen]
            table, names = pa.concat_tables(tables or [schema.empty_table()]), _class_names(schema)
            for column in usable:
                if (cells := _plain_cells(table.column(column))) is None:
                    unusable[column] = "it holds lists of several values"
                    continue
                if column in names:
                    classes[column] |= dict.fromkeys(names[column])
                    cells = _by_name(cells, names[column], f"The column {column!r} of {record.name!r}")
                columns[column] += cells[: end - total]
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            if hasattr(error, "response") or isinstance(error, InputError):  # the Hub failed, not the file
                raise
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"{source!r} cannot be read as Parquet ({reason}).") from None
        groups += chosen
        total = end
    return Rows(
        name=record.name,
        source=source,
        count=total,
        read=ImageColumn(groups, image_column),
        columns={column: cells for column, cells in columns.items() if column not in unusable},
        classes={column: tuple(names) for column, names in classes.items()},
        unusable=unusable,
        is_part=max_rows is not None,
    )


def _row_groups(
    metadata: pq.FileMetaData, opener: Opener, first: int, wanted: int | None
) -> tuple[int, list[_Group]]:
    """Choose a file's row groups for `wanted` rows of the set, from row `first` on, and return their end."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    if (largest := max((group.total_byte_size for group in groups), default=0)) > GROUP_BYTES:
        raise ValueError(
            f"a row group has {largest >> 20:,} MB, and at most {GROUP_BYTES >> 20:,} MB are read: write "
            "smaller ones, such as row_group_size=1000"
        )
    wanted = metadata.num_rows if wanted is None else wanted
    needed = min(len(groups), -(-wanted * len(groups) // max(1, metadata.num_rows)))
    end, chosen = first, list[_Group]()
    for number in spread(len(groups), needed):
        count, size = groups[number].num_rows, max(1, groups[number].total_byte_size)
        chosen.append(_Group(opener, number, end, max(1, min(AT_ONCE, BATCH_BYTES * count // size))))
        end += count
    return min(end, first + wanted), chosen


def image_columns(schema: pa.Schema, wanted: str = "image") -> list[str]:
    """List the columns that hold images: the wanted one first, then those of usual names.

    Args:
        schema: The columns of the file.
        wanted: The usual column.

    Raises:
        InputError: If there is none.
    """

    def holds_images(kind: pa.DataType) -> bool:
        if kinds.is_struct(kind):
            return bool(kind.get_field_index("bytes") >= 0)
        is_list = kinds.is_list(kind) or kinds.is_large_list(kind)
        value = kind.value_type if is_list or kinds.is_dictionary(kind) else kind
        return str(value) in (("uint8",) if is_list else _BINARY)

    usual = {column: place for place, column in enumerate((*IMAGES[::-1], wanted))}
    columns = [column.name for column in schema if holds_images(column.type)]
    if not columns:
        raise InputError(f"There is no column of images; the columns are {', '.join(schema.names)[:300]}.")
    return sorted(columns, key=lambda column: -usual.get(column, -1))


def _class_names(schema: pa.Schema) -> dict[str, list[str]]:
    """Return the names of class numbers, by column, as `datasets` writes them next to a schema."""
    with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        listed = {column: feature["names"] for column, feature in features.items() if "names" in feature}
        return {column: [*map(tidy, names)] for column, names in listed.items() if isinstance(names, list)}
    return {}


def _unusable(kind: pa.DataType) -> str:
    """Return why cells of a type cannot label images, "" if they can, or if it depends on the cells."""
    is_list = kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind)
    value = kind.value_type if is_list or kinds.is_dictionary(kind) else kind
    if kinds.is_struct(kind) and kind.num_fields == 1:
        value = kind[0].type
    if kinds.is_nested(value) or (is_list and kinds.is_floating(value)):
        return "it holds lists or records of several values"
    is_bytes = str(value) in _BINARY or kinds.is_fixed_size_binary(value)
    return "it is empty" if kinds.is_null(value) else "it holds neither text nor numbers" * is_bytes


def _plain_cells(column: pa.ChunkedArray) -> list[Any] | None:
    """Return cells as texts, numbers, truth values, or None; a list or record of one value is that value.

    If a list holds several values, return None.
    """
    cells = column.to_pylist()
    if kinds.is_nested(column.type):
        lists = [list(cell.values()) if isinstance(cell, dict) else cell or [] for cell in cells]
        if any(len(values) > 1 for values in lists):
            return None
        cells = [values[0] if values else None for values in lists]
    cells = [float(cell) if isinstance(cell, Decimal) else cell if cell == cell else None for cell in cells]
    if all(cell is None or (isinstance(cell, float) and cell.is_integer()) for cell in cells):
        cells = [None if cell is None else int(cell) for cell in cells]
    return [cell if isinstance(cell, str | int | float | None) else str(cell) for cell in cells]


def _by_name(cells: Sequence[Any], names: Sequence[str], column: str) -> list[str | None]:
    """Replace class numbers by names: the files' own lists may differ in order."""
    numbers = {cell for cell in cells if cell not in (None, -1)}
    if wrong := [cell for cell in numbers if not isinstance(cell, int) or not 0 <= cell < len(names)]:
        raise InputError(f"{column} has the class number {wrong[0]}, but names of only {len(names)} classes.")
    return [names[cell] if cell in numbers else None for cell in cells]


class ImageColumn:
    """Encoded images by row. Rows are read in batches: the next rows are cheap, earlier ones begin again.

    Args:
        groups: The row groups, in order.
        column: The column of images.
    """

    def __init__(self, groups: Sequence[_Group], column: str) -> None:
        self._groups, self._column = groups, column
        self._close()

    def _close(self) -> None:
        self._lock, self._process = threading.Lock(), os.getpid()
        self._file: Any = None
        self._group: _Group | None = None
        self._first = 0
        self._batch: Any = ()  # an empty array would import pandas
        self._batches: Any = iter(())

    def __reduce__(self) -> tuple[Any, ...]:
        return ImageColumn, (self._groups, self._column)

    def __call__(self, row: int) -> bytes:
        """Read the encoded image of a row. Raises OSError if there is none, even for a path to one."""
        if self._process != os.getpid():  # a forked process shares the position in the file
            self._close()
        with self._lock:
            try:
                cell: Any = self._seek(row)[row - self._first].as_py()
            except (pa.ArrowException, StopIteration) as error:
                self._close()
                raise OSError(f"the Parquet file cannot be read: {str(error)[:200]}") from None
        cell = cell.get("bytes") if isinstance(cell, dict) else cell
        if not cell or not isinstance(cell, bytes | list):
            raise OSError("no image in this row")
        return bytes(cell)

    def _seek(self, row: int) -> Any:
        """Return the batch with this row."""
        group = self._groups[bisect_right(self._groups, row, key=lambda group: group.first) - 1]
        if group is not self._group or row < self._first:
            if self._group is None or group.opener is not self._group.opener:
                self._file = _open(group.opener)
            self._group, self._first, self._batch = group, group.first, ()
            self._batches = self._file.iter_batches(group.at_once, [group.number], [self._column])
        while row >= self._first + len(self._batch):
            self._first += len(self._batch)
            self._batch = next(self._batches).column(0)
        return self._batch
