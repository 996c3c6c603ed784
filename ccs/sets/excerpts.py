"""Excerpts: a few hundred rows of a set on the Hub, fetched once by ranges of its parquet file, and kept.

An excerpt of people is a fixed list of rows (`<name>.csv`, which holds no image): the first rows of every
race and gender in the order of the published labels, as many of each, interleaved so that its beginning is
balanced too. The same rule picks them from the Hub's file; where it picks others, since the file has another
order, the source says so. Any other excerpt is a set's first rows. Row groups are read one by one, from the
first, and as far as the rows need; behind the gate, as strangers' files are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from ccs import gate
from ccs.errors import InputError
from ccs.files import atomic_write, endpoint
from ccs.progress import BAR
from ccs.sets import DatasetRecord
from ccs.sets.fetching import explained
from ccs.sets.rows import Rows
from ccs.sets.strangers import MAX_BYTES, hub_file, parquet_files

CELLS = ("race", "gender")


def kept(record: DatasetRecord) -> Path:
    """The file in which the excerpt is kept once it has been fetched."""
    from huggingface_hub import constants

    return Path(constants.HF_HOME) / "clip-ccs" / "excerpts" / f"{record.name}.parquet"


def rows(record: DatasetRecord) -> Rows:
    """The excerpt's rows, fetched now where they are not kept. Raises InputError."""
    from pyarrow.parquet import read_table

    if not kept(record).exists():
        with BAR.get()(total=100, desc=record.name) as bar:
            done = 0
            for share in fetch(record):
                bar.update(round(100 * share) - done)
                done = round(100 * share)
    table = read_table(kept(record))
    columns: dict[str, list[Any]] = table.to_pydict()
    images = columns.pop(record.image)
    source = table.schema.metadata[b"source"].decode()
    return Rows(record.name, source, len(images), images.__getitem__, columns)


def fetch(record: DatasetRecord) -> Iterator[float]:
    """Fetch the excerpt and keep it: yields the share that is done. Raises InputError."""
    import pyarrow as pa
    from pyarrow.parquet import write_table

    assert record.hub is not None
    listed = listed_rows(record)
    needed = max(listed, default=record.excerpt - 1) + 1
    with explained(record.name, record.hub):
        commit, paths = parquet_files(record.hub, record.split, f"{record.config or ''}/".lstrip("/"))
    images: list[bytes | str] = []
    columns: defaultdict[str, list[str]] = defaultdict(list)
    group, chosen = 0, None
    while chosen is None:
        yield min(0.99, len(images) / needed)
        new, told, classes, _ = gate.run(
            hub_file, record.hub, commit, paths[0], endpoint(), MAX_BYTES, record.kind != "images", [group],
            what=record.name, seconds=60, memory=MAX_BYTES, answer=MAX_BYTES // 4,
        )  # fmt: skip
        images += new
        for column, cells in told.items():
            names = classes.get(column)
            columns[column] += [str(names[cell] if names else cell) for cell in cells]
        if not new or sum(map(len, images)) > MAX_BYTES // 4:
            raise InputError(
                f"{record.hub} does not hold the {record.excerpt} rows of {record.name} any more."
            )
        group += 1
        if len(images) >= needed:
            cells = list(zip(*(columns[name] for name in CELLS), strict=True)) if listed else []
            chosen = balanced_rows(cells, record.excerpt) if listed else list(range(record.excerpt))
    if why := next((found for row in chosen if isinstance(found := images[row], str)), ""):
        raise InputError(f"{record.name} has a row that is no image: {why}.")
    as_listed = "" if chosen == listed or not listed else ", its rows in another order than the list’s"
    source = f"{record.title}: {record.address} at {commit[:12]}{as_listed}, {record.licence}"
    table = pa.table(
        {
            record.image: pa.array([images[row] for row in chosen], pa.binary()),
            **{name: [cells[row] for row in chosen] for name, cells in columns.items()},
        }
    )
    with atomic_write(kept(record)) as path:
        write_table(table.replace_schema_metadata({"source": source}), path)
    yield 1.0


def listed_rows(record: DatasetRecord) -> list[int]:
    """The rows of the list that ships; none where the excerpt is a set's first rows."""
    if not record.groups:
        return []
    text = files(__package__).joinpath(f"{record.name}.csv").read_text("utf-8")
    return [int(line) for line in text.split()[1:]]


def balanced_rows(cells: Sequence[tuple[str, ...]], n: int) -> list[int] | None:
    """The rule of the list: of every race and gender the first rows, `n` in all, the groups in turn.

    cells: race and gender of each row. Where `n` does not divide evenly, the last groups in the alphabet have
    one row less. None where a group has too few rows.
    """
    seen, ranked = Counter[tuple[str, ...]](), []
    for row, cell in enumerate(cells):
        ranked.append((seen[cell], cell, row))
        seen[cell] += 1
    chosen = sorted(ranked)[:n]
    full = len(chosen) == n and chosen[-1][0] == (n - 1) // len(seen)
    return [row for _, _, row in chosen] if full else None
