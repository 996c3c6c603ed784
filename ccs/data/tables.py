"""Read tables of text strictly, and match the paths in them with files."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile

from ccs.data.files import SPLITS, normalized
from ccs.errors import InputError
from ccs.files import as_text, csv_rows

PATHS = ("file", "file_name", "filename", "img_filename", "path", "image", "video", "video_id")
"""The columns that may hold the path of a row's file, the first first."""
Row = dict[str, str]


def read_rows(data: bytes, name: str) -> list[Row]:
    """Read a table as rows of text: CSV with a header, or JSON objects, one per line.

    Args:
        data: The file's bytes.
        name: Its name in messages; the ending `.jsonl` means JSON.

    Returns:
        The rows, all with the same columns; in JSON a cell that is a list or object counts as empty.

    Raises:
        InputError: If it isn't UTF-8, isn't such a table, or a row has more or fewer cells than the header.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name} cannot be read as a table in UTF-8 (byte {error.start}).") from None
    if not name.lower().endswith(".jsonl"):
        return csv_rows(text, name)
    try:
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise InputError(f"{name} has a line that is no JSON ({error}).") from None
    if not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{name} has a line that is no JSON object.")
    columns = dict.fromkeys(column for row in rows for column in row)
    return [{column: _cell_text(row.get(column)) for column in columns} for row in rows]


def _cell_text(cell: object) -> str:
    return "" if cell is None or isinstance(cell, list | dict) else str(cell).strip()


def path_column(rows: Sequence[Row], name: str) -> str:
    """Return the column that holds the paths of files.

    Args:
        rows: The rows of a table.
        name: Its name in messages.

    Raises:
        InputError: If there is none.
    """
    columns = list(rows[0]) if rows else []
    for column in PATHS:
        if column in columns:
            return column
    listed = f"it has {', '.join(columns)}" if rows else "it has no rows"
    raise InputError(f"{name} needs a column `file`, columns of labels, and commas between; {listed[:200]}.")


def match(
    rows: Sequence[str], files: Iterable[str], name: str, key: Callable[[str], str] = str
) -> list[str | None]:
    """Find each row's file: that path, or the longest end of it that fits one file alone.

    Args:
        rows: Paths as a table has them.
        files: The paths of the files that are there.
        name: The table's name in messages.
        key: What of a path is compared, after normalizing.

    Returns:
        The path of each row's file, None for a file that isn't there.

    Raises:
        InputError: If two files fit a row equally well, or two rows name the same file.
    """
    by_path: dict[str, list[str]] = defaultdict(list)
    by_name: dict[str, list[tuple[list[str], str]]] = defaultdict(list)
    for file in files:
        path = key(normalized(file))
        by_path[path].append(file)
        by_name[path.rpartition("/")[2]].append((path.split("/"), file))
    row_of: dict[str, str] = {}
    matched: list[str | None] = []
    for row in rows:
        path = key(normalized(row))
        fitting = by_path.get(path) or _longest_end(path.split("/"), by_name[path.rpartition("/")[2]])
        if len(fitting) > 1:
            raise InputError(
                f"{name} has {as_text(row)[:200]!r}, which fits two files, {as_text(fitting[0])} and "
                f"{as_text(fitting[1])}: write more of its path."
            )
        matched.append(fitting[0] if fitting else None)
        if fitting and fitting[0] in row_of:
            raise InputError(
                f"{name} names {as_text(fitting[0])} twice, as {row_of[fitting[0]]!r} and {row!r}; an image "
                "has one row."
            )
        row_of |= dict.fromkeys(fitting, row)
    return matched


def _longest_end(parts: list[str], candidates: Iterable[tuple[list[str], str]]) -> list[str]:
    """Return the files that share the longest end with a path, without those of another split."""
    by_length: dict[int, list[str]] = defaultdict(list)
    for file_parts, file in candidates:
        pairs = zip(reversed(parts), reversed(file_parts), strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        above = [SPLITS.get(part.casefold()) for part in (*parts[:-shared][-1:], *file_parts[:-shared][-1:])]
        if len(above) < 2 or None in above or above[0] == above[1]:
            by_length[shared].append(file)
    return by_length[max(by_length)] if by_length else []
