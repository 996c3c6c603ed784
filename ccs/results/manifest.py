"""Validation of manifests, which may come from a stranger on the Hub."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from ccs.errors import InputError
from ccs.results import schema
from ccs.results.table import check_version

MAX_BYTES = 8 * 2**20


def _model_name(name: str) -> str:
    path = name.startswith(("/", "~", ".", "local-dir:")) or "\\" in name or ".." in name.split("/")
    if not name.isprintable() or not name.strip() or path:
        raise ValueError("this is no name of a model")
    return name


def _table_name(name: str) -> str:
    if name not in schema.TABLES:
        raise ValueError("this is no name of a table")
    return name


Name = Annotated[str, Field(max_length=200), AfterValidator(_model_name)]
Records = list[dict[str, Any]]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class _Model(_Part):
    name: Name
    weights_hash: str = ""


class _Judge(_Part):
    name: Annotated[str, Field(max_length=200)]
    stand_in: bool = False


class _Table(_Part):
    rows: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Manifest(_Part):
    """The types of the entries that are read by programs; `schema.MANIFEST` says what each means."""

    schema_version: str | int
    created: str
    model: _Model
    texts: dict[str, Any]
    images: dict[str, Any]
    sets: Records
    labeler: dict[str, Any] | None
    judges: list[_Judge]
    chance_ccs: list[Annotated[float, Field(ge=0, le=1)]]
    settings: dict[str, Any]
    seeds: dict[str, Any]
    versions: dict[str, Any]
    largest_error: dict[str, Any]
    measured: dict[str, Any]
    absent: Records
    tables: dict[Annotated[str, AfterValidator(_table_name)], _Table]


def parse(text: bytes, name: str) -> dict[str, Any]:
    """The manifest in a file's content; `name`: its name in errors.

    Raises InputError for content that is not JSON, has another schema version, or entries of other types.
    """
    if len(text) > MAX_BYTES:
        raise InputError(f"{name} is larger than a manifest is: {len(text):,} bytes.")
    try:
        found = from_json(text)
    except ValueError:  # also for deep nesting
        raise InputError(f"{name} is not readable JSON.") from None
    if not isinstance(found, dict) or "schema_version" not in found:
        raise InputError(f"{name} is not a manifest of this project.")
    check_version(found["schema_version"], name)
    if missing := [key for key in schema.MANIFEST if key not in found]:
        raise InputError(f"{name} lacks {', '.join(missing)}.")
    try:
        Manifest.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{name} is no manifest of results: {where[:80]!r}: {first['msg']}.") from None
    return found
