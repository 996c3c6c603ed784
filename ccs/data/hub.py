"""Fetch sets from the Hub: files of a pinned revision, parts of large sets, and videos."""

from __future__ import annotations

import glob
import re
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from ccs.data import DatasetRecord, clips
from ccs.data.decoding import problem
from ccs.data.files import VIDEOS, splits_in
from ccs.data.rows import Rows, spread
from ccs.errors import InputError
from ccs.files import endpoint
from ccs.progress import Bar

FILES, MOST_COLUMNS = 4, 20
"""The most Parquet files of which part is read, and the most columns of one."""
_ARCHIVE = re.compile(r"(.*\.(?:zip|tar|tar\.gz))(?:\.part.*)?", re.IGNORECASE)
_NOT_NEEDED = re.compile(r"train|raw_data/", re.IGNORECASE)


def reachable(seconds: float) -> bool:
    """True if the Hub answers within that time, whatever the answer."""
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
    """Turn errors of the Hub's client into an InputError that says what to do."""
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

    message = " ".join(str(error).split())
    if isinstance(error, of_hub.GatedRepoError):
        return f"is gated on the Hub: accept its terms at {hub!r} and log in with `hf auth login`"
    if isinstance(error, of_hub.RepositoryNotFoundError):
        where = f"was not found on the Hub as {hub!r}"
        return f"{where}: it may have been renamed, removed or made private; look it up there"
    unreached = type(error).__name__ == "ConnectError"  # httpx's or httpx2's, by huggingface_hub's version
    offline = (ConnectionError, of_hub.OfflineModeIsEnabled, of_hub.LocalEntryNotFoundError)
    if unreached or isinstance(error, offline) or constants.HF_HUB_OFFLINE:
        return f"cannot be fetched from the Hub ({hub}): there is no connection; try again"
    if isinstance(error, of_hub.RevisionNotFoundError | of_hub.EntryNotFoundError):
        return f"needs a file or revision that {hub!r} no longer has: look there for what replaces it"
    if isinstance(error, of_hub.HfHubHTTPError):
        return f"was refused by the Hub ({hub}, status {error.response.status_code}): try again later"
    return f"could not be read from {hub!r} ({message[:300]}): check what is there"


def fetch(record: DatasetRecord) -> tuple[Path, str]:
    """Download the files of a set's configuration and split at its revision.

    Returns:
        The folder that holds them, laid out as the repository, and where they come from.

    Raises:
        InputError: If the set can't be reached or has no such files.
    """
    from huggingface_hub import constants, snapshot_download

    connected()
    with explained(record.name, record.hub or ""):
        commit, chosen = (record.revision, []) if constants.is_offline_mode() else files_at(record)
        patterns = [glob.escape(path) for path in chosen] or None
        folder = snapshot_download(
            record.hub or "", repo_type="dataset", revision=commit, allow_patterns=patterns
        )
    return Path(folder), f"{record.address} {Path(folder).name}"


def files_at(record: DatasetRecord, token: bool | None = None) -> tuple[str, list[str]]:
    """List the data files of a set's configuration and split at its revision.

    Args:
        record: The set's record; without a split it is train, or if there is none, all.
        token: False to send no token.

    Returns:
        The commit, and the files' paths, with that of the classes' names if the record has one.

    Raises:
        InputError: If there are none.
    """
    from huggingface_hub import HfApi

    api = HfApi(endpoint=endpoint(), token=token)
    about = api.dataset_info(record.hub or "", revision=record.revision, timeout=10)
    listed = sorted(part.rfilename for part in about.siblings or [])
    data = [path for path in listed if path.lower().endswith((".parquet", ".tar"))]
    if record.config:
        data = [path for path in data if record.config in path.split("/")[:-1]] or data
    split = record.split or "train"
    named = [path for path in data if split in splits_in(path) | set(re.split(r"[-_./]", path))]
    if named or split != "train":
        data = named
    if not data:
        raise ValueError(f"it holds no Parquet files of the split {split!r}")
    return str(about.sha), data + [path for path in listed if path == record.names]


