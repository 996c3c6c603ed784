"""Fetch sets from the Hub: files of a pinned revision, parts of large sets, and videos."""

from __future__ import annotations

import glob
import re
import shutil
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from ccs import sandbox
from ccs.data import DatasetRecord
from ccs.data.clips import file_of
from ccs.data.files import VIDEOS, Files, OnDisk, list_files, splits_in
from ccs.data.rows import spread
from ccs.data.tables import read_rows
from ccs.errors import InputError
from ccs.files import atomic_write, endpoint

MOST_FILES = 4
"""The most Parquet files of which part is read."""
_ARCHIVE = re.compile(r"(.*\.(?:zip|tar))(?:\.part.*)?", re.IGNORECASE)
_NOT_NEEDED = re.compile(r"train|raw_data/", re.IGNORECASE)


def reachable(seconds: float) -> bool:
    """Return True if the Hub answers within that time, whatever the answer."""
    from huggingface_hub import get_session

    answers: list[bool] = []

    def ask() -> None:
        with suppress(Exception):  # the Hub's client raises dozens of kinds
            get_session().head(endpoint(), timeout=seconds)
            answers.append(True)

    asking = threading.Thread(target=ask, daemon=True)  # looking up a host name ignores the timeout
    asking.start()
    asking.join(seconds)
    return bool(answers)


@cache
def connected() -> None:
    """Look once whether the Hub answers; if not, restrict its client to its cache."""
    from huggingface_hub import constants

    constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE or not reachable(10)


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
    except Exception as error:  # these libraries raise dozens of kinds
        local = f", or put a local copy in $CCS_DATA/{name} (docs/datasets.md says how)" if copy else ""
        raise InputError(f"{name!r} {_explanation(error, hub)}{local}.") from error


def _explanation(error: Exception, hub: str) -> str:
    import huggingface_hub.errors as of_hub
    from huggingface_hub import constants

    # ConnectError is httpx's or httpx2's, by huggingface_hub's version.
    unreached = constants.HF_HUB_OFFLINE or type(error).__name__ == "ConnectError"
    match error:
        case of_hub.GatedRepoError():
            return f"is gated on the Hub: accept its terms at {hub!r} and log in with `hf auth login`"
        case of_hub.RepositoryNotFoundError():
            place = f"was not found on the Hub as {hub!r}"
            return f"{place}: it may have been renamed, removed or made private; look it up there"
        case ConnectionError() | of_hub.OfflineModeIsEnabled() | of_hub.LocalEntryNotFoundError():
            unreached = True
    if unreached:
        return f"cannot be fetched from the Hub ({hub}): there is no connection; try again"
    if isinstance(error, of_hub.RevisionNotFoundError | of_hub.EntryNotFoundError):
        return f"needs a file or revision that {hub!r} no longer has: look there for what replaces it"
    if isinstance(error, of_hub.HfHubHTTPError):
        return f"was refused by the Hub ({hub}, status {error.response.status_code}): try again later"
    return f"could not be read from {hub!r} ({' '.join(str(error).split())[:300]}): check what is there"


def download(record: DatasetRecord) -> Files:
    """Download the files of a set's configuration and split at its revision.

    Args:
        record: The set's record.

    Returns:
        The files, laid out as in the repository, with archives in numbered parts joined.

    Raises:
        InputError: If the set can't be reached or has no such files.
    """
    from huggingface_hub import constants

    connected()
    with explained(record.name, record.hub or ""):
        commit, paths = record.revision, list[str]()
        if not constants.is_offline_mode():
            commit, paths = (_video_files if record.kind == "videos" else _data_files)(record)
        folder = _snapshot(record, commit, paths)
    files = list_files(folder, f"{record.address} {folder.name}")
    return _join_parts(files, Path(constants.HF_HOME) / "clip-ccs" / record.name / folder.name)


