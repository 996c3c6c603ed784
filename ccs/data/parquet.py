"""Read images and columns from Parquet files. A path or address in a cell is never followed."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds

from ccs.data import Lazy
from ccs.data.digests import identity
from ccs.data.files import File
from ccs.data.rows import Rows
from ccs.errors import InputError

COLUMNS = ("image", "img", "jpg", "png", "webp", "picture", "photo")
"""The usual names of a column of images."""
MOST_ROWS, MOST_BYTES = 64, 2**25
"""Rows that are decoded at once, and roughly their most bytes, whatever the size of a row group."""
NO_IMAGE = "no image in this row"
_ERRORS = (pa.ArrowException, OSError, ValueError, KeyError)


def open_file(file: File) -> pq.ParquetFile:
    """Open a Parquet file so that its pages are streamed, and no row group is read as a whole."""
    source = file.disk if file.member is None else pa.BufferReader(file.read())
    return pq.ParquetFile(source, buffer_size=2**20, pre_buffer=False)


def read_parquet(files: Mapping[str, File], name: str, source: str, image: str = "image") -> Rows:
    """Read the rows of Parquet files; images stay on the disk.

    Args:
        files: The files by path, in order.
        name: The set's name in messages.
        source: Where the rows come from.
        image: The column of images, if it is there.

    Raises:
        InputError: If a file is broken, their columns differ, or none holds images.
    """
    counts: list[int] = []
    columns: dict[str, list[Any]] = {}
    numbered: dict[str, list[list[str]]] = {}
    unusable: dict[str, str] = {}
    images: list[str] = []
    for path, file in files.items():
        try:
            opened = open_file(file)
            schema = opened.schema_arrow
            if not counts:
                images = image_columns(schema, image)
                columns = {column: [] for column in schema.names if column not in images}
            elif {*columns, *images} - {*schema.names}:
                missing = sorted({*columns, *images} - {*schema.names})
                raise InputError(f"{source}: {path} has no column {missing[0]!r}, which the first file has.")
            names = class_names(schema)
            for column in columns:
                cells, reason = plain_cells(opened, column)
                columns[column] += cells
                if reason:
                    unusable[column] = reason
                numbered.setdefault(column, []).append(names.get(column, []))
            counts.append(opened.metadata.num_rows)
        except InputError:
            raise
        except _ERRORS as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"{source!r} cannot be read as Parquet ({reason}).") from None
    for column in unusable:
        del columns[column]
    classes = {}
    for column, cells in columns.items():
        if any(numbered[column]):
            classes[column], columns[column] = _by_name(cells, numbered[column], counts, column, name)
    opened_by = tuple(files.values())
    pictures = {column: ImageColumn(opened_by, column, counts) for column in images}
    cells_by_column: dict[str, Sequence[Any]] = {**columns}
    if "mask" in pictures:
        cells_by_column["mask"] = Lazy(pictures["mask"], range(sum(counts)))
    disks = [file.disk for file in opened_by]
    known = identity(disks, images[0]) if all(disks) else ""
    read = next(iter(pictures.values()))
    return Rows(name, source, sum(counts), read, cells_by_column, classes, unusable, identity=known)


def image_columns(schema: pa.Schema, wanted: str = "image") -> list[str]:
    """List the columns that hold images: the wanted one first, then by their type and usual names.

    Raises:
        InputError: If there is none.
    """

    def rank(kind: pa.DataType) -> int:
        if kinds.is_struct(kind):
            return 0 if "bytes" in {part.name for part in kind} else 9
        if kinds.is_list(kind) or kinds.is_large_list(kind):
            return 2 if kinds.is_uint8(kind.value_type) else 9
        if kinds.is_dictionary(kind):
            kind = kind.value_type
        return 1 if kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_binary_view(kind) else 9

    order = {column: place for place, column in enumerate(COLUMNS)}
    ranked = [
        (part.name != wanted, rank(part.type), order.get(part.name, 99), place, part.name)
        for place, part in enumerate(schema)
        if rank(part.type) < 9
    ]
    if not ranked:
        raise InputError(f"There is no column of images; the columns are {', '.join(schema.names)[:300]}.")
    return [column for *_, column in sorted(ranked)]


def image_bytes(cell: Any) -> bytes:
    """Return the encoded image in a cell. Raises OSError if there is none, even if there is a path to one."""
    if isinstance(cell, dict):
        cell = cell.get("bytes")
    if isinstance(cell, list):
        cell = bytes(cell)
    if not isinstance(cell, bytes) or not cell:
        raise OSError(NO_IMAGE)
    return cell


def class_names(schema: pa.Schema) -> dict[str, list[str]]:
    """Return the names of class numbers, by column, as `datasets` writes them beside a schema."""
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
        return {
            column: list(map(str, feature["names"]))
            for column, feature in features.items()
            if isinstance(feature, dict) and isinstance(feature.get("names"), list)
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def plain_cells(opened: pq.ParquetFile, column: str) -> tuple[list[Any], str]:
    """Read a column of texts, numbers, truth values, or dates; a list or struct of one value is that value.

    Returns:
        The cells, and the reason why they cannot label images ("" if they can).
    """
    kind = opened.schema_arrow.field(column).type
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        if kinds.is_nested(kind.value_type) or kinds.is_floating(kind.value_type):
            return [], "it holds lists"
        cells = opened.read(columns=[column]).column(0).to_pylist()
        if any(cell is not None and len(cell) > 1 for cell in cells):
            return [], "it holds lists of several values"
        return [cell[0] if cell else None for cell in cells], ""
    if kinds.is_struct(kind):
        if kind.num_fields != 1 or kinds.is_nested(kind[0].type):
            return [], "it holds records of several values"
        cells = opened.read(columns=[column]).column(0).to_pylist()
        return [next(iter(cell.values())) if cell else None for cell in cells], ""
    if not is_plain(kind):
        return [], "it is empty" if kinds.is_null(kind) else "it holds neither text nor numbers"
    value = kind.value_type if kinds.is_dictionary(kind) else kind
    cells = opened.read(columns=[column]).column(0).to_pylist()
    if kinds.is_floating(value) or kinds.is_decimal(value):
        cells = [None if cell is None or cell != cell else float(cell) for cell in cells]
        if all(cell is None or cell.is_integer() for cell in cells):
            cells = [None if cell is None else int(cell) for cell in cells]
    return cells, ""


def plain_cell(cell: Any) -> Any:
    """Return a text, number, truth value, or None as it is, and any other value as text."""
    return cell if cell is None or isinstance(cell, str | int | float | bool) else str(cell)


def is_plain(kind: pa.DataType) -> bool:
    """Tell whether cells of an Arrow type are texts, numbers, truth values, or dates."""
    kind = kind.value_type if kinds.is_dictionary(kind) else kind
    binary = (kinds.is_binary, kinds.is_large_binary, kinds.is_binary_view, kinds.is_fixed_size_binary)
    return not (kinds.is_nested(kind) or kinds.is_null(kind) or any(test(kind) for test in binary))


def _by_name(
    cells: list[Any], names: Sequence[Sequence[str]], counts: Sequence[int], column: str, source: str
) -> tuple[tuple[str, ...], list[int | None]]:
    """Number the classes of all files by name: the files' own lists may differ in order."""
    number: dict[str, int] = {}
    for file_names in names:
        for name in file_names:
            number.setdefault(name, len(number))
    numbers: list[int | None] = []
    rows = iter(cells)
    for file_names, count in zip(names, counts, strict=True):
        for _ in range(count):
            cell = next(rows)
            if cell is None or cell == -1:
                numbers.append(None)
            elif not isinstance(cell, int) or not 0 <= cell < len(file_names):
                raise InputError(
                    f"The column {column!r} of {source!r} has the class number {cell}, but names of only "
                    f"{len(file_names)} classes."
                )
            else:
                numbers.append(number[file_names[cell]])
    return tuple(number), numbers


