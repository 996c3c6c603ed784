"""Getting a set's rows and files from the Hub, with one clear sentence where that cannot be."""

from __future__ import annotations

import shutil
import ssl
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from ccs.datasets.source import Source
from ccs.datasets.table import Table
from ccs.errors import InputError

STREAM_SEED = 0
"""Seed of the shuffled stream that part of a large set is taken from."""


@cache
def _look_for_it() -> None:
    """Ask once whether the Hub answers at all. If not, its libraries are left with what they have cached:
    they try each file for half a minute before they give up.
    """
    import datasets
    from huggingface_hub import constants

    asked = urllib.request.Request(constants.ENDPOINT, method="HEAD")
    try:
        urllib.request.urlopen(asked, timeout=10).close()
    except urllib.error.HTTPError:
        pass  # an answer
    except OSError as error:
        # huggingface_hub may know certificates that Python does not.
        if not isinstance(getattr(error, "reason", error), ssl.SSLError):
            constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True


@contextmanager
def _explained(name: str, hub: str) -> Iterator[None]:
    """Turns what `datasets` and huggingface_hub raise into an InputError that says what to do."""
    import datasets
    import huggingface_hub.errors as hub_errors

    local = f"or put a local copy in $CCS_DATA/{name} (docs/datasets.md says how)"
    unreachable = f"{name!r} cannot be fetched from the Hub ({hub}): no connection; {local[3:]}."
    try:
        yield
    except hub_errors.GatedRepoError as error:
        raise InputError(_gated(name, hub, local)) from error
    except (datasets.exceptions.DatasetNotFoundError, hub_errors.RepositoryNotFoundError) as error:
        # What huggingface_hub says of any missing repository has the word "gated" in it too.
        if "is a gated dataset" in str(error):
            raise InputError(_gated(name, hub, local)) from error
        if str(error).startswith("Revision"):  # of datasets; huggingface_hub has an error of its own for it
            raise InputError(_gone(name, hub, local)) from error
        raise InputError(
            f"{name!r} was not found on the Hub as {hub!r}: it may have been renamed, removed or made "
            f"private; look it up there, {local}."
        ) from error
    except (ConnectionError, hub_errors.OfflineModeIsEnabled, hub_errors.LocalEntryNotFoundError) as error:
        raise InputError(unreachable) from error
    except (hub_errors.RevisionNotFoundError, hub_errors.EntryNotFoundError) as error:
        raise InputError(_gone(name, hub, local)) from error
    except hub_errors.HfHubHTTPError as error:
        raise InputError(
            f"{name!r}: the Hub refused {hub!r} ({error.response.status_code}); {local[3:]}."
        ) from error
    except (ValueError, FileNotFoundError, datasets.exceptions.DatasetsError) as error:
        if isinstance(error, InputError):
            raise
        if datasets.config.HF_HUB_OFFLINE and not Path(hub).is_dir():
            raise InputError(unreachable) from error
        why = " ".join(str(error).split())[:300]
        raise InputError(f"{name!r} could not be read from {hub!r} ({why}); {local[3:]}.") from error


def _gated(name: str, hub: str, local: str) -> str:
    return (
        f"{name!r} is gated on the Hub: accept its terms on the page of {hub!r} and log in with "
        f"`hf auth login`, {local}."
    )


def _gone(name: str, hub: str, local: str) -> str:
    return f"{hub!r} no longer has the file or revision that {name!r} needs; {local[3:]}."


def rows(source: Source, max_rows: int | None = None) -> Table:
    """The rows of a set. Part of a large set is streamed in a fixed shuffled order instead of downloading
    it all.
    """
    if source.hub is None:
        raise InputError(
            f"{source.name!r} is not on the Hub; put a local copy in $CCS_DATA/{source.name} "
            f"({source.verified})."
        )
    return any_rows(
        source.hub,
        name=source.name,
        config=source.config,
        split=source.split,
        revision=source.revision,
        max_streamed=max_rows if source.large else None,
    )


def any_rows(
    hub: str,
    *,
    name: str,
    config: str | None = None,
    split: str,
    revision: str | None = None,
    max_streamed: int | None = None,
) -> Table:
    """The rows of any data set of the Hub, or of a local folder laid out like one."""
    import datasets

    if not Path(hub).is_dir():
        _look_for_it()
    with _explained(name, hub):
        if max_streamed is None:
            return Table(_whole_split(hub, config, split, revision), name)
        stream = datasets.load_dataset(hub, config, split=split, revision=revision, streaming=True)
        features = stream.features
        for column, feature in (features or {}).items():
            if isinstance(feature, datasets.Image):
                stream = stream.cast_column(column, datasets.Image(decode=False))
        part = list(stream.shuffle(seed=STREAM_SEED, buffer_size=1000).take(max_streamed))
        taken = datasets.Dataset.from_list(part)
        if features is not None:
            taken = taken.cast(features)
        return Table(taken, name)


def _whole_split(hub: str, config: str | None, split: str, revision: str | None) -> Any:
    """A `datasets.Dataset` of one split. Its files alone are fetched; `load_dataset` fetches every split's.

    ValueError where the split is not there or has not the rows that its card says.
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
        verification_mode="no_checks",  # they would miss the other splits; the rows are counted here
    )
    stated = (builder.info.splits or {}).get(split)
    if stated is not None and stated.num_examples and stated.num_examples != len(rows):
        raise ValueError(f"{len(rows)} rows came, its card says {stated.num_examples}")
    return rows


def text_file(source: Source, name: str) -> str:
    """A small text file of the set's repository."""
    from huggingface_hub import hf_hub_download

    assert source.hub is not None
    _look_for_it()
    with _explained(source.name, source.hub):
        path = hf_hub_download(source.hub, name, repo_type="dataset", revision=source.revision)
    return Path(path).read_text(encoding="utf-8")


def video_folder(source: Source) -> Path:
    """The annotations and the unpacked videos of a set, downloaded once."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HOME

    assert source.hub is not None
    _look_for_it()
    with _explained(source.name, source.hub):
        snapshot = Path(
            snapshot_download(
                source.hub,
                repo_type="dataset",
                revision=source.revision,
                allow_patterns=[
                    source.annotations,
                    "*.zip",
                    "*.tar",
                    "*.tar.gz",
                    "*.tar.part*",
                    "*.tar.gz.part*",
                ],
                ignore_patterns=["*train*", "*raw_data/*"],
            )
        )
    target = Path(HF_HOME) / "clip-ccs" / source.name / snapshot.name
    if not (target / source.annotations).exists():
        for archive in sorted(snapshot.rglob("*")):
            unpack(archive, target)
        shutil.copy(snapshot / source.annotations, target / source.annotations)
    return target


def unpack(archive: Path, target: Path) -> None:
    """Unpack a zip, a tar, or the first of a tar's numbered parts together with the others; leave other
    files be.
    """
    target.mkdir(parents=True, exist_ok=True)
    name = archive.name
    if name.endswith(".zip"):
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(target)
    elif name.endswith((".tar", ".tar.gz")):
        with tarfile.open(archive) as tar:
            tar.extractall(target, filter="data")
    elif ".tar" in name and ".part" in name:
        parts = sorted(archive.parent.glob(f"{name.split('.part')[0]}.part*"))
        if archive != parts[0]:
            return
        joined = target / f"{name.split('.part')[0]}.tmp"
        with joined.open("wb") as whole:
            for part in parts:
                with part.open("rb") as piece:
                    shutil.copyfileobj(piece, whole)
        with tarfile.open(joined) as tar:
            tar.extractall(target, filter="data")
        joined.unlink()
