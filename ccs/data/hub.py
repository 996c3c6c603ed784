"""Sets that are fetched from the Hub: rows, text files, videos; every failure becomes one clear sentence."""

from __future__ import annotations

import re
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from ccs.data import DatasetRecord, clips
from ccs.data.rows import Rows, of_dataset
from ccs.errors import InputError, require
from ccs.files import endpoint

STREAM_SEED = 0
"""Seed of the shuffled stream from which part of a large set is taken."""
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
    """Look once whether the Hub answers; if not, restrict its libraries to their caches."""
    import datasets
    from huggingface_hub import constants

    if not reachable(10):
        constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True


@contextmanager
def explained(name: str, hub: str, *, copy: bool = True) -> Iterator[None]:
    """Turn errors of `datasets` and huggingface_hub into an InputError that says what to do."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:  # these libraries raise dozens of kinds
        local = f", or put a local copy in $CCS_DATA/{name} (docs/datasets.md says how)" if copy else ""
        raise InputError(f"{name!r} {_explanation(error, hub)}{local}.") from error


def _explanation(error: Exception, hub: str) -> str:
    import datasets
    import huggingface_hub.errors as of_hub

    said = " ".join(str(error).split())
    missing = (datasets.exceptions.DatasetNotFoundError, of_hub.RepositoryNotFoundError)
    gone = (*missing, of_hub.RevisionNotFoundError, of_hub.EntryNotFoundError)
    offline = (ConnectionError, of_hub.OfflineModeIsEnabled, of_hub.LocalEntryNotFoundError)
    # huggingface_hub's message for any missing repository contains the word "gated" too.
    if isinstance(error, of_hub.GatedRepoError) or (
        isinstance(error, missing) and "is a gated dataset" in said
    ):
        return f"is gated on the Hub: accept its terms at {hub!r} and log in with `hf auth login`"
    # `datasets` reports a missing revision with the error for a missing set.
    if isinstance(error, missing) and not said.startswith("Revision"):
        where = f"was not found on the Hub as {hub!r}"
        return f"{where}: it may have been renamed, removed or made private; look it up there"
    unreached = type(error).__name__ == "ConnectError"  # httpx's or httpx2's, by huggingface_hub's version
    if unreached or isinstance(error, offline) or (datasets.config.HF_HUB_OFFLINE and not Path(hub).is_dir()):
        return f"cannot be fetched from the Hub ({hub}): there is no connection; try again"
    if isinstance(error, gone):
        return f"needs a file or revision that {hub!r} no longer has: look there for what replaces it"
    if isinstance(error, of_hub.HfHubHTTPError):
        return f"was refused by the Hub ({hub}, status {error.response.status_code}): try again later"
    return f"could not be read from {hub!r} ({said[:300]}): check what is there"


def rows_at(record: DatasetRecord, hub: str, streamed: int | None = None) -> Rows:
    """The rows of a repository with a data set, or of a local folder laid out like one. streamed: so many
    rows alone, in a fixed shuffled order.
    """
    require("data", "datasets")
    import datasets

    local = Path(hub).is_dir()
    if not local:
        connected()
    with explained(record.name, hub):
        revision = None if local else record.revision
        builder = datasets.load_dataset_builder(hub, record.config, revision=revision)
        commit = None if local else builder.hash
        source = hub if local else f"{record.address} {commit}"
        if streamed is None:
            found = _whole_split(builder, hub, record.config, record.split, commit)
        else:
            stream = datasets.load_dataset(
                hub, record.config, split=record.split, revision=commit, streaming=True
            )
            features = stream.features
            for column, feature in (features or {}).items():
                if isinstance(feature, datasets.Image):
                    stream = stream.cast_column(column, datasets.Image(decode=False))
            part = list(stream.shuffle(seed=STREAM_SEED, buffer_size=1000).take(streamed))
            found = datasets.Dataset.from_list(part, features)
        return of_dataset(found, record.name, source, record.image)


def _whole_split(builder: Any, hub: str, config: str | None, split: str, commit: str | None) -> Any:
    """A `datasets.Dataset` of one split, fetching its files alone, unlike `load_dataset`. ValueError if the
    split is missing or does not have the number of rows stated on its card.
    """
    import datasets

    files = builder.config.data_files or {}
    if split not in files:
        raise ValueError(f"it has no split {split!r}, but {', '.join(files) or 'none'}")
    rows = datasets.load_dataset(
        hub,
        config,
        data_files={split: list(files[split])},
        features=builder.info.features,
        split=split,
        revision=commit,
        verification_mode="no_checks",  # these would miss the other splits; rows are counted below
    )
    stated = (builder.info.splits or {}).get(split)
    if stated is not None and stated.num_examples and stated.num_examples != len(rows):
        raise ValueError(f"{len(rows)} rows came, its card says {stated.num_examples}")
    return rows


def text_file(record: DatasetRecord, name: str) -> str:
    from huggingface_hub import hf_hub_download

    assert record.hub is not None
    connected()
    with explained(record.name, record.hub):
        path = hf_hub_download(record.hub, name, repo_type="dataset", revision=record.revision)
    return Path(path).read_text(encoding="utf-8")


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
                path
                for path in listed
                if Path(path).suffix.lower() in clips.SUFFIXES and Path(path).stem in wanted
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
