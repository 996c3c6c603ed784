"""Rows of files from users and of any data set on the Hub, and excerpts of known sets, read in the sandbox.

The readers are those of one's own files, behind bounds on files, rows, and unpacked bytes. Only images' bytes
and plain cells come back from the sandbox. No path or address in a card or a row is followed, and no token is
sent.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from ccs import sandbox
from ccs.data import DatasetRecord
from ccs.data.decoding import FORMATS, problem
from ccs.data.files import File, list_files
from ccs.data.hub import Group, explained, files_at, in_memory, part_of, read_group
from ccs.data.local import read_files
from ccs.data.rows import Rows
from ccs.errors import InputError
from ccs.files import atomic_write, endpoint
from ccs.progress import Bar

MOST_FILES, MOST_BYTES = 2000, 64 * 2**20
"""The most that an upload may hold: images, and bytes once unpacked."""
MOST, MAX_BYTES = 5000, 2**30
"""The most that is read of a set on the Hub: images, and their bytes."""
MOST_COLUMNS = 20
"""The most columns that are read of an upload."""
CELLS = ("race", "gender")
"""What excerpts of people are balanced over."""
PREFIX = "hf://datasets/"
_ADDRESS = re.compile(rf"{PREFIX}([\w.-]{{1,96}}/[\w.-]{{1,96}})(?::([\w.-]{{1,96}}))?", re.ASCII)


def upload_rows(data: bytes, name: str) -> Rows:
    """Read an uploaded zip, laid out like a folder, or Parquet file.

    Args:
        data: The file.
        name: The set's name.

    Raises:
        InputError: If it is neither, or holds more than `MOST_FILES` images, or `MOST_BYTES` once unpacked.
    """
    images, names, fields = sandbox.run(_unpack, data, what="The file", seconds=8, answer=MOST_BYTES + 2**22)
    named = {"name_of": names.__getitem__} if names else {}
    return in_memory(name, "the file", images, fields | named | {"untrusted": True})


def _unpack(data: bytes) -> tuple[list[bytes | str], list[str], dict[str, Any]]:
    """Return a file's images, or why one can't be read, the rows' names, and plain fields of `Rows`."""
    from ccs.data.parquet import open_file, plain_cell

    files = list_files(data, "the file", MOST_FILES, MOST_BYTES)
    for path, file in files.by_path.items():
        if path.endswith(".parquet"):
            _require_few(open_file(file).metadata.num_rows)
    rows = read_files(files, DatasetRecord(name="the file", kind="bias"), labeled=True)
    _require_few(rows.count)
    images: list[bytes | str] = []
    room = MOST_BYTES
    for row in range(rows.count):
        try:
            image = rows.read(row)
        except OSError as error:
            images.append(error.strerror or str(error))
            continue
        room -= len(image)
        if room < 0:
            raise InputError(f"The file holds more than {MOST_BYTES >> 20} MB once unpacked.")
        images.append(problem(image, FORMATS) or image)
    cells = [(name, column) for name, column in rows.columns.items() if isinstance(column, list)]
    columns = {name: list(map(plain_cell, column)) for name, column in cells[:MOST_COLUMNS]}
    classes = {name: list(names) for name, names in rows.classes.items() if name in columns}
    fields = {"columns": columns, "classes": classes, "notes": rows.notes, "by_folder": rows.by_folder}
    unusable = dict(list(rows.unusable.items())[:MOST_COLUMNS])
    names = [rows.name_of(row) for row in range(rows.count)] if "file" in columns else []
    return images, names, fields | {"unusable": unusable}


def _require_few(count: int) -> None:
    if count > MOST_FILES:
        raise InputError(f"The file holds {count} images; at most {MOST_FILES} are accepted.")


# The Hub ----------------------------------------------------------------------------------------------------


def parse_address(text: str) -> tuple[str, str, str]:
    """Split [hf://datasets/]USER/NAME:SPLIT.

    Returns:
        The full address, the repository, and the split ("": `train` or all).

    Raises:
        InputError: If it is no such address.
    """
    found = _ADDRESS.fullmatch(f"{PREFIX}{text.strip().removeprefix(PREFIX)}")
    if found is None or ".." in found[1]:
        raise InputError(f"{text[:100]!r} is no data set of the Hub; these are written USER/NAME:SPLIT.")
    return found[0], found[1], found[2] or ""


def hub_rows(record: DatasetRecord, most: int | None) -> Rows:
    """Read at most `most` (or `MOST`) rows of an untrusted set. Raises InputError."""
    return replace(part_of(record, min(most or MOST, MOST), _in_sandbox, token=False), untrusted=True)


