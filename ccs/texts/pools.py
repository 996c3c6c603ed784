"""Pools of texts, each text with its concept where that is known.

Two pools ship with the package: `world` (everything the drawn world can show, worded as in its captions) and
`photographs` (general descriptions). `reference` is the study's own, without concepts, and is fetched. A
user's pool is a CSV with a column `text` and optionally `concept`, or any text file with one text per line.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path

from ccs.errors import InputError
from ccs.files import read_text
from ccs.texts import reference

POOLS = ("world", "photographs")


@dataclass(frozen=True)
class Pool:
    """Texts in order, without two that differ only in case and spaces.

    `concepts`: one per text, None where it has no tag; `fingerprint` (SHA-256) changes with any text, tag or
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
        """The text's tag; None if it has none or is not in the pool."""
        return self._tags.get(text)


def make_pool(name: str, rows: Iterable[tuple[str, str | None]]) -> Pool:
    """A pool from (text, concept) rows.

    Spaces are made single, and of texts that differ only in case the first is kept: CLIP's tokenizer ignores
    both, so such texts have the same embedding. Raises InputError if nothing is left.
    """
    kept: dict[str, tuple[str, str | None]] = {}
    dropped = 0
    for text, concept in rows:
        tidy = " ".join(text.split())
        if not tidy:
            continue
        if tidy.casefold() in kept:
            dropped += 1
            continue
        kept[tidy.casefold()] = (tidy, (concept or "").strip() or None)
    if not kept:
        raise InputError(f"The pool of texts {name!r} holds no text.")
    texts, concepts = zip(*kept.values(), strict=True)
    digest = hashlib.sha256(json.dumps([texts, concepts], ensure_ascii=False).encode()).hexdigest()
    return Pool(name, texts, concepts, digest, dropped)


def load_pool(name_or_path: str | Path) -> Pool:
    """The pool of that name (`world`, `photographs`, `reference`) or file (.csv, or one text per line).

    Raises InputError for a pool that there is not, that cannot be fetched, or cannot be read as texts.
    """
    name = str(name_or_path)
    if name in POOLS:
        source = files("ccs.texts").joinpath(f"{name}.csv").read_text(encoding="utf-8")
        return make_pool(name, _read_csv(source, name))
    path = reference.fetch() if name == reference.NAME else Path(name_or_path)
    if not path.is_file():
        raise InputError(
            f"There is no pool of texts {name!r}: give one of {', '.join(POOLS)}, {reference.NAME}, a file "
            "with one text per line, or a CSV with a column `text`."
        )
    source = read_text(path)
    stem = name if name == reference.NAME else path.stem
    if "\0" in source:
        raise InputError(f"{name} is not a text file: it holds NUL characters.")
    if path.suffix.lower() == ".csv":
        return make_pool(stem, _read_csv(source, name))
    return make_pool(stem, ((line, None) for line in source.splitlines()))


def _read_csv(source: str, name: str) -> list[tuple[str, str | None]]:
    reader = csv.DictReader(io.StringIO(source, newline=""))
    if "text" not in (reader.fieldnames or ()):
        found = ", ".join(reader.fieldnames or ()) or "none"
        raise InputError(f"{name} has no column `text`; its columns are: {found}.")
    try:
        return [(row["text"] or "", row.get("concept")) for row in reader]
    except csv.Error as error:
        raise InputError(f"{name} is not a readable CSV (line {reader.line_num}: {error}).") from None
