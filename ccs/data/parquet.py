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
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds

from ccs.data.files import OnDisk, Opener, path_or_stream
from ccs.data.names import tidy
from ccs.data.rows import Rows, spread
from ccs.errors import InputError

IMAGES = ("image", "img", "jpg", "png", "webp", "picture", "photo")
"""The usual names of a column of images."""
AT_ONCE, BATCH_BYTES, GROUP_BYTES = 64, 2**25, 2**30
"""Rows that are decoded at once, roughly their most bytes, and the most bytes of a row group."""
Part = tuple[Opener, Sequence[int], int]
"""A file, the row groups read of it, and the number of rows."""


def _open(opener: Opener) -> pq.ParquetFile:
    """Open a file; of one on the disk, pages are streamed."""
    buffered = 2**20 if isinstance(opener, OnDisk) else 0
    return pq.ParquetFile(path_or_stream(opener), buffer_size=buffered, pre_buffer=False)


def read_parquet(
    files: Mapping[str, Opener],
    name: str,
    source: str,
    image: str = "image",
    max_rows: int | None = None,
    *,
    spaced: bool = True,
    labeled: bool = True,
) -> Rows:
    """Read the rows of Parquet files; images stay where they are.

    Args:
        files: The files by path, in order.
        name: The set's name in messages.
        source: Where the rows come from.
        image: The column of images, if it is there.
        max_rows: The most rows, as many of each file; by default all.
        spaced: Whether these come from evenly spaced row groups of a file, or from its first ones.
        labeled: Whether other columns are read too.

    Raises:
        InputError: If a file is broken or has too large row groups, columns differ, or none holds images.
    """
    parts: list[Part] = []
    columns: dict[str, list[Any]] = {}
    classes: dict[str, dict[str, None]] = defaultdict(dict)
    unusable: dict[str, str] = {}
    total = 0
    for number, (path, opener) in enumerate(files.items(), 1):
        try:
            opened = _open(opener)
            schema = opened.schema_arrow
            if not parts:
                images = image_columns(schema, image)
                columns = {column: [] for column in schema.names if labeled and column not in images}
            if missing := sorted({*columns, images[0]} - {*schema.names}):
                raise InputError(f"{source}: {path} has no column {missing[0]!r}, which the first file has.")
            share = None if max_rows is None else -(-max_rows * number // len(files)) - total
            groups, count = _row_groups(opened.metadata, source, share, spaced)
            unusable |= {column: why for column in columns if (why := _unusable(schema.field(column).type))}
            usable = [column for column in columns if column not in unusable]
            # Group by group, since the columns of a group are next to each other in the file.
            tables = [opened.read_row_group(group, columns=usable) for group in groups]
            table = pa.concat_tables(tables) if tables else schema.empty_table()
            names = class_names(schema)
            for column in usable:
                if (cells := _plain_cells(table.column(column))) is None:
                    unusable[column] = "it holds lists of several values"
                    continue
                if column in names:
                    classes[column] |= dict.fromkeys(names[column])
                    cells = _by_name(cells, names[column], column, name)
                columns[column] += cells[:count]
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            if hasattr(error, "response"):  # the Hub failed, not the file
                raise
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"{source!r} cannot be read as Parquet ({reason}).") from None
        parts.append((opener, groups, count))
        total += count
    return Rows(
        name=name,
        source=source,
        count=total,
        read=ImageColumn(parts, images[0]),
        columns={column: cells for column, cells in columns.items() if column not in unusable},
        classes={column: tuple(names) for column, names in classes.items()},
        unusable=unusable,
        is_part=max_rows is not None,
    )


