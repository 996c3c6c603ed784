"""Uploads, any dataset on the Hub, and excerpts of known sets, read in the sandbox.

The readers are those of local files, behind bounds on files, rows, and unpacked bytes. Only images' bytes
and plain cells come back from the sandbox. No path or address in a card or a row is followed, and no token is
sent.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ccs import sandbox
from ccs.data import DatasetRecord
from ccs.data.files import OnDisk, list_files
from ccs.data.hub import read_part
from ccs.data.layouts import read_files
from ccs.data.rows import Rows, of_plain
from ccs.errors import InputError
from ccs.files import atomic_write

MOST_FILES, MOST_BYTES = 2000, 64 * 2**20
"""The most that an upload may hold: images, and bytes once unpacked."""
MOST, MAX_BYTES = 5000, 2**30
"""The most that is read of a set on the Hub: images, and their bytes."""
PREFIX = "hf://datasets/"
"""The beginning of the address of an untrusted set on the Hub."""


def upload_rows(data: bytes, name: str) -> Rows:
    """Read an uploaded zip, laid out like a folder, or Parquet file.

    Args:
        data: The file.
        name: The set's name.

    Raises:
        InputError: If it is neither, or holds more than `MOST_FILES` images, or `MOST_BYTES` once unpacked.
    """
    fields = sandbox.run(_read_upload, data, title="The file", seconds=8, answer=MOST_BYTES + 2**22)
    return of_plain(fields, name, "the file")


def _read_upload(data: bytes) -> dict[str, Any]:
    files = list_files(partial(io.BytesIO, data), "the file")
    rows = read_files(files, DatasetRecord(name="the file", kind="bias"))
    if rows.count > MOST_FILES:
        raise InputError(f"The file holds {rows.count} images; at most {MOST_FILES} are accepted.")
    return replace(rows, source="The file").load(MOST_BYTES)


def hub_rows(record: DatasetRecord, max_rows: int | None) -> Rows | None:
    """Read rows of a set on the Hub that needn't be downloaded whole.

    These are part of an untrusted set, at most `MOST` rows, the excerpt of a known set, or a part of a large
    one.

    Args:
        record: The set's record.
        max_rows: The most rows; by default all.

    Returns:
        The rows; None for a set to download.

    Raises:
        InputError: If the set can't be reached or read.
    """
    if record.name.startswith(PREFIX):
        commit, fields = read_part(record, min(max_rows or MOST, MOST), MAX_BYTES)
        return of_plain(fields, record.name, f"{record.name} at {commit[:12]}")
    if record.excerpt:
        return _excerpt_rows(record)
    if not record.large or max_rows is None or record.names_file:
        return None
    commit, fields = read_part(record, max_rows)
    return of_plain(fields, record.name, f"{record.address} {commit}")


# Excerpts -------------------------------------------------------------------------------------------------

# An excerpt is fetched once, by ranges of a Parquet file, and kept. One of people has the first of every race
# and gender, in turn, so that its beginning is balanced too. Any other excerpt is a set's first rows.


def excerpt_file(record: DatasetRecord) -> Path:
    """Return the file in which the excerpt is kept once it has been fetched."""
    from huggingface_hub import constants

    return Path(constants.HF_HOME) / "clip-ccs" / "excerpts" / f"{record.name}.parquet"


def _excerpt_rows(record: DatasetRecord) -> Rows:
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
    commit, fields = read_part(replace(record, revision="main"), max_rows, MAX_BYTES, spaced=False)
    columns, images = fields["columns"], fields["read"]
    chosen: Sequence[int] | None = range(record.excerpt)
    if record.groups:
        chosen = balanced_rows(list(zip(columns["race"], columns["gender"], strict=True)), record.excerpt)
    if chosen is None or len(images) < record.excerpt:
        raise InputError(f"{record.hub} no longer holds the {record.excerpt} rows of {record.name}.")
    if broken := [row for row in chosen if isinstance(images[row], str)]:
        raise InputError(f"{record.name} has a row that is no image: {images[broken[0]]}.")
    source = f"{record.title}: {record.address} at {commit[:12]}, {record.license}"
    cells = {record.image: pa.array([images[row] for row in chosen], pa.binary())}
    cells |= {name: [column[row] for row in chosen] for name, column in columns.items()}
    with atomic_write(excerpt_file(record)) as path:
        write_table(pa.table(cells).replace_schema_metadata({"source": source}), path)


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
