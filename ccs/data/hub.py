"""Fetch sets from the Hub: files of a pinned revision, parts of large sets, and videos."""

from __future__ import annotations

import glob
import re
import shutil
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from ccs import sandbox
from ccs.data import DatasetRecord, clips
from ccs.data.decoding import FORMATS, problem
from ccs.data.files import VIDEOS, Files, OnDisk, Opener, list_files, splits_in
from ccs.data.rows import Rows, spread
from ccs.errors import InputError
from ccs.files import atomic_write, endpoint

MOST_FILES, MOST_COLUMNS = 4, 20
"""The most Parquet files of which part is read, and the most of their columns."""
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

    if not reachable(10):
        constants.HF_HUB_OFFLINE = True


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

    if isinstance(error, of_hub.GatedRepoError):
        return f"is gated on the Hub: accept its terms at {hub!r} and log in with `hf auth login`"
    if isinstance(error, of_hub.RepositoryNotFoundError):
        place = f"was not found on the Hub as {hub!r}"
        return f"{place}: it may have been renamed, removed or made private; look it up there"
    unreached = type(error).__name__ == "ConnectError"  # httpx's or httpx2's, by huggingface_hub's version
    offline = (ConnectionError, of_hub.OfflineModeIsEnabled, of_hub.LocalEntryNotFoundError)
    if unreached or isinstance(error, offline) or constants.HF_HUB_OFFLINE:
        return f"cannot be fetched from the Hub ({hub}): there is no connection; try again"
    if isinstance(error, of_hub.RevisionNotFoundError | of_hub.EntryNotFoundError):
        return f"needs a file or revision that {hub!r} no longer has: look there for what replaces it"
    if isinstance(error, of_hub.HfHubHTTPError):
        return f"was refused by the Hub ({hub}, status {error.response.status_code}): try again later"
    return f"could not be read from {hub!r} ({' '.join(str(error).split())[:300]}): check what is there"


def fetch(record: DatasetRecord) -> tuple[Path, str]:
    """Download the files of a set's configuration and split at its revision.

    Args:
        record: The set's record.

    Returns:
        The folder that holds them, laid out as the repository, and where they come from.

    Raises:
        InputError: If the set can't be reached or has no such files.
    """
    from huggingface_hub import constants

    connected()
    with explained(record.name, record.hub or ""):
        commit, chosen = (record.revision, []) if constants.is_offline_mode() else files_at(record)
        folder = _download(record, commit, chosen)
    return folder, f"{record.address} {folder.name}"


def _download(record: DatasetRecord, commit: str, paths: Sequence[str]) -> Path:
    """Download these files of a repository, or what is in the cache if there are none."""
    from huggingface_hub import snapshot_download

    patterns = [glob.escape(path) for path in paths] or None
    return Path(
        snapshot_download(
            record.hub or "", repo_type="dataset", revision=commit, allow_patterns=patterns, max_workers=8
        )
    )


def files_at(record: DatasetRecord, token: bool | None = None) -> tuple[str, list[str]]:
    """List the data files of a set's configuration and split at its revision.

    Args:
        record: The set's record; without a split it is train, or if there is none, all.
        token: False to send no token.

    Returns:
        The commit, and the files' paths, with that of the classes' names if the record has one.

    Raises:
        ValueError: If there are none.
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


def part_of(
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
        The commit, and the rows as `plain_fields` returns them.

    Raises:
        InputError: If the set can't be reached or read.
    """
    with explained(record.name, record.hub or "", copy=not most_bytes or bool(record.excerpt)):
        commit, paths = files_at(record, token=False if most_bytes else None)
    paths = [path for path in paths if path.lower().endswith(".parquet")]
    wanted = min(MOST_FILES, max_rows)
    paths = [paths[place] for place in spread(len(paths), wanted)] if spaced else paths[:1]
    read = partial(_remote_fields, record, commit, paths, max_rows, endpoint(), most_bytes, spaced)
    if not most_bytes:
        return commit, read()
    fields: dict[str, Any] = sandbox.run(
        read,
        title=record.name,
        seconds=60 + max_rows / 20,
        memory=most_bytes + 2**30,
        answer=most_bytes + 2**24,
    )
    return commit, fields


