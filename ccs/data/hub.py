"""Sets on the Hub: the files of a pinned revision, parts of large or untrusted sets, excerpts, and videos.

An untrusted set is read in the sandbox, without a token. No path or address in a card or a row is followed.
"""

from __future__ import annotations

import glob
import re
import shutil
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from ccs import sandbox
from ccs.data import DatasetRecord
from ccs.data.files import VIDEOS, Files, OnDisk, list_files, splits_in
from ccs.data.rows import Rows, of_plain, spread
from ccs.errors import InputError
from ccs.files import atomic_write, endpoint

PREFIX = "hf://datasets/"
"""The beginning of the address of an untrusted dataset."""
MOST, MAX_BYTES = 5000, 2**30
"""The most that is read of an untrusted dataset: images, and their bytes."""
MOST_FILES = 4
"""The most Parquet files of which part is read."""
_ARCHIVE = re.compile(r"(.*\.(?:zip|tar))(?:\.part.*)?", re.IGNORECASE)
_NOT_NEEDED = re.compile(r"train|raw_data/", re.IGNORECASE)
_EXPLANATIONS = {
    "GatedRepoError": "is gated on the Hub: accept its terms at {hub!r} and log in with `hf auth login`",
    "RepositoryNotFoundError": "was not found on the Hub as {hub!r}: it may have been renamed, removed, or "
    "made private; look it up there",
    # ConnectError is httpx's or httpx2's, by huggingface_hub's version.
    "LocalEntryNotFoundError OfflineModeIsEnabled ConnectionError ConnectError": "cannot be fetched from the "
    "Hub ({hub}): there is no connection; try again",
    "RevisionNotFoundError EntryNotFoundError": "needs a file or revision that {hub!r} no longer has: look "
    "there for what replaces it",
    "HfHubHTTPError": "was refused by the Hub ({hub}, status {error.response.status_code}): try again later",
    "Exception": "could not be read from {hub!r} ({text}): check what is there",
}
"""Classes of errors of the Hub's client -> what to do; the first that is an error's is taken."""


@cache
def reachable(seconds: float) -> bool:
    """Return True if the Hub answers within that time, whatever the answer."""
    from huggingface_hub import get_session

    answers: list[bool] = []

    def ask() -> None:
        with suppress(Exception):  # the Hub's client raises dozens of exception types
            get_session().head(endpoint(), timeout=seconds)
            answers.append(True)

    asking = threading.Thread(target=ask, daemon=True)  # looking up a host name ignores the timeout
    asking.start()
    asking.join(seconds)
    return bool(answers)


@contextmanager
def explained(name: str, hub: str, *, copy: bool = True) -> Iterator[None]:
    """Turn errors of the Hub's client into an InputError that says what to do.

    Args:
        name: Name of what is fetched.
        hub: Its id on the Hub.
        copy: Whether a local copy could replace it.
    """
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:  # these libraries raise dozens of exception types
        kinds = {kind.__name__ for kind in type(error).__mro__}
        words = next(words for names, words in _EXPLANATIONS.items() if kinds & {*names.split()})
        words = words.format(hub=hub, error=error, text=" ".join(str(error).split())[:300])
        local = f", or put a local copy in $CCS_DATA/{name} (docs/datasets.md says how)" if copy else ""
        raise InputError(f"{name!r} {words}{local}.") from error


def download(record: DatasetRecord) -> Files:
    """Download the files of a dataset's configuration and split at its revision.

    Args:
        record: The set's record.

    Returns:
        The files, laid out as in the repository, with archives in numbered parts joined.

    Raises:
        InputError: If the set can't be reached or has no such files.
    """
    from huggingface_hub import constants, snapshot_download

    online = reachable(10)
    with explained(record.name, record.hub or ""):
        commit, paths = _data_files(record) if online else (record.revision, [])
        patterns = [glob.escape(path) for path in paths] or None
        options: dict[str, Any] = {"allow_patterns": patterns, "local_files_only": not online}
        folder = Path(snapshot_download(record.hub or "", repo_type="dataset", revision=commit, **options))
    files = list_files(folder, f"{record.address} {folder.name}")
    return _join_parts(files, Path(constants.HF_HOME) / "clip-ccs" / record.name / folder.name)


def _data_files(record: DatasetRecord, token: bool | None = None) -> tuple[str, list[str]]:
    """List the data files of a dataset's configuration and split, and the file of its classes' names.

    Returns the commit of its revision too. Without a split it is train, or if there is none, all. Of videos,
    these are the annotations, and loose videos or else archives. `token`: False to send none. Raises
    ValueError if there are no such files.
    """
    from huggingface_hub import HfApi

    api = HfApi(endpoint=endpoint(), token=token)
    repository_info = api.dataset_info(record.hub or "", revision=record.revision, timeout=10)
    commit = str(repository_info.sha)
    listed = sorted(part.rfilename for part in repository_info.siblings or [])
    if record.kind == "videos":
        listed = [path for path in listed if not _NOT_NEEDED.search(path)]
        loose = [path for path in listed if path.lower().endswith(VIDEOS)]
        return commit, [record.annotations, *(loose or filter(_ARCHIVE.fullmatch, listed))]
    data = [path for path in listed if path.lower().endswith((".parquet", ".tar"))]
    data = [path for path in data if record.config in path.split("/")[:-1]] or data
    split = record.split or "train"
    split_files = [path for path in data if split in splits_in(path) | set(re.split(r"[-_./]", path))]
    if split_files or split != "train":
        data = split_files
    if not data:
        raise ValueError(f"it holds no Parquet files of the split {split!r}")
    return commit, data + [path for path in listed if path == record.names]


