"""The tables of a run: written aside and renamed, validated when read, from a folder or from the Hub.

A collection is a folder with one folder a model, as `precomputed/` is and as a published data set is:
`<model>/<table>.parquet` and `<model>/manifest.json` (see `ccs.schema`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ccs import schema
from ccs.errors import InputError

PRECOMPUTED = Path(__file__).resolve().parent.parent / "precomputed"
MANIFEST_FILE = "manifest.json"
HUB_FILES = ("*/*.parquet", f"*/{MANIFEST_FILE}")

Rows: TypeAlias = "pd.DataFrame | Sequence[Mapping[str, Any]]"


@dataclass(frozen=True)
class Results:
    """One model's tables (name -> rows; a table that was not computed is missing) and its manifest."""

    model: str
    folder: Path
    tables: Mapping[str, pd.DataFrame]
    manifest: Mapping[str, Any]

    def table(self, name: str) -> pd.DataFrame:
        """The table, or one without rows but with its columns where it was not computed."""
        if name not in schema.TABLES:
            raise InputError(f"There is no table {name!r}; there are {', '.join(schema.TABLES)}.")
        return self.tables[name] if name in self.tables else _to_pandas(name, to_arrow(name, []))


@dataclass(frozen=True)
class Collection:
    """Results of several models. `source` says where they are from, `notices` what was not as asked."""

    models: Mapping[str, Results]
    source: str
    revision: str | None = None
    notices: tuple[str, ...] = field(default=())


def folder_name(model: str) -> str:
    """A model's name as the name of its folder: `ViT-B-32/openai` becomes `ViT-B-32--openai`."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "--", model).strip(".-")
    if not name:
        raise InputError(f"The model name {model!r} holds no letter or digit to name a folder by.")
    return name


# Writing ------------------------------------------------------------------------------------------


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """Write the yielded path; it takes `path`'s place, whole and on the disk, if no exception is raised."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def to_arrow(name: str, rows: Rows) -> pa.Table:
    """Rows as the Arrow table of that name, columns in the schema's order.

    Raises InputError for a missing or unknown column, a wrong type, an empty cell where none may be, a value
    outside the allowed ones, or two rows of one key.
    """
    table = schema.TABLES[name]
    names = [column.name for column in table.columns]
    frame = pd.DataFrame(rows) if len(rows) else pd.DataFrame(rows, columns=names)
    _check_columns(name, frame.columns)
    try:
        arrays = [
            pa.array(
                [_plain(value) for value in frame[column].tolist()], type=table.schema.field(column).type
            )
            for column in names
        ]
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"Table {name} cannot be written: {error}.") from error
    arrow = pa.Table.from_arrays(arrays, schema=table.schema)
    _check_rows(name, arrow)
    return arrow


def _plain(value: Any) -> Any:
    """A cell without pandas' several ways to say that it is empty."""
    return (
        None if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)) else value
    )


def _check_columns(name: str, present: Iterable[str]) -> None:
    wanted, got = {column.name for column in schema.TABLES[name].columns}, set(present)
    if missing := sorted(wanted - got):
        raise InputError(f"Table {name} lacks the columns {', '.join(missing)}.")
    if unknown := sorted(got - wanted):
        raise InputError(f"Table {name} has columns that its schema does not know: {', '.join(unknown)}.")


def _check_rows(name: str, arrow: pa.Table) -> None:
    table = schema.TABLES[name]
    for column in table.columns:
        if not column.nullable and arrow[column.name].null_count:
            raise InputError(f"Table {name} has empty cells in column {column.name}, which may have none.")
        if column.among and (wrong := set(arrow[column.name].to_pylist()) - {*column.among, None}):
            allowed = ", ".join(repr(value) for value in column.among)
            raise InputError(
                f"Table {name} has {sorted(wrong)[0]!r} in column {column.name}; allowed are {allowed}."
            )
    seen: set[tuple[Any, ...]] = set()
    for row in zip(*(arrow[column].to_pylist() for column in table.key), strict=True):
        if row in seen:
            raise InputError(f"Table {name} has two rows for {dict(zip(table.key, row, strict=True))}.")
        seen.add(row)


