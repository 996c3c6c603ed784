"""Read tables of text strictly, and match the paths in them with files."""

import json
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any

from ccs.data.files import SPLITS
from ccs.errors import InputError
from ccs.files import as_text, csv_rows

PATHS = ("file", "file_name", "filename", "img_filename", "path", "image", "video", "video_id")
"""The columns that may hold the path of a row's file, the first first."""


def read_rows(data: bytes, name: str) -> list[dict[str, Any]]:
    """Read the rows of a CSV with a header, of a JSON list of objects, or of JSON objects, one per line.

    Args:
        data: The file's bytes.
        name: Its name in messages; the endings `.json` and `.jsonl` mean JSON.

    Raises:
        InputError: If it isn't UTF-8, isn't such a table, or a row has more or fewer cells than the header.
    """
    try:
        text = data.decode("utf-8-sig")
        if name.lower().endswith(".json"):
            return [*map(dict, json.loads(text))]
        if name.lower().endswith(".jsonl"):
            return [dict(json.loads(line)) for line in text.splitlines() if line.strip()]
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} cannot be read as objects or a table in UTF-8 ({error}).") from None
    return [*csv_rows(text, name)]


def match(
    rows: Sequence[str], files: Iterable[str], name: str, endings: tuple[str, ...] = ()
) -> list[str | None]:
    """Find each row's file: that path, or the longest end of it that fits one file alone.

    Args:
        rows: Paths as a table has them.
        files: The paths of the files that are there.
        name: The table's name in messages.
        endings: Endings of files that make no difference.

    Returns:
        The path of each row's file, None for a file that isn't there.

    Raises:
        InputError: If two files fit a row equally well, or two rows name the same file.
    """
    by_name: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for file in files:
        parts = _parts(file, endings)
        by_name[parts[0]][file] = parts
    row_of: dict[str | None, str] = {}
    matched: list[str | None] = []
    for row in rows:
        parts = _parts(row, endings)
        fits = {file: _fit(parts, file_parts) for file, file_parts in by_name[parts[0]].items()}
        longest = max(fits.values(), default=0)
        best = [file for file, fit in fits.items() if fit == longest > 0]
        if len(best) > 1:
            fit = f"{as_text(row)[:200]!r} fits two files, {' and '.join(map(as_text, best[:2]))}"
            raise InputError(f"{name}: {fit}; write more of its path.")
        fitting = best[0] if best else None
        if fitting and fitting in row_of:
            twice = f"{as_text(fitting)} twice, as {row_of[fitting]!r} and {row!r}"
            raise InputError(f"{name} names {twice}; an image has one row.")
        row_of[fitting] = row
        matched.append(fitting)
    return matched


def _parts(path: str, endings: tuple[str, ...]) -> list[str]:
    """Return a path's parts, the last first: one kind of slash, no ".", no space around, Unicode composed."""
    path = unicodedata.normalize("NFC", path.strip().replace("\\", "/"))
    if path.lower().endswith(endings):
        path = path.rpartition(".")[0]
    *folders, name = path.split("/")
    return [name, *[part for i, part in enumerate(folders) if part != "." and (part or i == 0)][::-1]]


def _fit(parts: Sequence[str], file_parts: Sequence[str]) -> int:
    """Return the number of parts that two paths share at their end, more if all, 0 for another split's."""
    pairs = zip(parts, file_parts, strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    if shared == len(parts) == len(file_parts):
        return shared + 1
    above = {SPLITS.get(side[shared].casefold(), "") for side in (parts, file_parts) if len(side) > shared}
    return 0 if len(above) == 2 and "" not in above else shared