def _join_parts(files: Files, home: Path) -> Files:
    """Join archives in numbered parts, once, in the folder `home`."""
    parts: dict[str, list[str]] = defaultdict(list)
    for path in files.openers:
        if (archive := _ARCHIVE.fullmatch(path)) and archive[1] != path:
            parts[archive[1]].append(path)
    for whole, paths in parts.items():
        if not (home / whole).exists():
            with atomic_write(home / whole) as temporary, temporary.open("wb") as joined:
                for path in paths:
                    with files.openers[path]() as part:
                        shutil.copyfileobj(part, joined)
    return replace(files, openers={**files.openers, **{whole: OnDisk(str(home / whole)) for whole in parts}})


def hub_rows(record: DatasetRecord, max_rows: int | None) -> Rows | None:
    """Read rows of a dataset on the Hub that needn't be downloaded whole.

    These are part of an untrusted dataset, at most `MOST` rows, the excerpt of a known dataset, or part of a
    large one.

    Args:
        record: The set's record.
        max_rows: Maximum number of rows; by default all.

    Returns:
        The rows; None for a set to download.

    Raises:
        InputError: If the set can't be reached or read.
    """
    if record.name.startswith(PREFIX):
        return _read_part(record, min(max_rows or MOST, MOST), MAX_BYTES)
    if record.excerpt:
        return _excerpt_rows(record)
    if not record.large or max_rows is None or record.names_file:
        return None
    return _read_part(record, max_rows)


def _read_part(record: DatasetRecord, max_rows: int, most_bytes: int = 0, *, spaced: bool = True) -> Rows:
    """Read part of a dataset from its Parquet files, of which only what is needed is fetched.

    Args:
        record: The set's record.
        max_rows: Maximum number of rows.
        most_bytes: Maximum number of bytes of all images of an untrusted dataset.
        spaced: Whether to read evenly spaced row groups of evenly spaced files, or the first rows.

    Raises:
        InputError: If the set can't be reached or read.
    """
    with explained(record.name, record.hub or "", copy=not most_bytes or bool(record.excerpt)):
        commit, listed = _data_files(record, token=False if most_bytes else None)
    paths = [path for path in listed if path.lower().endswith(".parquet")]
    paths = [paths[place] for place in spread(len(paths), min(MOST_FILES, max_rows) if spaced else 1)]
    paths = [f"datasets/{record.hub}@{commit}/{path}" for path in paths]
    read = partial(_read_remote, record, paths, max_rows, endpoint(), most_bytes, spaced=spaced)
    if most_bytes:
        limits: dict[str, Any] = {"memory": most_bytes + 2**30, "answer": most_bytes + 2**24}
        read = partial(sandbox.run, read, title=record.name, seconds=60 + max_rows / 20, **limits)
    return of_plain(read(), record.name, f"{record.address} {commit}")


def _read_remote(
    record: DatasetRecord, paths: Sequence[str], max_rows: int, server: str, most_bytes: int, *, spaced: bool
) -> dict[str, Any]:
    """Read rows of these files; server: the Hub's address, which a sandbox may not know yet."""
    from huggingface_hub import HfFileSystem

    from ccs.data.parquet import read_parquet

    with explained(record.name, record.hub or "", copy=not most_bytes):
        token = False if most_bytes else None
        system = HfFileSystem(endpoint=server, token=token, skip_instance_cache=True)
        files = {path: partial(system.open, path, mode="rb", block_size=2**19) for path in paths}
        return read_parquet(files, record, record.name, max_rows, spaced=spaced).load(most_bytes)


# Excerpts -------------------------------------------------------------------------------------------------

# An excerpt is fetched once, by ranges of a Parquet file, and kept. One of people has the first of every race
# and gender, in turn, so that its beginning is balanced too. Any other excerpt is a dataset's first rows.


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
    return read_parquet({file.name: OnDisk(str(file))}, record, source)


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
    rows = _read_part(replace(record, revision="main"), max_rows, MAX_BYTES, spaced=False)
    chosen = list(range(min(rows.count, record.excerpt)))
    if record.groups:
        groups = list(zip(rows.columns["race"], rows.columns["gender"], strict=True))
        chosen = balanced_rows(groups, record.excerpt)
    if len(chosen) < record.excerpt:
        raise InputError(f"{record.hub} no longer holds the {record.excerpt} rows of {record.name}.")
    try:
        cells = {record.image: pa.array([rows.read(row) for row in chosen], pa.binary())}
    except OSError as error:
        raise InputError(f"{record.name} has a row that isn't an image: {error}.") from None
    cells |= {name: [column[row] for row in chosen] for name, column in rows.columns.items()}
    source = {"source": f"{record.title}: {rows.source}, {record.license}"}
    with atomic_write(excerpt_file(record)) as path:
        write_table(pa.table(cells).replace_schema_metadata(source), path)


def balanced_rows(groups: Sequence[tuple[str, ...]], n: int) -> list[int]:
    """Choose the first rows of every group, the groups in turn.

    Args:
        groups: Each row's group, such as race and gender.
        n: The number of rows; if it doesn't divide evenly, the last groups in the alphabet have one less.

    Returns:
        The rows, or none if a group has too few.
    """
    counts, ranked = Counter[tuple[str, ...]](), []
    for row, group in enumerate(groups):
        ranked.append((counts[group], group, row))
        counts[group] += 1
    chosen = sorted(ranked)[:n]
    is_full = len(chosen) == n and chosen[-1][0] == (n - 1) // len(counts)
    return [row for _, _, row in chosen] if is_full else []
