"""Rows from files that a stranger may have written: uploads, any data set on the Hub, excerpts of known ones.

They are read in the sandbox (`ccs.sandbox`), and only images' bytes and plain cells come back. A card or
a row may name other files and addresses, which the library `datasets` would follow; here none is. No token is
sent.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from ccs import sandbox
from ccs.data import DatasetRecord
from ccs.data.decoding import FORMATS, problem
from ccs.data.hub import explained
from ccs.data.rows import IMAGE_COLUMNS, LABELS, Rows, members, of_files, spread
from ccs.errors import InputError
from ccs.files import atomic_write, endpoint
from ccs.progress import Bar

MOST_FILES, MOST_BYTES = 2000, 64 * 2**20
"""The most that an upload may hold: images, and bytes once unpacked."""
MOST, MAX_BYTES = 5000, 2**30
"""The most that is read of a set on the Hub: photographs, and their bytes."""
FILES = 4
"""The number of parquet files, evenly spaced, from which rows are read."""
CELLS = ("race", "gender")
"""What excerpts of people are balanced over."""
PREFIX = "hf://datasets/"
_ADDRESS = re.compile(rf"{PREFIX}([\w.-]{{1,96}}/[\w.-]{{1,96}})(?::([\w.-]{{1,96}}))?", re.ASCII)


def upload_rows(data: bytes, name: str) -> Rows:
    """A zip file laid out like a folder, or a parquet file, in memory. InputError for others, and for more
    than `MOST_FILES` images or `MOST_BYTES` bytes once unpacked.
    """
    return _rows(
        name, "the file", sandbox.run(_unpacked, data, what="The file", seconds=8, answer=MOST_BYTES)
    )


Unpacked = tuple[list[bytes | str], dict[str, list[Any]], dict[str, list[str]], list[str]]
"""What comes from the sandbox: images, or why one is none; columns; the names of classes; those of rows."""


def _rows(name: str, source: str, unpacked: Unpacked) -> Rows:
    images, columns, classes, called = unpacked
    names = called.__getitem__ if called else "row {}".format
    return Rows(name, source, len(images), partial(_whole, images), columns, classes, names, strange=True)


def _whole(images: Sequence[bytes | str], row: int) -> bytes:
    found = images[row]
    if isinstance(found, str):
        raise OSError(found)
    return found


def _unpacked(data: bytes) -> Unpacked:
    from pyarrow.parquet import ParquetFile

    file = io.BytesIO(data)
    if not data.startswith(b"PAR1"):
        return _read_zip(file)
    _require_few(ParquetFile(file).metadata.num_rows)
    return _read_parquet(file, MOST_FILES, labels=True)


def _image(data: bytes) -> bytes | str:
    return problem(data, FORMATS) or data


def _read_zip(file: io.BytesIO) -> Unpacked:
    with ZipFile(file) as archive:
        inside = members(archive)
        _require_few(len(inside))
        files = {path: partial(archive.read, one) for path, one in inside.items()}
        table = LABELS if LABELS in files else ""
        rows = of_files(files, "", "the file", lambda path: path.rpartition("/")[0].split("/")[0], table)
        images: list[bytes | str] = []
        for row in range(rows.count):
            try:
                images.append(_image(rows.read(row)))
            except FileNotFoundError as error:
                images.append(str(error.strerror))
        columns = {name: list(cells) for name, cells in rows.columns.items()}
        return images, columns, {}, [rows.called(row) for row in range(rows.count)]


def _require_few(count: int) -> None:
    if count > MOST_FILES:
        raise InputError(f"The file holds {count} images; at most {MOST_FILES} are accepted.")


def _read_parquet(
    opened: Any, wanted: int, labels: bool, row_groups: Sequence[int] | None = None
) -> Unpacked:
    """At most so many rows, from these row groups, as far as they are there, or else from evenly spaced ones;
    plain columns where labels are asked for.
    """
    from pyarrow.parquet import ParquetFile

    file = ParquetFile(opened)
    about, schema = file.metadata, file.schema_arrow
    image, plain = _image_column(schema), _plain_columns(schema) if labels else []
    groups = about.num_row_groups
    needed = -(-wanted // max(1, about.num_rows // max(1, groups)))
    chosen = list(spread(groups, min(groups, needed)))
    if row_groups is not None:
        chosen = [group for group in row_groups if group < groups]
    images: list[bytes | str] = []
    columns: dict[str, list[Any]] = {name: [] for name in plain}
    # Row by row, for a file may hold a cell once and repeat it in all rows.
    for batch in file.iter_batches(1, row_groups=chosen, columns=[image, *plain]):
        if len(images) == wanted:
            break
        (row,) = batch.to_pylist()
        cell = row[image]
        images.append(_image((cell.get("bytes") if isinstance(cell, dict) else cell) or b""))
        for name in plain:
            columns[name].append(row[name])
    told = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    features = told.get("info", {}).get("features", {})
    classes = {name: [str(one) for one in features.get(name, {}).get("names") or ()] for name in plain}
    fitting = {name: names for name, names in classes.items() if set(columns[name]) <= set(range(len(names)))}
    return images, columns, fitting, []


def _image_column(schema: Any) -> str:
    """The first column of records with bytes, or else a column of bytes, rather with a usual name."""
    import pyarrow as pa

    for column in schema:
        if pa.types.is_struct(column.type) and "bytes" in [inner.name for inner in column.type]:
            return str(column.name)
    binary = [column.name for column in schema if pa.types.is_binary(column.type)]
    for name in (*(name for name in IMAGE_COLUMNS if name in binary), *binary):
        return str(name)
    raise InputError(f"There is no column of images; the columns are {', '.join(schema.names)[:300]}.")


def _plain_columns(schema: Any) -> list[str]:
    """The columns of text, whole numbers and yes or no, at most twenty."""
    import pyarrow.types as kinds

    plain = (kinds.is_string, kinds.is_integer, kinds.is_boolean)
    return [str(column.name) for column in schema if any(kind(column.type) for kind in plain)][:20]


# The Hub ----------------------------------------------------------------------------------------------------


def parse_address(text: str) -> tuple[str, str, str]:
    """Full address, repository, split ("": `train` or any) of [hf://datasets/]USER/NAME:SPLIT. InputError."""
    found = _ADDRESS.fullmatch(f"{PREFIX}{text.strip().removeprefix(PREFIX)}")
    if found is None or ".." in found[1]:
        raise InputError(f"{text[:100]!r} is no data set of the Hub; these are written USER/NAME:SPLIT.")
    return found[0], found[1], found[2] or ""


def hub_rows(text: str, count: int | None, *, labels: bool) -> Rows:
    """At most `count` rows, from evenly spaced row groups of the split's parquet files, labels on request.
    InputError for an invalid address, and for a set that cannot be reached or holds no images.
    """
    (address, repository, split), wanted = parse_address(text), min(count or MOST, MOST)
    with explained(repository, repository, copy=False):
        commit, files = parquet_files(repository, split)
    chosen = [files[i] for i in spread(len(files), min(FILES, len(files)))]
    images: list[bytes | str] = []
    columns: dict[str, list[Any]] = {}
    classes: dict[str, list[str]] = {}
    with Bar(total=wanted, desc="photographs", unit="item", disable=None) as bar:
        for number, path in enumerate(chosen, 1):
            share = -(-wanted * number // len(chosen)) - len(images)
            room = MAX_BYTES - sum(map(len, images))
            new, told, named, _ = sandbox.run(
                hub_file,
                repository,
                commit,
                path,
                endpoint(),
                share,
                labels,
                what=address,
                seconds=60 + share / 20,
                memory=MAX_BYTES + 2**30,
                answer=room,
            )
            columns = {
                name: columns.get(name, []) + told[name] for name in told if name in columns or not images
            }
            images += new
            classes |= named
            bar.update(len(new))
    return _rows(address, f"{address} at {commit[:12]}", (images, columns, classes, []))


def hub_file(
    repository: str,
    commit: str,
    path: str,
    server: str,
    wanted: int,
    labels: bool,
    row_groups: Sequence[int] | None = None,
) -> Unpacked:
    """Rows of a parquet file on the Hub, of which only what they need is fetched; for the sandbox."""
    from huggingface_hub import HfFileSystem

    with explained(repository, repository, copy=False):
        system = HfFileSystem(endpoint=server, token=False, skip_instance_cache=True)
        with system.open(f"datasets/{repository}@{commit}/{path}", "rb", block_size=2**19) as opened:
            return _read_parquet(opened, wanted, labels, row_groups)


def parquet_files(repository: str, split: str, folder: str = "") -> tuple[str, list[str]]:
    """The commit, and the split's parquet files at that commit, of those in a folder."""
    from huggingface_hub import HfApi

    about = HfApi(endpoint=endpoint(), token=False).dataset_info(repository, timeout=10)
    files = [path for each in about.siblings or [] if (path := each.rfilename).endswith(".parquet")]
    for part in [split] if split else ["train", ""]:
        named = re.compile(rf"(^|[/_-]){re.escape(part)}([-_./]|$)")
        if fitting := sorted(path for path in files if path.startswith(folder) and named.search(path)):
            return str(about.sha), fitting
    raise InputError(f"{repository} holds no parquet files{f' of a split {split!r}' if split else ''}.")


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
    """The excerpt's rows, fetched now where they are not kept. Raises InputError."""
    from pyarrow.parquet import read_table

    if not excerpt_file(record).exists():
        with Bar(total=100, desc=record.name, disable=None) as bar:
            for share in fetch_excerpt(record):
                bar.update(round(100 * share) - bar.n)
    table = read_table(excerpt_file(record))
    columns: dict[str, list[Any]] = table.to_pydict()
    images = columns.pop(record.image)
    source = table.schema.metadata[b"source"].decode()
    return Rows(record.name, source, len(images), images.__getitem__, columns)


def fetch_excerpt(record: DatasetRecord) -> Iterator[float]:
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
        new, told, classes, _ = sandbox.run(
            hub_file,
            record.hub,
            commit,
            paths[0],
            endpoint(),
            MAX_BYTES,
            record.kind != "images",
            [group],
            what=record.name,
            seconds=60,
            memory=MAX_BYTES,
            answer=MAX_BYTES // 4,
        )
        images += new
        for column, cells in told.items():
            names = classes.get(column)
            columns[column] += [str(names[cell] if names else cell) for cell in cells]
        if not new or sum(map(len, images)) > MAX_BYTES // 4:
            raise InputError(f"{record.hub} no longer holds the {record.excerpt} rows of {record.name}.")
        group += 1
        if len(images) >= needed:
            cells = list(zip(*(columns[name] for name in CELLS), strict=True)) if listed else []
            chosen = balanced_rows(cells, record.excerpt) if listed else list(range(record.excerpt))
    if why := next((found for row in chosen if isinstance(found := images[row], str)), ""):
        raise InputError(f"{record.name} has a row that is no image: {why}.")
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
