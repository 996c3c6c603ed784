"""Sets on the Hub: the files of a pinned revision, parts of large or untrusted sets, and videos.

An untrusted set is read in the sandbox, without a token. No path or address in a card or a row is followed.
"""

import glob
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ccs import sandbox
from ccs.data import DatasetRecord
from ccs.data.files import SPLITS, VIDEOS, Files, OnDisk, list_files, require_one_folder, splits_in
from ccs.data.layouts import read_files
from ccs.data.rows import Rows, of_plain, spread
from ccs.errors import InputError
from ccs.files import atomic_write, endpoint

MOST, MAX_BYTES = 5000, 2**30
"""The most that is read of an untrusted dataset: images, and their bytes."""
MOST_FILES = 4
"""The most Parquet files of which part is read."""
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
"""Classes of errors of the Hub's client -> what to do; the first that is an error's is taken."""


@contextmanager
def _explained(record: DatasetRecord) -> Iterator[None]:
    """Turn errors of the Hub's client into an InputError that says what to do."""
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


def download(record: DatasetRecord) -> Files:
    """Download the files of a dataset's configuration and split at its revision.

    Args:
        record: The set's record.

    Returns:
        The files, laid out as in the repository, with archives in numbered parts joined. Without a
        connection, those of an earlier download.

    Raises:
        InputError: If the set can't be reached or has no such files.
    """
    from huggingface_hub import constants, snapshot_download

    options: dict[str, Any] = {"endpoint": endpoint(), "repo_type": "dataset", "revision": record.revision}
    with _explained(record):
        try:
            options["revision"], _, paths = _data_files(record)
            options["allow_patterns"] = [glob.escape(path) for path in paths]
        except Exception as error:
            if isinstance(error, ValueError) or hasattr(error, "response"):  # the Hub answered
                raise
            options["local_files_only"] = True
        folder = Path(snapshot_download(record.hub or "", **options))
    files = list_files(folder, f"{record.address} {folder.name}")
    return _join_parts(files, Path(constants.HF_HOME) / "clip-ccs" / record.name / folder.name)


def _data_files(record: DatasetRecord) -> tuple[str, str, list[str]]:
    """List the data files of a dataset's configuration and split, and the file of its classes' names.

    Without a split it is the first of test, validation, and train that a file names, or else all. Of videos,
    the files are the annotations, and loose videos or else archives.

    Returns:
        The commit of the record's revision, the split, and the files.

    Raises:
        ValueError: If there are no such files.
    """
    from huggingface_hub import HfApi

    api = HfApi(endpoint=endpoint(), token=False if record.untrusted else None)
    repository_info = api.dataset_info(record.hub or "", revision=record.revision, timeout=10)
    commit = str(repository_info.sha)
    listed = sorted(part.rfilename for part in repository_info.siblings or [])
    if record.kind == "videos":
        listed = [path for path in listed if not _NOT_NEEDED.search(path)]
        loose = [path for path in listed if path.lower().endswith(VIDEOS)]
        return commit, "", [record.annotations, *(loose or filter(_ARCHIVE.fullmatch, listed))]
    data = [path for path in listed if path.lower().endswith((".parquet", ".tar"))]
    of_config = [path for path in data if f"/{record.config}/" in f"/{path}"]
    data = of_config if of_config or (record.config and not record.known) else data
    words = {path: splits_in(path) | {*re.split(r"[-_./]", path)} for path in data}
    all_words = set().union(*words.values())
    split = record.split or next((name for name in SPLITS.values() if name in all_words), "")
    split_files = [path for path in data if not split or split in words[path]]
    if split_files or split != "train":
        data = split_files
    if not data:
        raise ValueError(f"it holds no Parquet files of {' '.join(filter(None, (record.config, split)))!r}")
    if record.kind != "images" and not record.known:
        require_one_folder(data, record.name, f"choose one, as in {record.name}:{{}}/{split or 'SPLIT'}")
    return commit, split, data + [path for path in listed if path == record.names_file]


def _join_parts(files: Files, home: Path) -> Files:
    """Join archives in numbered parts, once, in the folder `home`."""
    archive_of = {path: name[1] for path in files.openers if (name := _ARCHIVE.fullmatch(path))}
    wholes = {*archive_of.values()} - files.openers.keys()
    for whole in wholes:
        if not (home / whole).exists():
            with atomic_write(home / whole) as temporary, temporary.open("wb") as joined:
                for path in [path for path, archive in archive_of.items() if archive == whole]:
                    with files.openers[path]() as part:
                        shutil.copyfileobj(part, joined)
    return replace(files, openers={**files.openers, **{whole: OnDisk(str(home / whole)) for whole in wholes}})


@dataclass(frozen=True)
class OnHub:
    """A set on the Hub, whose record has the address."""

    record: DatasetRecord

    def open_rows(self, max_rows: int | None) -> Rows:
        """Read the rows of a set.

        Of a large set of which part is needed, and of at most `MOST` rows of an untrusted one, evenly spaced
        row groups of evenly spaced files are fetched; others are downloaded whole.

        Args:
            max_rows: Maximum number of rows; None for all.

        Raises:
            InputError: If the set can't be reached or read.
        """
        record = self.record
        if record.untrusted:
            max_rows = min(max_rows or MOST, MOST)
        elif max_rows is None or not record.large or record.names_file:
            return read_files(download(record), record)
        with _explained(record):
            commit, split, listed = _data_files(record)
        paths = [path for path in listed if path.lower().endswith(".parquet")]
        paths = [paths[place] for place in spread(len(paths), min(MOST_FILES, max_rows))]
        paths = [f"datasets/{record.hub}@{commit}/{path}" for path in paths]
        most_bytes = MAX_BYTES if record.untrusted else 0
        read = partial(_read_remote, record, paths, max_rows, endpoint(), most_bytes)
        if record.untrusted:
            limits: dict[str, Any] = {"memory": most_bytes + 2**30, "answer": most_bytes + 2**24}
            read = partial(sandbox.run, read, title=record.name, seconds=60 + max_rows / 20, **limits)
        return of_plain(read(), record.name, f"{replace(record, split=split).address} {commit}")


def _read_remote(
    record: DatasetRecord, paths: Sequence[str], max_rows: int, server: str, most_bytes: int
) -> dict[str, Any]:
    """Read rows of these files; server: the Hub's address, which a sandbox may not know yet."""
    from huggingface_hub import HfFileSystem

    from ccs.data.parquet import read_parquet

    with _explained(record):
        token = False if record.untrusted else None
        system = HfFileSystem(endpoint=server, token=token, skip_instance_cache=True)
        files = {path: partial(system.open, path, mode="rb", block_size=2**19) for path in paths}
        return read_parquet(files, record, record.name, max_rows).load(most_bytes)
