"""Sets on the Hub: files of a pinned revision, parts of large or untrusted sets, and videos.

An untrusted set is read in the sandbox, without the user's token. Paths and addresses in cards and rows are
never followed.
"""

import glob
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from ccs import sandbox
from ccs.data import DatasetRecord
from ccs.data.archives import choose_archives
from ccs.data.files import VIDEOS, Files, OnDisk, Opener, list_files
from ccs.data.layouts import read_files
from ccs.data.rows import Rows, of_plain, spread
from ccs.errors import InputError
from ccs.files import atomic_write, endpoint

MOST, MAX_BYTES = 5000, 2**30
"""Maximum number of images read from an untrusted set, and of their bytes."""
MOST_FILES = 4
"""Maximum number of Parquet files of which a part is read."""
_ARCHIVE = re.compile(r"(.*\.(?:zip|tar))(?:\.part.*)?", re.IGNORECASE)
_NOT_NEEDED = re.compile(r"train|raw_data/", re.IGNORECASE)
_EXPLANATIONS = {
    "GatedRepoError": "is gated on the Hub: accept its terms at {hub!r} and log in with `hf auth login`",
    "RepositoryNotFoundError": "was not found on the Hub as {hub!r}: look there for a new name",
    # ConnectError is httpx's or httpx2's, by huggingface_hub's version.
    "LocalEntryNotFoundError OfflineModeIsEnabled ConnectionError ConnectError": "cannot be fetched from the "
    "Hub ({hub}): there is no connection; try again",
    "RevisionNotFoundError EntryNotFoundError": "needs a file or revision that {hub!r} no longer has",
    "Exception": "could not be read from {hub!r} ({text}): check what is there",
}
"""Classes of errors of the Hub's client -> explanation; the first class that an error has is used."""


@dataclass(frozen=True)
class OnHub:
    """A set on the Hub: its record, with its address, and the requested split."""

    record: DatasetRecord
    split: str

    def open_rows(self, max_rows: int | None) -> Rows:
        """Read the rows of a set.

        For part of a large set, and for an untrusted set (at most `MOST` rows), evenly spaced row groups of
        evenly spaced Parquet files are fetched. Other sets are downloaded whole.

        Args:
            max_rows: Maximum number of rows; None for all.

        Raises:
            InputError: If the set can't be reached or read.
        """
        record = self.record
        if record.untrusted:
            max_rows = min(max_rows or MOST, MOST)
        with _explained(record):
            commit, paths = _list_repository(record)
            openers = {path: partial(_open_remote, endpoint(), record, commit, path) for path in paths}
            files = Files(" ".join(filter(None, (record.hub, record.config, commit))), openers)
            if record.kind != "videos":
                files = choose_archives(files, record, self.split)
                files = replace(files, notes=() if record.known else files.notes)
            parquet = files.ending_in(".parquet")
            if not (parquet and max_rows and record.large):
                wanted = [*files.openers, *(path for path in paths if path == record.names_file)]
                files = replace(files, openers=_download(record, commit, wanted))
                return read_files(files, record, files.split)
            parquet = [parquet[place] for place in spread(len(parquet), min(MOST_FILES, max_rows))]
            limit = MAX_BYTES if record.untrusted else 0
            read = partial(_read_part, {path: openers[path] for path in parquet}, record, max_rows, limit)
            if record.untrusted:
                limits: dict[str, Any] = {"memory": limit + 2**30, "answer": limit + 2**24}
                read = partial(sandbox.run, read, title=record.name, seconds=60 + max_rows / 20, **limits)
            rows = of_plain(read(), record.name, files.title)
            return replace(rows, notes=(*files.notes, *rows.notes))


