"""Rows of encoded images with columns: the one form in which every source is read."""

from __future__ import annotations

import hashlib
import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from PIL import Image

from ccs.data import Lazy
from ccs.data.decoding import decode, problem, untrusted_image
from ccs.data.digests import DigestCache
from ccs.errors import InputError


@dataclass(frozen=True)
class Sample:
    """At most `max_rows` rows (None: all), drawn at random with `seed`, from each class or group."""

    max_rows: int | None = None
    seed: int = 0

    def of(self, rows: Sequence[int], strata: Sequence[Any] = ()) -> Sequence[int]:
        """Draw from the rows; each stratum gives one row if there is room, and then its share.

        Args:
            rows: The rows.
            strata: A value for each of `rows`; none for a sample from all.

        Returns:
            The rows drawn, in their order.
        """
        if self.max_rows is None or self.max_rows >= len(rows):
            return rows
        rng = np.random.default_rng(self.seed)
        _, stratum = np.unique(list(map(repr, strata)) or ["all"] * len(rows), return_inverse=True)
        rank, drawn = np.empty(len(rows)), Counter[int]()
        for place in rng.permutation(len(rows)):
            rank[place] = drawn[stratum[place]]
            drawn[stratum[place]] += 1
        sizes = np.bincount(stratum)[stratum]
        priority = np.where(rank == 0, rng.random(len(rows)) - 1, (rank + rng.random(len(rows))) / sizes)
        return [
            rows[place] for place in sorted(np.argsort(priority, kind="stable")[: self.max_rows].tolist())
        ]


ALL = Sample()


