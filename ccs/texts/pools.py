"""Pools of texts, each text with its concept where that is known.

Two pools are bundled: `world` (everything the synthetic world can show, worded as in its captions) and
`photographs` (general descriptions). `reference` is the paper's, 3,498 texts without concepts, which only its
authors may publish: it is fetched once, and checked by its hash. A custom pool is a table (CSV, TSV, or JSON)
with a column `text` and optionally `concept`, or any other text file, with one text per line.

    >>> make_pool("mine", [("a red cat", "Colors"), ("A Red  cat", None), ("a dog", None)]).texts
    ('a red cat', 'a dog')
"""

import hashlib
import http.client
import json
import os
import urllib.request
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path

from ccs.errors import InputError
from ccs.files import TABLE_ENDINGS, atomic_write, read_rows, read_text, sha256

POOLS = ("world", "photographs")
REFERENCE = "reference"
REFERENCE_FILE = "image_descriptions_general.txt"
REFERENCE_SHA256 = "39c6bf3e788684d9e0e8afa902c13aae1ee8eafefdbab94ba923fd05b9038630"
REFERENCE_LONGEST = 62
"""Characters of its longest text."""
ADDRESS = (
    "https://raw.githubusercontent.com/yossigandelsman/clip_text_span/"
    f"045b84f4591ae7a7dd8eb8f400bfb48ffb148251/text_descriptions/{REFERENCE_FILE}"
)
"""The file in a commit whose README reads it."""
_MOST_BYTES = 1_000_000


@dataclass(frozen=True)
class Pool:
    """Texts in order, without two that differ only in case and spaces.

    `concepts`: one per text, None if it has no tag; `fingerprint` (SHA-256) changes with any text, tag or
    their order; `dropped` counts the repetitions that were left out.
    """

    name: str
    texts: tuple[str, ...]
    concepts: tuple[str | None, ...]
    fingerprint: str
    dropped: int

    @cached_property
    def _tags(self) -> dict[str, str | None]:
        return dict(zip(self.texts, self.concepts, strict=True))

    def __len__(self) -> int:
        return len(self.texts)

    def concept_of(self, text: str) -> str | None:
        """Return the text's tag; None if it has none or is not in the pool."""
        return self._tags.get(text)


def make_pool(name: str, rows: Iterable[tuple[str, str | None]]) -> Pool:
    """Make a pool. Of texts that differ only in case and spaces the first is kept.

    CLIP's tokenizer ignores both, so such texts have the same embedding.

    Args:
        name: The pool's name.
        rows: Pairs of a text and its concept.

    Raises:
        InputError: No text is left.
    """
    distinct: dict[str, tuple[str, str | None]] = {}
    dropped = 0
    for text, concept in rows:
        if tidy := " ".join(text.split()):
            dropped += tidy.casefold() in distinct
            distinct.setdefault(tidy.casefold(), (tidy, (concept or "").strip() or None))
    if not distinct:
        raise InputError(f"The pool of texts {name!r} holds no text.")
    texts, concepts = zip(*distinct.values(), strict=True)
    digest = hashlib.sha256(json.dumps([texts, concepts], ensure_ascii=False).encode()).hexdigest()
    return Pool(name, texts, concepts, digest, dropped)


def load_pool(name_or_path: str | Path) -> Pool:
    """Load a pool by name (`world`, `photographs`, `reference`) or from a file: a table, or a text per line.

    Raises:
        InputError: There is no such pool, or it can't be fetched or read.
    """
    name = str(name_or_path)
    if name in POOLS:
        source = files("ccs.texts").joinpath(f"{name}.csv").read_text(encoding="utf-8")
        return make_pool(name, _read_table(source, name))
    path = _fetch_reference() if name == REFERENCE else Path(name_or_path)
    if not path.is_file():
        raise InputError(
            f"There is no pool of texts {name!r}: give one of {', '.join(POOLS)}, {REFERENCE}, a file "
            "with one text per line, or a table with a column `text`."
        )
    source = read_text(path)
    stem = name if name == REFERENCE else path.stem
    if "\0" in source:
        raise InputError(f"{name} is not a text file: it holds NUL characters.")
    if path.suffix.lower() in TABLE_ENDINGS:
        return make_pool(stem, _read_table(source, name))
    return make_pool(stem, ((line, None) for line in source.splitlines()))


def _read_table(source: str, name: str) -> list[tuple[str, str | None]]:
    table = read_rows(source.encode(), name)
    rows = [{column.casefold(): str(cell or "") for column, cell in row.items()} for row in table]
    if without := [row for row in rows if "text" not in row]:
        raise InputError(f"{name} has no column `text`; its columns are: {', '.join(without[0])}.")
    return [(row["text"], row.get("concept")) for row in rows]


# The paper's pool ------------------------------------------------------------------------------------------


def find_reference() -> Path | None:
    """Return the file of the pool `reference` in $CCS_DATA or in the cache, or None.

    Raises:
        InputError: Another file has its name.
    """
    path = next(filter(Path.is_file, _places()), None)
    if path and sha256(path) != REFERENCE_SHA256:
        raise InputError(f"{path} is not the pool `{REFERENCE}`, whose SHA-256 is {REFERENCE_SHA256}.")
    return path


def _fetch_reference() -> Path:
    """Return that file, fetched from its authors' repository if it is not here. Raises InputError."""
    if (path := find_reference()) is not None:
        return path
    with suppress(OSError, http.client.HTTPException):
        with urllib.request.urlopen(ADDRESS, timeout=30) as reply:
            content: bytes = reply.read(_MOST_BYTES)
        if hashlib.sha256(content).hexdigest() == REFERENCE_SHA256:
            with atomic_write(_places()[-1]) as temporary:
                temporary.write_bytes(content)
            return _places()[-1]
    raise InputError(
        f"The pool `{REFERENCE}` could not be fetched from {ADDRESS}: put the file into the folder "
        f"$CCS_DATA, or give it as --texts FILE; its SHA-256 is {REFERENCE_SHA256}."
    )


def _places() -> list[Path]:
    from huggingface_hub import constants

    folders = [os.environ.get("CCS_DATA"), Path(constants.HF_HOME) / "clip-ccs"]
    return [Path(folder) / REFERENCE_FILE for folder in folders if folder]
