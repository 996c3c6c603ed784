"""The results of runs: models' tables and manifests, from a folder or from the Hub.

A collection is a folder with one folder per model, such as `precomputed/` or a published data set:
`<model>/<table>.parquet` and `<model>/manifest.json` (see `schema`). A table is a pandas frame:

    >>> from ccs import results
    >>> results.read_all(results.PRECOMPUTED, "").models["organism"].table("scores").columns[:3].to_list()
    ['model', 'weights', 'layer']
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import responses
from pathlib import Path
from typing import Any

import pandas as pd

from ccs.errors import InputError
from ccs.files import endpoint, sha256, write_text
from ccs.results import schema
from ccs.results.schema import PRECOMPUTED as PRECOMPUTED
from ccs.results.schema import empty, read_table
from ccs.results.schema import write_table as write_table

MANIFEST_FILE = "manifest.json"
SEARCH_SUFFIX = ".search.json"
"""Ending of the files of searches, which are next to the models' folders (see searches.py)."""
OUT = Path("results")
"""Folder that runs write to by default."""
STAGES = ".stages"
"""A folder next to the models' tables for this machine only, which is never published."""
MAX_MODELS, MAX_HUB_BYTES = 200, 2 * 2**30
HUB_FILES = ("*/*.parquet", f"*/{MANIFEST_FILE}", f"*{SEARCH_SUFFIX}")


@dataclass(frozen=True)
class Results:
    """One model's manifest and tables (name -> rows, without those that were not computed)."""

    model: str
    folder: Path
    tables: Mapping[str, pd.DataFrame]
    manifest: Mapping[str, Any]

    def table(self, name: str) -> pd.DataFrame:
        """Return the table; an empty one if it was not computed. Raises InputError for an unknown name."""
        if name not in schema.TABLES:
            raise InputError(f"There is no table {name!r}; there are {', '.join(schema.TABLES)}.")
        return self.tables[name] if name in self.tables else empty(name)


@dataclass(frozen=True)
class Collection:
    """Results of several models.

    Attributes:
        models: The results by the model's name.
        source: Their origin, in words.
        notices: Results that could not be read, with the reason.
    """

    models: Mapping[str, Results]
    source: str
    notices: tuple[str, ...] = ()


def folder_name(model: str) -> str:
    """Return the name of a model's folder. Raises InputError for a name without a letter or digit.

    >>> folder_name("ViT-B-32/openai")
    'ViT-B-32--openai'
    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "--", model).strip(".-")
    if not name:
        raise InputError(f"The model name {model!r} holds no letter or digit to name a folder by.")
    return name


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest, after the tables, which it marks as complete.

    Args:
        folder: The model's folder.
        manifest: The manifest.

    Raises:
        InputError: An entry is missing or has another type.
    """
    text = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
    schema.parse_manifest(text.encode(), f"{folder}/{MANIFEST_FILE}")
    write_text(folder / MANIFEST_FILE, text)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a model's manifest. Raises InputError if it is missing, unreadable, or of another schema."""
    name = f"{folder.name}/{MANIFEST_FILE}"
    try:
        with (folder / MANIFEST_FILE).open("rb") as file:
            text = file.read(schema.MAX_MANIFEST + 1)
    except FileNotFoundError:
        raise InputError(f"{folder.name} holds no {MANIFEST_FILE}: its run is not finished.") from None
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror}.") from error
    return schema.parse_manifest(text, name)


def read_results(folder: Path) -> Results:
    """Read one model's results. Raises InputError if a table is missing, invalid, or changed."""
    manifest, tables = read_manifest(folder), {}
    ours = manifest["model"]
    for name, entry in manifest["tables"].items():
        path, place = folder / f"{name}.parquet", f"{folder.name}/{name}.parquet"
        if not path.is_file() or sha256(path) != entry["sha256"]:
            raise InputError(f"{place} is not there, or not the file that its manifest describes.")
        tables[name] = read_table(path)
        models = {*zip(tables[name]["model"], tables[name]["weights"], strict=True)}
        if len(tables[name]) != entry["rows"] or models - {(ours["name"], ours["weights_hash"][:16])}:
            raise InputError(f"{place} has other rows, models, or weights than its manifest.")
    return Results(str(manifest["model"]["name"]), folder, tables, manifest)