@contextmanager
def _explained(record: DatasetRecord) -> Iterator[None]:
    """Turn errors of the Hub's client into an InputError with an explanation."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:  # these libraries raise dozens of exception types
        kinds = {kind.__name__ for kind in type(error).__mro__}
        words = next(words for names, words in _EXPLANATIONS.items() if kinds & {*names.split()})
        words = words.format(hub=record.hub, text=" ".join(str(error).split())[:300])
        copy = f", or put a local copy in $CCS_DATA/{record.name} (docs/datasets.md says how)"
        raise InputError(f"{record.name!r} {words}{'' if record.untrusted else copy}.") from error


def _list_repository(record: DatasetRecord) -> tuple[str, list[str]]:
    """Return the commit of a set's revision, and its files, or without a connection the files in the cache.

    The files of a set of videos are its annotations, and its loose videos or else its archives.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    hub = record.hub or ""
    try:
        api = HfApi(endpoint=endpoint(), token=False if record.untrusted else None)
        info = api.dataset_info(hub, revision=record.revision, timeout=10)
        commit, paths = str(info.sha), sorted(part.rfilename for part in info.siblings or [])
    except Exception as error:
        if record.untrusted or hasattr(error, "response"):  # the Hub answered
            raise
        try:
            folder = snapshot_download(
                hub, repo_type="dataset", revision=record.revision, local_files_only=True
            )
        except LocalEntryNotFoundError as missing:  # other files of the revision, or all
            if not (folder := getattr(missing, "snapshot_path", "")):
                raise
        commit, paths = Path(folder).name, [*list_files(Path(folder), hub).openers]
    if record.kind == "videos":
        paths = [path for path in paths if not _NOT_NEEDED.search(path)]
        loose = [path for path in paths if path.lower().endswith(VIDEOS)]
        return commit, [record.annotations, *(loose or filter(_ARCHIVE.fullmatch, paths))]
    endings = (".parquet",) if record.untrusted else (".parquet", ".tar")  # only Parquet is sandboxed
    return commit, [path for path in paths if path.lower().endswith(endings) or path == record.names_file]


def _download(record: DatasetRecord, commit: str, paths: Sequence[str]) -> dict[str, Opener]:
    """Download files of a set that aren't in the cache, and join archives that are stored in parts.

    Returns:
        Path in the repository -> the file's opener.
    """
    from huggingface_hub import constants, snapshot_download

    # A revision that is downloaded by its name can be found later without a connection.
    revision = commit if re.fullmatch("[0-9a-f]{40}", record.revision) else record.revision
    options: dict[str, Any] = {"endpoint": endpoint(), "repo_type": "dataset", "revision": revision}
    patterns = [*map(glob.escape, paths)]
    folder = Path(snapshot_download(record.hub or "", allow_patterns=patterns, **options))
    if folder.name != commit:
        raise ValueError("it changed while it was downloaded; try again")
    openers: dict[str, Opener] = {path: OnDisk(str(folder / path)) for path in paths}
    archive_of = {path: name[1] for path in paths if (name := _ARCHIVE.fullmatch(path))}
    for archive in {*archive_of.values()} - {*paths}:
        whole = Path(constants.HF_HOME) / "clip-ccs" / record.name / commit / archive
        if not whole.exists():
            with atomic_write(whole) as temporary, temporary.open("wb") as joined:
                for path in [path for path in paths if archive_of.get(path) == archive]:
                    with openers[path]() as part:
                        shutil.copyfileobj(part, joined)
        openers[archive] = OnDisk(str(whole))
    return openers


def _open_remote(server: str, record: DatasetRecord, commit: str, path: str) -> IO[bytes]:
    """Open a file on the Hub. `server` is the Hub's address, which a sandboxed process may not know."""
    from huggingface_hub import HfFileSystem

    token = False if record.untrusted else None
    system = HfFileSystem(endpoint=server, token=token, skip_instance_cache=True)
    opened = system.open(f"datasets/{record.hub}@{commit}/{path}", mode="rb", block_size=2**19)
    return cast(IO[bytes], opened)


def _read_part(
    files: Mapping[str, Opener], record: DatasetRecord, max_rows: int, most_bytes: int
) -> dict[str, Any]:
    """Read rows of remote Parquet files."""
    from ccs.data.parquet import read_parquet

    with _explained(record):
        return read_parquet(files, record, record.name, max_rows).load(most_bytes)
