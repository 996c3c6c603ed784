"""A set's rows and files from the Hub; every failure becomes one clear sentence."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from ccs.datasets.known_sets import DatasetRecord
from ccs.datasets.table import ImageTable
from ccs.errors import InputError
from ccs.files import endpoint

STREAM_SEED = 0
"""Seed of the shuffled stream from which part of a large set is taken."""


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
def _check_connection() -> None:
    """Check once whether the Hub answers; if not, restrict its libraries to their caches.

    On their own they try each file for half a minute before they give up.
    """
    import datasets
    from huggingface_hub import constants

    if not reachable(10):
        constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True


@contextmanager
def explained(name: str, hub: str, *, copy: bool = True) -> Iterator[None]:
    """Turn the errors of `datasets` and huggingface_hub into an InputError that says what to do.

    copy: mention that a local copy can be used instead.
    """
    import datasets
    import huggingface_hub.errors as hub_errors

    def explain(error: Exception) -> str:
        said = " ".join(str(error).split())
        unreachable = f"cannot be fetched from the Hub ({hub}): no connection"
        missing = (datasets.exceptions.DatasetNotFoundError, hub_errors.RepositoryNotFoundError)
        # huggingface_hub's message for any missing repository contains the word "gated" too.
        if isinstance(error, hub_errors.GatedRepoError) or (
            isinstance(error, missing) and "is a gated dataset" in said
        ):
            return f"is gated on the Hub: accept its terms at {hub!r} and log in with `hf auth login`"
        # `datasets` reports a missing revision with the error for a missing set.
        if isinstance(error, missing) and not said.startswith("Revision"):
            return (
                f"was not found on the Hub as {hub!r}: it may have been renamed, removed or made private; "
                "look it up there"
            )
        if isinstance(
            error, ConnectionError | hub_errors.OfflineModeIsEnabled | hub_errors.LocalEntryNotFoundError
        ):
            return unreachable
        if isinstance(error, (*missing, hub_errors.RevisionNotFoundError, hub_errors.EntryNotFoundError)):
            return f"needs a file or revision that {hub!r} no longer has"
        if isinstance(error, hub_errors.HfHubHTTPError):
            return f"was refused by the Hub ({hub}, status {error.response.status_code})"
        if datasets.config.HF_HUB_OFFLINE and not Path(hub).is_dir():
            return unreachable
        return f"could not be read from {hub!r} ({said[:300]})"

    try:
        yield
    except InputError:
        raise
    except Exception as error:  # these libraries raise dozens of kinds
        local = f", or put a local copy in $CCS_DATA/{name} (docs/datasets.md says how)" if copy else ""
        raise InputError(f"{name!r} {explain(error)}{local}.") from error


def rows(record: DatasetRecord, max_rows: int | None = None) -> ImageTable:
    """The rows of a set. Part of a large set is streamed in a fixed shuffled order, not downloaded whole."""
    if record.hub is None:
        raise InputError(
            f"{record.name!r} is not on the Hub; put a local copy in $CCS_DATA/{record.name} "
            f"({record.verified})."
        )
    return any_rows(
        record.hub,
        name=record.name,
        config=record.config,
        split=record.split,
        revision=record.revision,
        max_streamed=max_rows if record.large else None,
    )


def any_rows(
    hub: str,
    *,
    name: str,
    config: str | None = None,
    split: str,
    revision: str | None = None,
    max_streamed: int | None = None,
) -> ImageTable:
    """The rows of any data set on the Hub, or of a local folder laid out like one."""
    import datasets

    if not Path(hub).is_dir():
        _check_connection()
    with explained(name, hub):
        if max_streamed is None:
            return ImageTable(_whole_split(hub, config, split, revision), name)
        stream = datasets.load_dataset(hub, config, split=split, revision=revision, streaming=True)
        features = stream.features
        for column, feature in (features or {}).items():
            if isinstance(feature, datasets.Image):
                stream = stream.cast_column(column, datasets.Image(decode=False))
        part = list(stream.shuffle(seed=STREAM_SEED, buffer_size=1000).take(max_streamed))
        taken = datasets.Dataset.from_list(part)
        if features is not None:
            taken = taken.cast(features)
        return ImageTable(taken, name)


def _whole_split(hub: str, config: str | None, split: str, revision: str | None) -> Any:
    """A `datasets.Dataset` of one split, fetching only its files; `load_dataset` alone fetches every split.

    ValueError if the split is missing or does not have the number of rows stated on its card.
    """
    import datasets

    builder = datasets.load_dataset_builder(hub, config, revision=revision)
    files = builder.config.data_files or {}
    if split not in files:
        raise ValueError(f"it has no split {split!r}, but {', '.join(files) or 'none'}")
    rows = datasets.load_dataset(
        hub,
        config,
        data_files={split: list(files[split])},
        features=builder.info.features,
        split=split,
        revision=revision,
        verification_mode="no_checks",  # these would miss the other splits; rows are counted below
    )
    stated = (builder.info.splits or {}).get(split)
    if stated is not None and stated.num_examples and stated.num_examples != len(rows):
        raise ValueError(f"{len(rows)} rows came, its card says {stated.num_examples}")
    return rows


def text_file(record: DatasetRecord, name: str) -> str:
    """The content of a small text file in the set's repository."""
    from huggingface_hub import hf_hub_download

    assert record.hub is not None
    _check_connection()
    with explained(record.name, record.hub):
        path = hf_hub_download(record.hub, name, repo_type="dataset", revision=record.revision)
    return Path(path).read_text(encoding="utf-8")


def video_folder(record: DatasetRecord) -> Path:
    """A folder with the annotations and the unpacked videos of a set, downloaded once."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HOME

    assert record.hub is not None
    _check_connection()
    with explained(record.name, record.hub):
        snapshot = Path(
            snapshot_download(
                record.hub,
                repo_type="dataset",
                revision=record.revision,
                allow_patterns=[record.annotations, "*.zip", "*.tar", "*.tar.gz", "*.tar*.part*"],
                ignore_patterns=["*train*", "*raw_data/*"],
            )
        )
    target = Path(HF_HOME) / "clip-ccs" / record.name / snapshot.name
    if not (target / record.annotations).exists():
        for archive in sorted(snapshot.rglob("*")):
            unpack(archive, target)
        shutil.copy(snapshot / record.annotations, target / record.annotations)
    return target


def unpack(archive: Path, target: Path) -> None:
    """Unpack a zip, a tar, or (given the first) a tar's numbered parts; ignore other files."""
    target.mkdir(parents=True, exist_ok=True)
    name, part_of, _ = archive.name.partition(".part")
    if part_of and ".tar" in name:
        parts = sorted(archive.parent.glob(f"{name}.part*"))
        if archive == parts[0]:
            joined = target / name
            with joined.open("wb") as whole:
                for part in parts:
                    with part.open("rb") as piece:
                        shutil.copyfileobj(piece, whole)
            unpack(joined, target)
            joined.unlink()
    elif name.endswith(".zip"):
        shutil.unpack_archive(archive, target)
    elif name.endswith((".tar", ".tar.gz")):
        shutil.unpack_archive(archive, target, filter="data")