def read_all(folder: Path, source: str, notices: Sequence[str] = ()) -> Collection:
    """Read all models' results in a folder. Models that can't be read are left out, with a notice.

    Args:
        folder: The folder.
        source: The origin of the folder, in words.
        notices: Notices to begin with.
    """
    models, all_notices = dict[str, Results](), list(notices)
    paths = folder.iterdir() if folder.is_dir() else ()
    folders = sorted(path for path in paths if path.is_dir() and path.name[0] != ".")
    if len(folders) > MAX_MODELS:
        all_notices.append(f"{source} holds {len(folders):,} models; the first {MAX_MODELS} are shown.")
    for path in folders[:MAX_MODELS]:
        try:
            results = read_results(path)
            first = models.setdefault(results.model, results)
            if first is not results:
                raise InputError(f"{path.name} is left out: {first.folder.name} holds {results.model}, too.")
        except InputError as error:
            all_notices.append(str(error))
    return Collection(models, source, tuple(all_notices))


def default_folder() -> Path:
    """Return the folder that tables are read from: `results/` if it has any, else the bundled ones."""
    return OUT if any(OUT.glob(f"*/{MANIFEST_FILE}")) else PRECOMPUTED


def load(
    source: str | Path | None = None, *, fallback: Path | None = PRECOMPUTED, cache: Path | None = None
) -> Collection:
    """Load results from a folder or the Hub.

    If the Hub can't be reached or has no readable results, the cached copy of that revision is used, or else
    the fallback; `source` and `notices` say so.

    Args:
        source: A folder, or `hf://datasets/USER/NAME@REVISION` (default: the bundled results).
        fallback: The folder of results to use if the Hub's can't be read; None for an error.
        cache: The cache (default: huggingface_hub's).

    Raises:
        InputError: An invalid address, a missing folder, or no results.
    """
    if source is None:
        return read_all(PRECOMPUTED, f"the bundled results ({PRECOMPUTED.name}/)")
    if str(source).startswith("hf://"):
        return _load_hub(str(source), fallback, cache)
    folder = Path(source).expanduser()
    if not folder.is_dir():
        raise InputError(f"There is no folder {source} to load results from.")
    return read_all(folder, f"the folder {folder.resolve().name}")


def _load_hub(address: str, fallback: Path | None, cache: Path | None) -> Collection:
    # Imported here because the import is slow and the embedded default never needs the Hub.
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

    match = re.fullmatch(r"hf://datasets/([\w.-]+/[\w.-]+)(?:@([\w./-]+))?/?", address)
    if not match:
        raise InputError(f"{address!r} is not an address of results; write hf://datasets/USER/NAME@REVISION.")
    repository, revision = match.groups()
    options: dict[str, Any] = {"repo_type": "dataset", "revision": revision, "endpoint": endpoint()}
    options |= {"allow_patterns": list(HUB_FILES), "cache_dir": cache}
    notices: list[str] = []
    for cached in (False, True):
        try:
            if not cached:  # first, because snapshot_download falls back to its cache in silence
                api = HfApi(endpoint=endpoint())
                info = api.dataset_info(repository, revision=revision, timeout=10, files_metadata=True)
                wanted = filter_repo_objects(
                    info.siblings or [], allow_patterns=list(HUB_FILES), key=lambda file: file.rfilename
                )
                if (size := sum(file.size or 0 for file in wanted)) > MAX_HUB_BYTES:
                    raise InputError(f"{address} has {size:,} bytes; at most {MAX_HUB_BYTES:,} are fetched.")
            folder = snapshot_download(repository, local_files_only=cached, **options)
        except InputError as error:
            notices.append(str(error))
        except Exception as error:  # whatever goes wrong, a missing cache included
            missing = f"There is no cached copy of {address}."
            notices.append(missing if cached else f"{address} could not be loaded: {_why(error)}.")
        else:
            place = f"{address}, commit {Path(folder).name[:12]}"
            origin = f"the cached copy ({place})" if cached else f"the Hub ({place})"
            collection = read_all(Path(folder), origin, notices)
            if collection.models:
                return collection
            notices = [*collection.notices, f"{address} holds no results that can be read."]
    if fallback is None:
        raise InputError(" ".join(notices))
    return read_all(fallback, f"the bundled results ({fallback.name}/)", notices)


def _why(error: Exception) -> str:
    """Return the reason in a few words; only the status of an HTTP answer, since errors may quote headers."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return f"status {status} ({responses.get(status, 'refused')})" if status else type(error).__name__
