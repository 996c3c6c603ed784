"""Read images and columns from Parquet files. A path or address in a cell is never followed.

Rows are decoded in batches of at most 64 rows and about 32 MB, independent of the size of a row group. If a
writer puts a whole row group into one page, that page is in memory both compressed and uncompressed: a group
of 440 MB takes 1 GB (0.75 GB if its images can be compressed). A file with a group above 1 GB, which could
take 2.3 GB, is refused.
"""

import json
import os
import threading
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds

from ccs.data import DatasetRecord
from ccs.data.files import OnDisk, Opener
from ccs.data.rows import Rows, is_several, plain, spread, tidy
from ccs.errors import InputError

IMAGES = ("image", "img", "jpg", "png", "webp", "picture", "photo")
"""Usual names of a column of images, in order of preference."""
_BINARY = ("binary", "large_binary", "binary_view")
AT_ONCE, BATCH_BYTES, GROUP_BYTES = 64, 2**25, 2**30
"""Maximum number of rows decoded at once, roughly their maximum size, and the maximum size of a row group."""


_Group = tuple[int, Opener, int]
"""A row group: the number of its first row in the set, its file, and its number in the file."""


@lru_cache(maxsize=4)
def _open(opener: Opener, process: int) -> pq.ParquetFile:
    """Open a file, once per process. The pages of a file on disk are streamed."""
    if isinstance(opener, OnDisk):
        return pq.ParquetFile(opener.path, buffer_size=2**20, pre_buffer=False)
    return pq.ParquetFile(opener(), pre_buffer=False)