class ImageColumn:
    """Encoded images by row. Rows are read in batches: the next rows are cheap, earlier ones begin again."""

    def __init__(self, files: Sequence[File], column: str, counts: Sequence[int]) -> None:
        self._files, self._column, self._counts = files, column, counts
        self._clear()

    def _clear(self) -> None:
        self._lock, self._process = threading.Lock(), os.getpid()
        self._file = self._first = -1
        self._batch: Any = ()
        self._batches: Iterator[Any] = iter(())

    def __getstate__(self) -> dict[str, Any]:
        return {"_files": self._files, "_column": self._column, "_counts": self._counts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._clear()

    def __call__(self, row: int) -> bytes:
        if self._process != os.getpid():  # a forked process shares the position in the file
            self._clear()
        with self._lock:
            file = 0
            while row >= self._counts[file]:
                row -= self._counts[file]
                file += 1
            try:
                if file != self._file or row < self._first:
                    self._start(file, row)
                while row >= self._first + len(self._batch):
                    self._first += len(self._batch)
                    self._batch = next(self._batches).column(0)
                return image_bytes(self._batch[row - self._first].as_py())
            except (pa.ArrowException, StopIteration) as error:
                self._file = -1
                raise OSError(f"the Parquet file cannot be read: {str(error)[:200]}") from None

    def _start(self, file: int, row: int) -> None:
        opened = open_file(self._files[file])
        about, group, first = opened.metadata, 0, 0
        while row >= first + about.row_group(group).num_rows:
            first += about.row_group(group).num_rows
            group += 1
        self._file, self._first, self._batch = file, first, ()
        self._batches = batches(opened, [self._column], range(group, about.num_row_groups))


def batches(opened: pq.ParquetFile, columns: Sequence[str], groups: Sequence[int]) -> Iterator[Any]:
    """Read some row groups in batches of roughly `MOST_BYTES`."""
    about = opened.metadata
    size = sum(about.row_group(group).total_byte_size for group in groups)
    rows = sum(about.row_group(group).num_rows for group in groups)
    at_once = max(1, min(MOST_ROWS, MOST_BYTES * rows // max(1, size)))
    return iter(opened.iter_batches(at_once, row_groups=list(groups), columns=list(columns)))