def _row_groups(
    metadata: pq.FileMetaData, source: str, max_rows: int | None, spaced: bool
) -> tuple[Sequence[int], int]:
    """Choose the row groups of `max_rows` rows, and return these with the number of rows to read."""
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    if (largest := max((group.total_byte_size for group in groups), default=0)) > GROUP_BYTES:
        raise InputError(
            f"{source!r} has a row group of {largest >> 20:,} MB, which may be in memory twice; at most "
            f"{GROUP_BYTES >> 20:,} MB are read. Write it with smaller ones (row_group_size=1000)."
        )
    if max_rows is None:
        return range(len(groups)), metadata.num_rows
    needed = min(len(groups), -(-max_rows * len(groups) // max(1, metadata.num_rows)))
    chosen = spread(len(groups), needed) if spaced else range(needed)
    return chosen, min(max_rows, sum(groups[group].num_rows for group in chosen))


def image_columns(schema: pa.Schema, wanted: str = "image") -> list[str]:
    """List the columns that hold images: the wanted one first, then by their type and usual names.

    Args:
        schema: The columns of the file.
        wanted: The usual column.

    Raises:
        InputError: If there is none.
    """

    def rank(kind: pa.DataType) -> int:
        if kinds.is_struct(kind):
            return 0 if "bytes" in {part.name for part in kind} else 9
        if kinds.is_list(kind) or kinds.is_large_list(kind):
            return 2 if kinds.is_uint8(kind.value_type) else 9
        return 1 if _is_binary(kind.value_type if kinds.is_dictionary(kind) else kind) else 9

    order = {column: place for place, column in enumerate(IMAGES)}
    ranked = [
        (part.name != wanted, rank(part.type), order.get(part.name, 99), place, part.name)
        for place, part in enumerate(schema)
        if rank(part.type) < 9
    ]
    if not ranked:
        raise InputError(f"There is no column of images; the columns are {', '.join(schema.names)[:300]}.")
    return [column for *_, column in sorted(ranked)]


def _is_binary(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (kinds.is_binary, kinds.is_large_binary, kinds.is_binary_view))


def _is_list(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list))


def image_bytes(cell: Any) -> bytes:
    """Return the encoded image in a cell. Raises OSError if there is none, even if there is a path to one."""
    if isinstance(cell, dict):
        cell = cell.get("bytes")
    if isinstance(cell, list):
        cell = bytes(cell)
    if not isinstance(cell, bytes) or not cell:
        raise OSError("no image in this row")
    return cell


def class_names(schema: pa.Schema) -> dict[str, list[str]]:
    """Return the names of class numbers, by column, as `datasets` writes them next to a schema."""
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
        return {
            column: list(map(tidy, feature["names"]))
            for column, feature in features.items()
            if isinstance(feature, dict) and isinstance(feature.get("names"), list)
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the one value in a list, a record of one field, or a category."""
    if _is_list(kind) or kinds.is_dictionary(kind):
        return kind.value_type
    return kind[0].type if kinds.is_struct(kind) and kind.num_fields == 1 else kind


def _unusable(kind: pa.DataType) -> str:
    """Return why cells of a type cannot label images, "" if they can."""
    value = _value_type(kind)
    if kinds.is_null(value):
        return "it is empty"
    if kinds.is_nested(value) or (_is_list(kind) and kinds.is_floating(value)):
        return "it holds lists or records of several values"
    return "it holds neither text nor numbers" * (_is_binary(value) or kinds.is_fixed_size_binary(value))


def _plain_cells(column: pa.ChunkedArray) -> list[Any] | None:
    """Return cells as texts, numbers, truth values, or None; a list or record of one value is that value.

    If a list holds several values, return None.
    """
    cells = column.to_pylist()
    if kinds.is_struct(column.type):
        cells = [next(iter(cell.values())) if cell else None for cell in cells]
    elif _is_list(column.type):
        if any(cell is not None and len(cell) > 1 for cell in cells):
            return None
        cells = [cell[0] if cell else None for cell in cells]
    value = _value_type(column.type)
    if kinds.is_floating(value) or kinds.is_decimal(value):
        cells = [None if cell is None or cell != cell else float(cell) for cell in cells]
        if all(cell is None or cell.is_integer() for cell in cells):
            cells = [None if cell is None else int(cell) for cell in cells]
    return [cell if isinstance(cell, str | int | float | None) else str(cell) for cell in cells]


def _by_name(cells: Sequence[Any], names: Sequence[str], column: str, source: str) -> list[str | None]:
    """Replace class numbers by names: the files' own lists may differ in order."""
    numbers = {cell for cell in cells if cell not in (None, -1)}
    if wrong := [cell for cell in numbers if not isinstance(cell, int) or not 0 <= cell < len(names)]:
        raise InputError(
            f"The column {column!r} of {source!r} has the class number {wrong[0]}, but names of only "
            f"{len(names)} classes."
        )
    return [names[cell] if cell in numbers else None for cell in cells]


class ImageColumn:
    """Encoded images by row. Rows are read in batches: the next rows are cheap, earlier ones begin again.

    Args:
        parts: The files.
        column: The column of images.
    """

    def __init__(self, parts: Sequence[Part], column: str) -> None:
        self._parts, self._column = parts, column
        self._clear()

    def _clear(self) -> None:
        self._lock, self._process = threading.Lock(), os.getpid()
        self._part = self._first = -1
        self._batch: Any = ()
        self._batches: Iterator[Any] = iter(())

    def __reduce__(self) -> tuple[Any, ...]:
        return ImageColumn, (self._parts, self._column)

    def __call__(self, row: int) -> bytes:
        """Read the encoded image of a row."""
        if self._process != os.getpid():  # a forked process shares the position in the file
            self._clear()
        with self._lock:
            part = 0
            while row >= self._parts[part][2]:
                row -= self._parts[part][2]
                part += 1
            try:
                if part != self._part or row < self._first:
                    self._start(part, row)
                while row >= self._first + len(self._batch):
                    self._first += len(self._batch)
                    self._batch = next(self._batches).column(0)
                return image_bytes(self._batch[row - self._first].as_py())
            except (pa.ArrowException, StopIteration) as error:
                self._part = -1
                raise OSError(f"the Parquet file cannot be read: {str(error)[:200]}") from None

    def _start(self, part: int, row: int) -> None:
        """Go to the row group that holds a row of a file."""
        opener, chosen, _ = self._parts[part]
        opened, first, skipped = _open(opener), 0, 0
        groups = [opened.metadata.row_group(group) for group in chosen]
        while row >= first + groups[skipped].num_rows:
            first += groups[skipped].num_rows
            skipped += 1
        size = sum(group.total_byte_size for group in groups[skipped:])
        rows = sum(group.num_rows for group in groups[skipped:])
        at_once = max(1, min(AT_ONCE, BATCH_BYTES * rows // max(1, size)))
        self._part, self._first, self._batch = part, first, ()
        self._batches = iter(
            opened.iter_batches(at_once, row_groups=list(chosen[skipped:]), columns=[self._column])
        )