@dataclass(frozen=True)
class Readable:
    """The images of some rows that can be read, and why the others are skipped.

    row_numbers: the images' rows. digests: uint8 [images, 32], the SHA-256 of each image's encoded bytes.
    """

    images: Lazy[Image.Image]
    row_numbers: tuple[int, ...]
    digests: np.ndarray
    rows: Rows
    skipped: tuple[str, ...]

    def of(self, cells: Sequence[Any]) -> np.ndarray:
        """Select the cells of the readable rows from a column of all rows."""
        return np.array(cells)[list(self.row_numbers)]

    def fields(self, *labels: object) -> dict[str, Any]:
        """Return the fields of an ImageSet except its name; the fingerprint includes the labels."""
        fingerprint = hashlib.sha256(self.digests.tobytes()).hexdigest()
        if labels:
            fingerprint = hashlib.sha256("\x00".join([fingerprint, *map(repr, labels)]).encode()).hexdigest()
        return {
            "images": self.images,
            "digests": self.digests,
            "fingerprint": fingerprint,
            "source": self.rows.source,
            "skipped": self.skipped,
            "notes": self.rows.notes,
        }


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Encoded images, each read when it is needed, and columns next to them.

    name: the set's, in messages. source: where the rows come from. read: row -> encoded image; OSError for a
    row without one. columns: name -> cells, one per row: texts, numbers, or None. classes: column -> its
    class names in the order of their numbers. unusable: column -> why it can neither label nor group images.
    identity: of the files that hold them. notes: what a user should know about how they were read. by_folder:
    the column `label` is the name of a folder. is_part: more rows were left where they come from. untrusted:
    images are decoded in the sandbox.
    """

    name: str
    source: str
    count: int
    read: Callable[[int], bytes]
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unusable: Mapping[str, str] = field(default_factory=dict)
    identity: str = ""
    notes: tuple[str, ...] = ()
    by_folder: bool = False
    is_part: bool = False
    untrusted: bool = False

    def strings(self, column: str) -> list[str]:
        """Return a column as tidy text, "" for an empty cell and NaN.

        Raises:
            InputError: If there is no such column, or it cannot label images.
        """
        if column in self.unusable:
            raise InputError(
                f"The column {column!r} of {self.name!r} cannot be used: {self.unusable[column]}."
            )
        if column not in self.columns:
            listed = ", ".join(self.columns)[:300]
            raise InputError(f"{self.name!r} has no column {column!r}; its columns are {listed or 'none'}.")
        return ["" if cell is None or cell != cell else tidy(cell) for cell in self.columns[column]]

    def readable(
        self,
        sample: Sample = ALL,
        among: Iterable[int] | None = None,
        unlabeled: Mapping[int, str] = MappingProxyType({}),
        strata: Sequence[Any] = (),
    ) -> Readable:
        """Read every image of a sample once, except for images that an earlier run read from the same files.

        Args:
            sample: The number of rows, and the seed.
            among: The rows to draw from; by default all.
            unlabeled: Rows that are skipped, with the reason.
            strata: A value for each row of the set; the sample is drawn from each value's rows.

        Raises:
            InputError: If no image can be read.
        """
        paths = self.columns.get("file")
        reasons = dict(unlabeled)
        rows = [row for row in (range(self.count) if among is None else among) if row not in unlabeled]
        cache = DigestCache(self.identity)
        digests: dict[int, str] = {}
        for row in sample.of(rows, [strata[row] for row in rows] if len(strata) else ()):
            digests[row], reasons[row] = cache.get(row, partial(self._digest, row))
        cache.save()
        skipped = tuple(
            f"{paths[row] if paths else f'row {row}'}: {reason}" for row, reason in reasons.items() if reason
        )
        readable_rows = tuple(row for row in digests if not reasons[row])
        if not readable_rows:
            refusal = f"There are no images in {self.source!r}."
            if skipped:
                refusal = f"None of the {len(skipped)} images of {self.source!r} can be used: {skipped[0]}."
            raise InputError(" ".join((refusal, *self.notes[:3])))
        images = Lazy(
            partial(_decoded, self.read, untrusted_image if self.untrusted else decode), readable_rows
        )
        hashes = np.frombuffer(bytes.fromhex("".join(digests[row] for row in readable_rows)), np.uint8)
        return Readable(images, readable_rows, hashes.reshape(-1, 32), self, skipped)

    def _digest(self, row: int) -> tuple[str, str, int]:
        """Return the SHA-256 of an image's bytes, the reason why it can't be read or "", and its bytes."""
        try:
            data = self.read(row)
        except OSError as error:
            return "", error.strerror or str(error), 0
        return hashlib.sha256(data).hexdigest(), "" if self.untrusted else problem(data), len(data)


def _decoded(read: Callable[[int], bytes], decoder: Callable[[bytes], Image.Image], row: int) -> Image.Image:
    return decoder(read(row))


def tidy(cell: object) -> str:
    """Return a cell as text: entities resolved, Unicode composed, single spaces, whole floats as whole."""
    text = repr(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)
    return " ".join(unicodedata.normalize("NFC", html.unescape(text)).split())


def merge_spellings(names: Iterable[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Map names that are one text to a model to their most frequent spelling.

    Case, spaces, underscores, and hyphens make no difference.

    Returns:
        Each name's spelling, and a note for each name that is merged into another.
    """
    counts = Counter(names)
    spellings: dict[str, list[str]] = {}
    for name in sorted(counts, key=lambda name: (-counts[name], name)):
        spellings.setdefault(one_text(name), []).append(name)
    merged = {name: group[0] for group in spellings.values() for name in group}
    notes = tuple(
        f"{name!r} is read as {first!r}" for name, first in merged.items() if name != first and name
    )
    return merged, notes


def one_text(name: str) -> str:
    """Return what is left of a name where case, spaces, underscores, and hyphens make no difference."""
    return " ".join(re.sub(r"_|(?<=\w)-(?=\w)", " ", tidy(name)).split()).casefold()


def in_order(names: Iterable[str]) -> list[str]:
    """Sort names: whole numbers by value, others as text."""
    names = list(names)
    numbers = all(re.fullmatch(r"\d{1,9}", name, re.ASCII) for name in names)
    return sorted(names, key=lambda name: (int(name), name) if numbers else (0, name))


def spread(count: int, wanted: int | None) -> range | list[int]:
    """Choose evenly spaced indices.

    Args:
        count: The number of indices.
        wanted: The most to choose; None for all.
    """
    if wanted is None or wanted >= count:
        return range(count)
    return [position * count // wanted for position in range(wanted)]