def _in_sandbox(
    record: DatasetRecord, commit: str, path: str, most: int, groups: Sequence[int] | None = None
) -> Group:
    group: Group = sandbox.run(
        read_group,
        *(record, commit, path, most, endpoint(), False, FORMATS, groups),
        what=record.name,
        seconds=60 + min(most, MOST) / 20,
        memory=MAX_BYTES + 2**30,
        answer=MAX_BYTES,
    )
    return group


# Excerpts ---------------------------------------------------------------------------------------------------

# An excerpt is fetched once, by ranges of a parquet file, and kept. One of people is a fixed list of rows
# (`<name>.csv`): the first of every race and gender in the order of the published labels, interleaved so that
# its beginning is balanced too. The same rule picks them from the Hub's file; where that has another order,
# the source says so. Any other excerpt is a set's first rows.


def excerpt_file(record: DatasetRecord) -> Path:
    """The file in which the excerpt is kept once it has been fetched."""
    from huggingface_hub import constants

    return Path(constants.HF_HOME) / "clip-ccs" / "excerpts" / f"{record.name}.parquet"


def excerpt_rows(record: DatasetRecord) -> Rows:
    """Read the excerpt's rows, fetched now if they aren't kept. Raises InputError."""
    from pyarrow.parquet import read_schema

    from ccs.data.parquet import read_parquet

    file = excerpt_file(record)
    if not file.exists():
        with Bar(total=100, desc=record.name, disable=None) as bar:
            for share in fetch_excerpt(record):
                bar.update(round(100 * share) - bar.n)
    source = read_schema(file).metadata[b"source"].decode()
    return read_parquet({file.name: File(str(file))}, record.name, source, record.image)


def fetch_excerpt(record: DatasetRecord) -> Iterator[float]:
    """Fetch the excerpt and keep it; yield the share that is done. Raises InputError."""
    import pyarrow as pa
    from pyarrow.parquet import write_table

    listed = listed_rows(record)
    needed = max(listed, default=record.excerpt - 1) + 1
    with explained(record.name, record.hub or ""):
        commit, paths = files_at(replace(record, revision="main"), token=False)
    images: list[bytes | str] = []
    columns: defaultdict[str, list[str]] = defaultdict(list)
    group, chosen = 0, None
    while chosen is None:
        yield min(0.99, len(images) / needed)
        new, new_cells, classes = _in_sandbox(record, commit, paths[0], MOST_BYTES, [group])
        images += new
        for column, cells in new_cells.items():
            names = classes.get(column)
            columns[column] += [str(names[cell] if names else cell) for cell in cells]
        if not new or sum(map(len, images)) > MAX_BYTES // 4:
            raise InputError(f"{record.hub} no longer holds the {record.excerpt} rows of {record.name}.")
        group += 1
        if len(images) >= needed:
            cells = list(zip(*(columns[name] for name in CELLS), strict=True)) if listed else []
            chosen = balanced_rows(cells, record.excerpt) if listed else list(range(record.excerpt))
    if reason := next((image for row in chosen if isinstance(image := images[row], str)), ""):
        raise InputError(f"{record.name} has a row that is no image: {reason}.")
    as_listed = "" if chosen == listed or not listed else ", its rows in another order than the list’s"
    source = f"{record.title}: {record.address} at {commit[:12]}{as_listed}, {record.license}"
    table = pa.table(
        {
            record.image: pa.array([images[row] for row in chosen], pa.binary()),
            **{name: [cells[row] for row in chosen] for name, cells in columns.items()},
        }
    )
    with atomic_write(excerpt_file(record)) as path:
        write_table(table.replace_schema_metadata({"source": source}), path)
    yield 1.0


def listed_rows(record: DatasetRecord) -> list[int]:
    """The rows of the list that ships; none where the excerpt is a set's first rows."""
    if not record.groups:
        return []
    text = resources.files(__package__).joinpath(f"{record.name}.csv").read_text("utf-8")
    return [int(line) for line in text.split()[1:]]


def balanced_rows(cells: Sequence[tuple[str, ...]], n: int) -> list[int] | None:
    """The rule of the list: of every race and gender (`cells`, by row) the first rows, `n` in all, the groups
    in turn; where they do not divide evenly, the last in the alphabet have one less. None where a group has
    too few.
    """
    seen, ranked = Counter[tuple[str, ...]](), []
    for row, cell in enumerate(cells):
        ranked.append((seen[cell], cell, row))
        seen[cell] += 1
    chosen = sorted(ranked)[:n]
    full = len(chosen) == n and chosen[-1][0] == (n - 1) // len(seen)
    return [row for _, _, row in chosen] if full else None
