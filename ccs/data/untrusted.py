"""Uploads, any dataset on the Hub, and excerpts of known sets, read in the sandbox.

The readers are those of local files, behind bounds on files, rows, and unpacked bytes. Only images' bytes
and plain cells come back from the sandbox. No path or address in a card or a row is followed, and no token is
sent.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ccs import sandbox
from ccs.data import DatasetRecord
from ccs.data.files import OnDisk, list_files
from ccs.data.hub import in_memory, part_of, plain_fields
from ccs.data.layouts import read_files
from ccs.data.rows import Rows
from ccs.errors import InputError
from ccs.files import atomic_write

MOST_FILES, MOST_BYTES = 2000, 64 * 2**20
"""The most that an upload may hold: images, and bytes once unpacked."""
MOST, MAX_BYTES = 5000, 2**30
"""The most that is read of a set on the Hub: images, and their bytes."""
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
    fields = sandbox.run(_upload_fields, data, title="The file", seconds=8, answer=MOST_BYTES + 2**22)
    return in_memory(name, "the file", fields)


def _upload_fields(data: bytes) -> dict[str, Any]:
    rows = read_files(list_files(data, "the file"), DatasetRecord(name="the file", kind="bias"))
    if rows.count > MOST_FILES:
        raise InputError(f"The file holds {rows.count} images; at most {MOST_FILES} are accepted.")
    return plain_fields(replace(rows, source="The file"), MOST_BYTES)


# The Hub --------------------------------------------------------------------------------------------------


def parse_address(text: str) -> tuple[str, str, str]:
    """Split [hf://datasets/]USER/NAME:SPLIT.

    Returns:
        The full address, the repository, and the split ("": `train` or all).

    Raises:
        InputError: If it is no such address.
    """
    match = _ADDRESS.fullmatch(f"{PREFIX}{text.strip().removeprefix(PREFIX)}")
    if match is None or ".." in match[1]:
        raise InputError(f"{text[:100]!r} is no dataset of the Hub; these are written USER/NAME:SPLIT.")
    return match[0], match[1], match[2] or ""


def hub_rows(record: DatasetRecord, max_rows: int | None) -> Rows:
    """Read part of an untrusted set.

    Args:
        record: The set's record.
        max_rows: The most rows, by default `MOST`, which are never exceeded.

    Raises:
        InputError: If the set can't be reached or read.
    """
    commit, fields = part_of(record, min(max_rows or MOST, MOST), MAX_BYTES)
    return in_memory(record.name, f"{record.name} at {commit[:12]}", fields)


# Excerpts -------------------------------------------------------------------------------------------------

# An excerpt is fetched once, by ranges of a Parquet file, and kept. One of people has the first of every race
# and gender, in turn, so that its beginning is balanced too. Any other excerpt is a set's first rows.


def excerpt_file(record: DatasetRecord) -> Path:
    """Return the file in which the excerpt is kept once it has been fetched."""
    from huggingface_hub import constants

    return Path(constants.HF_HOME) / "clip-ccs" / "excerpts" / f"{record.name}.parquet"


def excerpt_rows(record: DatasetRecord) -> Rows:
    """Read the excerpt's rows, fetched now if they aren't kept. Raises InputError."""
    from pyarrow.parquet import read_schema

    from ccs.data.parquet import read_parquet

    if not (file := excerpt_file(record)).exists():
        fetch_excerpt(record)
    source = read_schema(file).metadata[b"source"].decode()
    return read_parquet({file.name: OnDisk(str(file))}, record.name, source, record.image)


def fetch_excerpt(record: DatasetRecord) -> None:
    """Fetch the excerpt and keep it.

    Args:
        record: The record of its set.

    Raises:
        InputError: If it can't be fetched, or the set no longer has such rows.
    """
    import pyarrow as pa
    from pyarrow.parquet import write_table

    max_rows = record.excerpt * (2 if record.groups else 1)  # 42 of the rarest group are among 990 rows
    commit, fields = part_of(replace(record, revision="main"), max_rows, MAX_BYTES, spaced=False)
    columns, images = fields["columns"], fields["images"]
    chosen: Sequence[int] | None = range(record.excerpt)
    if record.groups:
        chosen = balanced_rows(list(zip(columns["race"], columns["gender"], strict=True)), record.excerpt)
    if chosen is None or len(images) < record.excerpt:
        raise InputError(f"{record.hub} no longer holds the {record.excerpt} rows of {record.name}.")
    if reason := next((image for row in chosen if isinstance(image := images[row], str)), ""):
        raise InputError(f"{record.name} has a row that is no image: {reason}.")
    metadata = {"source": f"{record.title}: {record.address} at {commit[:12]}, {record.license}"}
    cells = {record.image: pa.array([images[row] for row in chosen], pa.binary())}
    cells |= {name: [column[row] for row in chosen] for name, column in columns.items()}
    with atomic_write(excerpt_file(record)) as path:
        write_table(pa.table(cells).replace_schema_metadata(metadata), path)


def balanced_rows(groups: Sequence[tuple[str, ...]], n: int) -> list[int] | None:
    """Choose the first rows of every group, the groups in turn.

    Args:
        groups: Each row's group, such as race and gender.
        n: The number of rows; if it doesn't divide evenly, the last groups in the alphabet have one less.

    Returns:
        The rows, or None if a group has too few.
    """
    counts, ranked = Counter[tuple[str, ...]](), []
    for row, group in enumerate(groups):
        ranked.append((counts[group], group, row))
        counts[group] += 1
    chosen = sorted(ranked)[:n]
    is_full = len(chosen) == n and chosen[-1][0] == (n - 1) // len(counts)
    return [row for _, _, row in chosen] if is_full else None