def _snapshot(record: DatasetRecord, commit: str, paths: Sequence[str]) -> Path:
    """Download these files of a repository, or what is in the cache if there are none."""
    from huggingface_hub import snapshot_download

    patterns = [glob.escape(path) for path in paths] or None
    repository, kind = record.hub or "", "dataset"
    return Path(snapshot_download(repository, repo_type=kind, revision=commit, allow_patterns=patterns))


def _data_files(record: DatasetRecord, token: bool | None = None) -> tuple[str, list[str]]:
    """List the data files of a set's configuration and split, and the file of its classes' names.

    Returns the commit of its revision too. Without a split it is train, or if there is none, all. `token`:
    False to send none. Raises ValueError if there are no such files.
    """
    from huggingface_hub import HfApi

    api = HfApi(endpoint=endpoint(), token=token)
    repository_info = api.dataset_info(record.hub or "", revision=record.revision, timeout=10)
    listed = sorted(part.rfilename for part in repository_info.siblings or [])
    data = [path for path in listed if path.lower().endswith((".parquet", ".tar"))]
    data = [path for path in data if record.config in path.split("/")[:-1]] or data
    split = record.split or "train"
    split_files = [path for path in data if split in splits_in(path) | set(re.split(r"[-_./]", path))]
    if split_files or split != "train":
        data = split_files
    if not data:
        raise ValueError(f"it holds no Parquet files of the split {split!r}")
    return str(repository_info.sha), data + [path for path in listed if path == record.names]


def _video_files(record: DatasetRecord) -> tuple[str, list[str]]:
    """List a set's annotations, and the loose videos that they name or else the archives, with the commit."""
    from huggingface_hub import HfApi

    folder = _snapshot(record, record.revision, [record.annotations])
    listed = HfApi().list_repo_files(record.hub or "", repo_type="dataset", revision=folder.name)
    listed = [path for path in listed if not _NOT_NEEDED.search(path)]
    entries = read_rows((folder / record.annotations).read_bytes(), record.annotations)
    wanted = {Path(file_of(entry)).stem for entry in entries}
    loose = [path for path in listed if path.lower().endswith(VIDEOS) and Path(path).stem in wanted]
    return folder.name, [record.annotations, *(loose or filter(_ARCHIVE.fullmatch, listed))]


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


def read_part(
    record: DatasetRecord, max_rows: int, most_bytes: int = 0, *, spaced: bool = True
) -> tuple[str, dict[str, Any]]:
    """Read part of a set from its Parquet files, of which only what is needed is fetched.

    Args:
        record: The set's record; of images without labels, no columns are read.
        max_rows: The most rows.
        most_bytes: The most bytes of all images of an untrusted set, which is read in the sandbox, and to
            which no token is sent.
        spaced: Whether to read evenly spaced row groups of evenly spaced files, or the first rows.

    Returns:
        The commit, and the rows as `Rows.load` returns them.

    Raises:
        InputError: If the set can't be reached or read.
    """
    with explained(record.name, record.hub or "", copy=not most_bytes or bool(record.excerpt)):
        commit, listed = _data_files(record, token=False if most_bytes else None)
    paths = [path for path in listed if path.lower().endswith(".parquet")]
    paths = [paths[place] for place in spread(len(paths), min(MOST_FILES, max_rows) if spaced else 1)]
    paths = [f"datasets/{record.hub}@{commit}/{path}" for path in paths]
    read = partial(_read_remote, record, paths, max_rows, endpoint(), most_bytes, spaced=spaced)
    if not most_bytes:
        return commit, read()
    seconds, memory, answer = 60 + max_rows / 20, most_bytes + 2**30, most_bytes + 2**24
    return commit, sandbox.run(read, title=record.name, seconds=seconds, memory=memory, answer=answer)


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
        names, labeled = (record.name, record.name, record.image), record.kind != "images"
        return read_parquet(files, *names, max_rows, spaced=spaced, labeled=labeled).load(most_bytes)