Group = tuple[list[bytes | str], dict[str, list[Any]], dict[str, list[str]]]
"""What is read of a file: images, or why one can't be read; plain columns; the names of class numbers."""


def part_of(record: DatasetRecord, most: int, read: Callable[..., Group], token: bool | None = None) -> Rows:
    """Read part of a large set: from evenly spaced files, and evenly spaced row groups of each.

    Args:
        record: The set's record.
        most: The most rows.
        read: Reads a file as `read_group` does, from the first four of its arguments.
        token: False to send no token.

    Raises:
        InputError: If the set can't be reached, or its files name classes differently.
    """
    with explained(record.name, record.hub or "", copy=token is None):
        commit, paths = files_at(record, token)
    paths = [path for path in paths if path.endswith(".parquet")]
    chosen = [paths[i] for i in spread(len(paths), min(FILES, most))]
    images: list[bytes | str] = []
    columns: dict[str, list[Any]] = {}
    classes: dict[str, list[str]] = {}
    with Bar(total=most, desc="photographs", unit="item", disable=None) as bar:
        for number, path in enumerate(chosen, 1):
            share = -(-most * number // len(chosen)) - len(images)
            new, cells, names = read(record, commit, path, share)
            if any(classes.setdefault(name, names[name]) != names[name] for name in names):
                raise InputError(f"{record.name} names its classes in another order in {path}.")
            shared = cells.keys() & columns.keys() if images else cells.keys()
            columns = {name: columns.get(name, []) + cells[name] for name in shared}
            images += new
            bar.update(len(new))
    address = f"{record.address} {commit}" if token is None else f"{record.name} at {commit[:12]}"
    fields = {"columns": columns, "classes": classes, "is_part": True}
    return in_memory(record.name, address, images, fields)


def in_memory(name: str, source: str, images: Sequence[bytes | str], fields: Mapping[str, Any]) -> Rows:
    """Make rows of images in memory, or of the reasons why one can't be read."""
    return Rows(name, source, len(images), partial(_held, images), **fields)


def _held(images: Sequence[bytes | str], row: int) -> bytes:
    image = images[row]
    if isinstance(image, str):
        raise OSError(image)
    return image


def read_group(
    record: DatasetRecord,
    commit: str,
    path: str,
    most: int,
    server: str = "",
    token: bool | None = None,
    formats: tuple[str, ...] | None = None,
    groups: Sequence[int] | None = None,
) -> Group:
    """Read rows of a Parquet file on the Hub, of which only what they need is fetched.

    Args:
        record: The set's record; of images without labels, no columns are read.
        commit: The commit.
        path: The file in the repository.
        most: The most rows.
        server: The Hub's address; by default the environment's.
        token: False to send no token.
        formats: The formats of images that are allowed; None for all.
        groups: The row groups to read, as far as they are there; by default evenly spaced ones.
    """
    from huggingface_hub import HfFileSystem
    from pyarrow.parquet import ParquetFile

    from ccs.data.parquet import class_names, image_bytes, image_columns, is_plain, plain_cell

    with explained(record.name, record.hub or "", copy=token is None):
        system = HfFileSystem(endpoint=server or endpoint(), token=token, skip_instance_cache=True)
        with system.open(f"datasets/{record.hub}@{commit}/{path}", "rb", block_size=2**19) as opened:
            file = ParquetFile(opened)
            about, schema = file.metadata, file.schema_arrow
            image, *_ = image_columns(schema, record.image)
            plain = [field.name for field in schema if is_plain(field.type) and record.kind != "images"]
            if groups is None:
                needed = -(-most * about.num_row_groups // max(1, about.num_rows))
                groups = spread(about.num_row_groups, min(about.num_row_groups, needed))
            images: list[bytes | str] = []
            columns: dict[str, list[Any]] = {name: [] for name in plain[:MOST_COLUMNS]}
            # Row by row, for a file may hold a cell once and repeat it in all rows.
            chosen = [group for group in groups if group < about.num_row_groups]
            for batch in file.iter_batches(1, row_groups=chosen, columns=[image, *columns]):
                if len(images) == most:
                    break
                (row,) = batch.to_pylist()
                try:
                    data = image_bytes(row[image])
                    images.append(problem(data, formats) or data)
                except OSError as error:
                    images.append(str(error))
                for name, cells in columns.items():
                    cells.append(plain_cell(row[name]))
            return (
                images,
                columns,
                {name: cells for name, cells in class_names(schema).items() if name in columns},
            )


def video_folders(record: DatasetRecord) -> tuple[Path, Path]:
    """The folders with a set's annotations and loose videos, and with what its archives hold; fetched once.

    Of loose videos only those that the annotations name; archives only where some are not loose. Where
    several processes ask at once, one fetches.
    """
    from filelock import FileLock
    from huggingface_hub import HfApi, constants, hf_hub_download

    assert record.hub is not None
    connected()
    home = Path(constants.HF_HOME) / "clip-ccs" / record.name
    home.mkdir(parents=True, exist_ok=True)
    fetch = partial(hf_hub_download, record.hub, repo_type="dataset", revision=record.revision)
    with explained(record.name, record.hub), FileLock(home / "lock"):
        for killed in home.glob("tmp*"):
            shutil.rmtree(killed)
        told = Path(fetch(record.annotations))
        snapshot = told.parents[record.annotations.count("/")]
        unpacked = home / snapshot.name
        if not unpacked.exists() and not constants.is_offline_mode():
            listed = HfApi().list_repo_files(record.hub, repo_type="dataset", revision=snapshot.name)
            listed = [path for path in listed if not _NOT_NEEDED.search(path)]
            wanted = {Path(clips.file_of(entry)).stem for entry in clips.annotations_in(told)}
            needed = [
                path for path in listed if Path(path).suffix.lower() in VIDEOS and Path(path).stem in wanted
            ]
            if wanted - {Path(path).stem for path in needed}:
                needed += [path for path in listed if _ARCHIVE.fullmatch(path)]
            with ThreadPoolExecutor(8) as pool:
                paths = list(pool.map(lambda path: Path(fetch(path, revision=snapshot.name)), needed))
            with tempfile.TemporaryDirectory(dir=home) as part:
                unpack(paths, Path(part) / "videos")
                (Path(part) / "videos").rename(unpacked)
    return snapshot, unpacked


def unpack(paths: Sequence[Path], target: Path) -> None:
    """Unpack the zips, tars, and tars in numbered parts among these files into a new folder."""
    target.mkdir(parents=True)
    wholes: dict[str, list[Path]] = {}
    for archive in sorted(paths):
        if found := _ARCHIVE.fullmatch(str(archive)):
            wholes.setdefault(found[1], []).append(archive)
    for whole, parts in wholes.items():
        archive, joined = parts[0], target.with_name(Path(whole).name)
        if len(parts) > 1 or str(archive) != whole:
            with joined.open("wb") as out:
                for part in parts:
                    with part.open("rb") as piece:
                        shutil.copyfileobj(piece, out)
            archive = joined
        if whole.lower().endswith(".zip"):
            shutil.unpack_archive(archive, target)
        else:
            _unpack_tar(archive, target)
        joined.unlink(missing_ok=True)


def _unpack_tar(archive: Path, target: Path) -> None:
    """Its plain files, below `target` only: Debian 12's Python, 3.11.2, has no filter of its own for this."""
    with tarfile.open(archive) as tar:
        for member in tar:
            path = (target / member.name).resolve()
            content = tar.extractfile(member) if member.isfile() else None
            if content is not None and path.is_relative_to(target.resolve()):
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as out:
                    shutil.copyfileobj(content, out)
