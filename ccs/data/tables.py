"""Read tables of text strictly, and match the paths in them with files."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from ccs.data.files import SPLITS, normalized
from ccs.errors import InputError
from ccs.files import as_text, csv_rows

PATHS = ("file", "file_name", "filename", "path", "image", "video", "video_id")
"""The columns that may hold the path of a row's file, the first first."""
Row = dict[str, str]


def read_rows(data: bytes, name: str) -> list[Row]:
    """Read a table as rows of text: CSV with a header, or JSON objects, one per line.

    Args:
        data: The file's bytes.
        name: Its name in messages; the ending `.jsonl` means JSON.

    Raises:
        InputError: If it isn't UTF-8, isn't such a table, or a row has more or fewer cells than the header.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name} cannot be read as a table in UTF-8 (byte {error.start}).") from None
    return _json_rows(text, name) if name.lower().endswith(".jsonl") else csv_rows(text, name)


def _json_rows(text: str, name: str) -> list[Row]:
    rows = []
    for number, line in enumerate(filter(str.strip, text.splitlines()), 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError(f"{name} has no JSON in row {number} ({error}).") from None
        if not isinstance(row, dict):
            raise InputError(f"{name} has no JSON object in row {number}.")
        cells = {str(key): "" if cell is None else cell for key, cell in row.items()}
        rows.append(
            {key: str(cell).strip() for key, cell in cells.items() if not isinstance(cell, list | dict)}
        )
    columns = {key: None for row in rows for key in row}
    return [{key: row.get(key, "") for key in columns} for row in rows]


def path_column(rows: Sequence[Row], name: str) -> str:
    """Return the column that holds the paths of files. Raises InputError if there is none."""
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
    by_end: dict[str, list[tuple[list[str], str]]] = defaultdict(list)
    for listed in files:
        path = key(normalized(listed))
        by_path[path].append(listed)
        parts = path.split("/")
        by_end[parts[-1]].append((parts, listed))
    matched: list[str | None] = []
    row_of: dict[str, str] = {}
    for row in rows:
        path = key(normalized(row))
        fitting = by_path.get(path) or _longest_end(path.split("/"), by_end)
        if len(fitting) > 1:
            raise InputError(
                f"{name} has {as_text(row)[:200]!r}, which fits two files, {as_text(fitting[0])} and "
                f"{as_text(fitting[1])}: write more of its path."
            )
        file: str | None = fitting[0] if fitting else None
        if file is not None and file in row_of:
            raise InputError(
                f"{name} names {as_text(file)} twice, as {row_of[file]!r} and {row!r}; an image has one row."
            )
        if file is not None:
            row_of[file] = row
        matched.append(file)
    return matched


def _longest_end(parts: list[str], by_end: dict[str, list[tuple[list[str], str]]]) -> list[str]:
    """Return the files that share the longest end with a path, without those of another split."""
    longest, fitting = 0, list[str]()
    for file_parts, file in by_end.get(parts[-1], ()):
        shared = 0
        while shared < min(len(parts), len(file_parts)) and parts[-1 - shared] == file_parts[-1 - shared]:
            shared += 1
        before = [SPLITS.get(part.casefold()) for part in (*parts[:-shared][-1:], *file_parts[:-shared][-1:])]
        if len(before) == 2 and all(before) and before[0] != before[1]:
            continue
        if shared > longest:
            longest, fitting = shared, []
        if shared == longest:
            fitting.append(file)
    return fitting