def write_table(folder: Path, name: str, rows: Rows) -> dict[str, Any]:
    """Write one table; the same rows give the same bytes. Returns its entry in the manifest."""
    arrow, path = to_arrow(name, rows), folder / f"{name}.parquet"
    with aside(path) as temporary:
        pq.write_table(arrow, temporary, compression="zstd")
    return {"rows": arrow.num_rows, "sha256": sha256(path)}


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest, last of all: it makes the tables that it names a whole."""
    if missing := [key for key in schema.MANIFEST if key not in manifest]:
        raise InputError(f"The manifest of {folder} lacks {', '.join(missing)}.")
    with aside(folder / MANIFEST_FILE) as temporary:
        temporary.write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


# Reading ------------------------------------------------------------------------------------------


def _check_version(version: object, path: Path) -> None:
    if str(version) != str(schema.VERSION):
        raise InputError(
            f"{path} has schema version {version} and this program reads version {schema.VERSION}: "
            "compute it again, or use the release that wrote it."
        )


def read_table(path: Path) -> pd.DataFrame:
    """A table of results, validated. Nullable integers and verdicts come as pandas' `Int64` and `boolean`."""
    try:
        arrow = pq.read_table(path, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is not a readable parquet file.") from error
    metadata = {key.decode(): value.decode() for key, value in (arrow.schema.metadata or {}).items()}
    name = metadata.get("ccs_table", "")
    if name not in schema.TABLES or "ccs_schema" not in metadata:
        raise InputError(f"{path} is not a table of results that this project wrote.")
    _check_version(metadata["ccs_schema"], path)
    _check_columns(name, arrow.column_names)
    if [f.type for f in arrow.schema] != [f.type for f in schema.TABLES[name].schema]:
        raise InputError(f"{path} has columns of other types than table {name} has.")
    _check_rows(name, arrow)
    return _to_pandas(name, arrow)


def _to_pandas(name: str, arrow: pa.Table) -> pd.DataFrame:
    frame: pd.DataFrame = arrow.to_pandas()
    extension = {"int": "Int64", "bool": "boolean"}
    for column in schema.TABLES[name].columns:
        if column.nullable and column.kind in extension:
            frame[column.name] = pd.array(arrow[column.name].to_pylist(), dtype=extension[column.kind])
    return frame


def read_manifest(folder: Path) -> dict[str, Any]:
    """A model's manifest, validated."""
    path = folder / MANIFEST_FILE
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{folder} holds no {MANIFEST_FILE}, so its tables are not a finished run."
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not readable JSON.") from error
    if not isinstance(manifest, dict) or "schema_version" not in manifest:
        raise InputError(f"{path} is not a manifest of this project.")
    _check_version(manifest["schema_version"], path)
    if missing := [key for key in schema.MANIFEST if key not in manifest]:
        raise InputError(f"{path} lacks {', '.join(missing)}.")
    return manifest


def read(folder: Path) -> Results:
    """One model's results. Raises InputError if a table is missing, changed since written, or not valid."""
    manifest, tables = read_manifest(folder), {}
    for name, entry in manifest["tables"].items():
        path = folder / f"{name}.parquet"
        if not path.is_file():
            raise InputError(
                f"{folder} is incomplete: its manifest names the table {name}, which is not there."
            )
        if sha256(path) != entry["sha256"]:
            raise InputError(
                f"{path} is not the file that its manifest describes; the run may not have finished."
            )
        tables[name] = read_table(path)
    return Results(str(manifest["model"]["name"]), folder, tables, manifest)


def read_all(
    folder: Path, source: str, revision: str | None = None, notices: Sequence[str] = ()
) -> Collection:
    """All models' results in a folder; what cannot be read is left out and named in the notices."""
    models, told = {}, list(notices)
    inside = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    for path in inside:
        if path.name.startswith("."):
            continue
        try:
            results = read(path)
            models[results.model] = results
        except InputError as error:
            told.append(str(error))
    return Collection(models, source, revision, tuple(told))


def load(
    source: str | Path | None = None, *, precomputed: Path = PRECOMPUTED, cache: Path | None = None
) -> Collection:
    """Results from a folder, from `hf://datasets/USER/NAME@REVISION`, or (None) those in `precomputed`.

    The Hub's files are cached (in `cache`, or where huggingface_hub does). Where the Hub cannot be reached or
    has nothing to read, the cached copy of that revision is used, and without one the shipped results;
    `source` and `notices` say so. Raises InputError for an address that is not one, or a folder that is not
    there.
    """
    if source is None:
        return read_all(precomputed, f"the results shipped with the program ({precomputed})")
    text = str(source)
    if not text.startswith("hf://"):
        folder = Path(source)
        if not folder.is_dir():
            raise InputError(f"There is no folder {text} to load results from.")
        return read_all(folder, f"the folder {text}")
    return _load_hub(text, precomputed, cache)


def parse_address(address: str) -> tuple[str, str | None]:
    """`hf://datasets/USER/NAME@REVISION` as (repository, revision or None)."""
    match = re.fullmatch(r"hf://datasets/([\w.-]+/[\w.-]+)(?:@([\w./-]+))?/?", address)
    if not match:
        raise InputError(
            f"{address!r} is no address of results; one looks like hf://datasets/USER/NAME@REVISION."
        )
    return match[1], match[2]


def _load_hub(address: str, precomputed: Path, cache: Path | None) -> Collection:
    # Imported here: the embedded default never needs the Hub, and the import takes time.
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HFValidationError

    repository, revision = parse_address(address)
    endpoint = os.environ.get("HF_ENDPOINT") or None
    kind: dict[str, Any] = {"repo_type": "dataset", "allow_patterns": list(HUB_FILES)}
    kind |= {"cache_dir": cache, "endpoint": endpoint}
    notices: list[str] = []
    try:
        # Asked first, for snapshot_download turns to its cache by itself and does not say so.
        HfApi(endpoint=endpoint).dataset_info(repository, revision=revision, timeout=10)
        folder = Path(snapshot_download(repository, revision=revision, **kind))
        found = read_all(folder, f"the Hub ({address}, commit {folder.name[:12]})", folder.name)
        if found.models:
            return found
        notices += [f"{address} holds no results that can be read.", *found.notices]
    except HFValidationError as error:
        raise InputError(f"{address!r} is no address of results: {error}.") from error
    except Exception as error:  # whatever goes wrong between here and the Hub, there is something to show
        notices.append(f"{address} could not be loaded: {_why(error)}.")
    try:
        cached = Path(snapshot_download(repository, revision=revision, local_files_only=True, **kind))
        source = f"the cached copy of {address} (commit {cached.name[:12]})"
        found = read_all(cached, source, cached.name, notices)
        if found.models:
            return found
        notices = list(found.notices)
    except Exception:  # the cache says "not there" with several unrelated exceptions
        notices.append(f"There is no cached copy of {address}.")
    return read_all(precomputed, f"the results shipped with the program ({precomputed})", None, notices)


def _why(error: Exception) -> str:
    """One line on what went wrong; an error's text may quote request headers, so only its status is told."""
    response = getattr(error, "response", None)
    if response is not None:
        meaning = {
            401: "the token is missing or not valid",
            403: "access is not allowed",
            404: "it does not exist",
        }
        return f"status {response.status_code}, {meaning.get(response.status_code, 'the Hub refused')}"
    return type(error).__name__