def read_parquet(
    files: Mapping[str, Opener], record: DatasetRecord, source: str, max_rows: int | None = None
) -> Rows:
    """Read the rows of Parquet files; images stay where they are.

    Args:
        files: The files by path, in order.
        record: The set's record. For unlabeled images (kind "images"), no other columns are read.
        source: The origin of the rows, for messages.
        max_rows: Maximum number of rows, the same number from each file, in evenly spaced row groups; by
            default all rows.

    Raises:
        InputError: If a file is broken or has a row group that is too large, if columns differ, or if none
            holds images.
    """
    groups: list[_Group] = []
    columns: dict[str, list[Any]] = {}
    classes: dict[str, dict[str, None]] = defaultdict(dict)
    images: list[str] = []
    all_names: list[str] = []
    total = 0
    try:
        for path, opener in files.items():
            opened = _open(opener, os.getpid())
            schema, listed = opened.schema_arrow, _class_names(opened.schema_arrow)
            images = images or image_columns(schema, record.image)
            names = [name for name in schema.names if record.kind != "images" or name == images[0]]
            if not all_names:
                all_names, columns = names, {name: [] for name in names if name not in images}
            if differing := {*names} ^ {*all_names} or (classes.keys() ^ {*listed} if groups else ()):
                raise ValueError(f"{path} and the first file differ in the column {min(differing)!r}")
            for name in listed:
                classes[name] |= dict.fromkeys(listed[name])
            metadata, first = opened.metadata, total
            count = metadata.num_rows if max_rows is None else -(-max_rows // len(files))
            for number in _choose_groups(metadata, count):  # a group's columns are next to each other
                groups.append((total, opener, number))
                total += metadata.row_group(number).num_rows
                table = opened.read_row_group(number, columns=[*columns])
                for name in table.column_names:
                    cells = [*map(plain, table.column(name).to_pylist())]
                    if any(map(is_several, cells)):
                        del columns[name]
                    else:
                        columns[name] += _by_name(cells, listed.get(name), f"{name!r} of {record.name!r}")
            total = min(total, first + count)
            columns = {name: cells[:total] for name, cells in columns.items()}
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        if hasattr(error, "response") or isinstance(error, InputError):  # the Hub failed, not the file
            raise
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{source!r} cannot be read as Parquet ({reason}).") from None
    unusable = [name for name in all_names if name not in (*columns, *images)]
    notes = tuple(f"the images of the column {name!r} are not used" for name in images[1:])
    class_names = {column: [*names] for column, names in classes.items()}
    read = ImageColumn(groups, images[0])
    rows = Rows(name=record.name, source=source, count=total, read=read, columns=columns)
    return replace(rows, classes=class_names, unusable=unusable, notes=notes)


def _choose_groups(metadata: pq.FileMetaData, count: int) -> range | list[int]:
    """Choose evenly spaced row groups of a file, enough for `count` rows if all have the same size."""
    sizes = [metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups)]
    if (largest := max(sizes, default=0)) > GROUP_BYTES:
        known = f"{largest >> 20:,} MB, and at most {GROUP_BYTES >> 20:,} MB are read"
        raise ValueError(f"a row group has {known}: write smaller ones, such as row_group_size=1000")
    return spread(len(sizes), -(-count * len(sizes) // max(1, metadata.num_rows)))


def image_columns(schema: pa.Schema, wanted: str = "image") -> list[str]:
    """List the columns of images: the preferred one first, then those with usual names, then others.

    Args:
        schema: The columns of the file.
        wanted: The preferred column.

    Raises:
        InputError: If there is no column of images.
    """
    columns = [column.name for column in schema if _holds_images(column.type)]
    if not columns:
        raise InputError(f"There is no column of images; the columns are {', '.join(schema.names)[:300]}.")
    return [*dict.fromkeys(name for name in (wanted, *IMAGES, *columns) if name in columns)]


def _holds_images(kind: pa.DataType) -> bool:
    if kinds.is_struct(kind):
        return bool(kind.get_field_index("bytes") >= 0)
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        return bool(kind.value_type == pa.uint8())
    return str(kind.value_type if kinds.is_dictionary(kind) else kind) in _BINARY


def _class_names(schema: pa.Schema) -> dict[str, list[str]]:
    """Return column -> class names, from the metadata that `datasets` writes into a schema."""
    with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        inner = {column: feature.get("feature", feature) for column, feature in features.items()}  # of lists
        listed = {column: feature["names"] for column, feature in inner.items() if "names" in feature}
        return {column: [*map(tidy, names)] for column, names in listed.items() if isinstance(names, list)}
    return {}


def _by_name(cells: list[Any], names: Sequence[str] | None, column: str) -> list[Any]:
    """Replace the class numbers of a column by names, if it has any, since the order may differ by file."""
    if names is None:
        return cells
    numbers = {cell for cell in cells if cell not in (None, -1)}
    if wrong := [cell for cell in numbers if not isinstance(cell, int) or not 0 <= cell < len(names)]:
        numbered = f"but its {len(names)} class names are numbered from 0"
        raise InputError(f"The column {column} has the class number {wrong[0]!r}, {numbered}.")
    return [names[cell] if cell in numbers else None for cell in cells]


class ImageColumn:
    """Encoded images by row. They are read in batches: later rows are cheap, an earlier row starts again.

    Args:
        groups: The row groups, in order.
        column: The column of images.
    """

    def __init__(self, groups: Sequence[_Group], column: str) -> None:
        self._groups, self._column = groups, column
        self._lock, self._process = threading.Lock(), os.getpid()
        self._group: _Group | None = None
        self._first, self._batch, self._batches = 0, (), iter(())  # an empty array would import pandas

    def __reduce__(self) -> tuple[Any, ...]:
        return ImageColumn, (self._groups, self._column)

    def __call__(self, row: int) -> bytes:
        """Read the encoded image of a row. Raises OSError if there is none, or only a path to one."""
        if self._process != os.getpid():  # a forked process shares the position in the file
            ImageColumn.__init__(self, self._groups, self._column)
        with self._lock:
            try:
                cell: Any = self._seek(row)[row - self._first].as_py()
            except (pa.ArrowException, StopIteration) as error:
                self._group = None
                raise OSError(f"the Parquet file cannot be read: {str(error)[:200]}") from None
        cell = cell.get("bytes") if isinstance(cell, dict) else cell
        if not cell or not isinstance(cell, bytes | list):
            raise OSError("no image in this row")
        return bytes(cell)

    def _seek(self, row: int) -> Any:
        """Return the batch with this row."""
        group = self._groups[bisect_right(self._groups, row, key=itemgetter(0)) - 1]
        if group is not self._group or row < self._first:
            self._first, opener, number = group
            file = _open(opener, os.getpid())
            size = file.metadata.row_group(number)
            at_once = max(1, min(AT_ONCE, BATCH_BYTES * size.num_rows // max(1, size.total_byte_size)))
            self._batches = file.iter_batches(at_once, [number], [self._column])
            self._group, self._batch = group, ()
        while row >= self._first + len(self._batch):
            self._first += len(self._batch)
            self._batch = next(self._batches).column(0)
        return self._batch