def _remote_fields(
    record: DatasetRecord,
    commit: str,
    paths: Sequence[str],
    max_rows: int,
    server: str,
    most_bytes: int,
    spaced: bool,
) -> dict[str, Any]:
    """Read rows of these files of a commit; server: the Hub's address, which a sandbox may not know yet."""
    from huggingface_hub import HfFileSystem

    from ccs.data.parquet import read_parquet

    with explained(record.name, record.hub or "", copy=not most_bytes):
        token = False if most_bytes else None
        system = HfFileSystem(endpoint=server, token=token, skip_instance_cache=True)
        opened = partial(system.open, mode="rb", block_size=2**19)
        files = {path: partial(opened, f"datasets/{record.hub}@{commit}/{path}") for path in paths}
        names, labeled = (record.name, record.name, record.image), record.kind != "images"
        return plain_fields(read_parquet(files, *names, max_rows, spaced=spaced, labeled=labeled), most_bytes)


def plain_fields(rows: Rows, most_bytes: int) -> dict[str, Any]:
    """Return what rows hold as plain values.

    Args:
        rows: The rows.
        most_bytes: The most bytes of all images if they are untrusted, which allows only usual formats.

    Returns:
        Fields of `Rows`, and under `images` each row's encoded image, or the reason why it can't be read.

    Raises:
        InputError: If the images have more bytes.
    """
    images: list[bytes | str] = []
    size = 0
    for row in range(rows.count):
        try:
            data = rows.read(row)
        except OSError as error:
            if hasattr(error, "response"):  # the Hub failed, not the image
                raise
            images.append(error.strerror or str(error))
            continue
        size += len(data)
        if most_bytes and size > most_bytes:
            raise InputError(f"{rows.source} holds more than {most_bytes >> 20} MB once unpacked.")
        images.append(problem(data, FORMATS if most_bytes else None) or data)
    return {
        "images": images,
        "columns": dict(list(rows.columns.items())[:MOST_COLUMNS]),
        "classes": dict(rows.classes),
        "unusable": dict(list(rows.unusable.items())[:MOST_COLUMNS]),
        "notes": rows.notes,
        "by_folder": rows.by_folder,
        "is_part": rows.is_part,
        "untrusted": bool(most_bytes),
    }


def in_memory(name: str, source: str, fields: Mapping[str, Any]) -> Rows:
    """Make rows of images in memory.

    Args:
        name: The set's name.
        source: Where the rows come from.
        fields: What `plain_fields` returned.
    """
    others = {key: value for key, value in fields.items() if key != "images"}
    read = partial(_image_in, fields["images"])
    return Rows(name=name, source=source, count=len(fields["images"]), read=read, **others)


def _image_in(images: Sequence[bytes | str], row: int) -> bytes:
    if isinstance(image := images[row], str):
        raise OSError(image)
    return image


# Videos ---------------------------------------------------------------------------------------------------


def fetch_videos(record: DatasetRecord) -> tuple[Files, str]:
    """Download a set's annotations, and the loose videos that they name or else the archives.

    Args:
        record: The set's record.

    Returns:
        The files, with archives in numbered parts joined, and where they come from.

    Raises:
        InputError: If the set can't be reached.
    """
    from huggingface_hub import HfApi, constants

    connected()
    with explained(record.name, record.hub or ""):
        folder = _download(record, record.revision, [record.annotations])
        if not constants.is_offline_mode():
            listed = HfApi().list_repo_files(record.hub or "", repo_type="dataset", revision=folder.name)
            listed = [path for path in listed if not _NOT_NEEDED.search(path)]
            entries = clips.annotations_in((folder / record.annotations).read_bytes(), record.annotations)
            wanted = {Path(clips.file_of(entry)).stem for entry in entries}
            videos = [path for path in listed if path.lower().endswith(VIDEOS)]
            loose = [path for path in videos if Path(path).stem in wanted]
            needed = loose or [path for path in listed if _ARCHIVE.fullmatch(path)]
            folder = _download(record, folder.name, [record.annotations, *needed])
    home = Path(constants.HF_HOME) / "clip-ccs" / record.name / folder.name
    return _join_parts(list_files(folder, record.address), home), f"{record.address} {folder.name}"


def _join_parts(files: Files, home: Path) -> Files:
    """Join archives in numbered parts, once, in the folder `home`."""
    parts: dict[str, list[Opener]] = defaultdict(list)
    for path, opener in files.openers.items():
        if (archive := _ARCHIVE.fullmatch(path)) and archive[1] != path:
            parts[archive[1]].append(opener)
    for whole, openers in parts.items():
        if not (home / whole).exists():
            with atomic_write(home / whole) as temporary, temporary.open("wb") as joined:
                for opener in openers:
                    with opener() as part:
                        shutil.copyfileobj(part, joined)
    joined_files = {whole: OnDisk(str(home / whole)) for whole in parts}
    return replace(files, openers={**files.openers, **joined_files})
