"""Searches for heads, stored next to a model's results in `<folder of results>/<model>.search.json`.

The file is next to the model's folder because a new run removes everything but its tables from that folder.
Searches of other weights than those of the results are left out.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from ccs.analysis.search import Limits, SearchOutcome
from ccs.errors import InputError
from ccs.files import write_text
from ccs.results import SEARCH_SUFFIX, folder_name

MAX_BYTES = 8 * 2**20


@dataclass(frozen=True, kw_only=True)
class Search(SearchOutcome):
    """The outcome of a search, with its question.

    Attributes:
        k: K, the length of the top list of all images, or of the images of each occupation.
    """

    model: str
    weights_hash: str
    gallery: str
    attribute: str
    preserve: str
    prompts: tuple[str, ...]
    templates: tuple[str, ...]
    k: int
    seed: int
    limits: Limits

    @property
    def question(self) -> tuple[str, str, str]:
        """The question; a new search with the same question replaces the old one."""
        return self.gallery, self.attribute, self.preserve


@dataclass(frozen=True)
class _File:
    version: Literal[1]
    searches: tuple[Search, ...]


_FILE = TypeAdapter(_File)


def place(folder: Path, model: str) -> Path:
    """Return the file of a model's searches in a folder of results.

    Args:
        folder: The folder of results.
        model: The model's name.
    """
    return folder / f"{folder_name(model)}{SEARCH_SUFFIX}"


def keep(folder: Path, search: Search) -> Path:
    """Store a search next to the results, in place of any with the same question or of other weights.

    Args:
        folder: The folder of results.
        search: The search.

    Returns:
        The file.
    """
    path = place(folder, search.model)
    earlier = _read(path) if path.exists() else ()
    ours = {other.question: other for other in earlier if other.weights_hash == search.weights_hash}
    searches = [stored for _, stored in sorted({**ours, search.question: search}.items())]
    write_text(path, json.dumps(_FILE.dump_python(_File(1, tuple(searches))), indent=1) + "\n")
    return path


def beside(folder: Path, model: str, weights_hash: str) -> tuple[Search, ...]:
    """Read the searches of these weights in a folder of results; none if the file can't be used.

    Args:
        folder: The folder of results.
        model: The model's name.
        weights_hash: The hash of its weights.
    """
    try:
        stored = _read(place(folder, model))
    except InputError:
        return ()
    return tuple(search for search in stored if search.weights_hash == weights_hash)


def _read(path: Path) -> Sequence[Search]:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path} is too large for a file of searches: {path.stat().st_size:,} bytes.")
        return _FILE.validate_json(path.read_bytes(), strict=True).searches
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        location = ".".join(map(str, first["loc"]))[:80]
        raise InputError(f"{path} is not a file of clip-ccs search: {location!r}: {first['msg']}.") from None
