"""Rows of encoded images with columns, the form into which every source is read."""

import hashlib
import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from ccs.data import Lazy
from ccs.data.decoding import COMPLETE, FORMATS, decode, problem, untrusted_image
from ccs.errors import InputError, require_seed

SEVERAL = "its cells are not single texts or numbers"
LAYOUTS = "give one folder per class or group, labels.csv, or another split (docs/datasets.md)"
_UNKNOWN = ("nan", "NaN", "<NA>")
"""Texts that pandas makes of a missing value."""
_WRITTEN_LIST = re.compile(r"""\[['"{].*\]|\{['"].*\}""", re.DOTALL)


@dataclass(frozen=True)
class Sample:
    """At most `max_rows` rows (None: all), drawn at random with `seed`, from each class or group."""

    max_rows: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        require_seed(self.seed)
        if self.max_rows is not None and self.max_rows < 1:
            raise InputError(f"At least one image is needed, not {self.max_rows}.")

    def draw_rows(self, rows: Sequence[int], strata: Sequence[Any] = ()) -> Sequence[int]:
        """Draw rows at random. Each stratum gives one row first, if there is room, and then its share.

        Args:
            rows: Row numbers.
            strata: The stratum of every row of the set; empty for a sample without strata.

        Returns:
            The drawn rows, in order.
        """
        if self.max_rows is None or self.max_rows >= len(rows):
            return rows
        rng = np.random.default_rng(self.seed)
        values = [repr(strata[row]) if len(strata) else "all" for row in rows]
        stratum = np.unique(values, return_inverse=True)[1]
        rank, drawn = np.empty(len(rows)), Counter[int]()
        for place in rng.permutation(len(rows)):
            rank[place] = drawn[stratum[place]]
            drawn[stratum[place]] += 1
        sizes = np.bincount(stratum)[stratum]
        priority = np.where(rank == 0, rng.random(len(rows)) - 1, (rank + rng.random(len(rows))) / sizes)
        return [rows[place] for place in sorted(np.argsort(priority, kind="stable")[: self.max_rows])]


ALL = Sample()


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Encoded images, each read when it is needed, and columns next to them.

    Attributes:
        name: The set's name, in messages.
        source: The origin of the rows, for messages.
        count: The number of rows.
        read: Returns a row's encoded image; raises OSError if the row has none.
        columns: Name -> cells, one per row: texts, numbers, or None.
        classes: Column -> its class names in the order of their numbers.
        names: The set's class names in the order of their numbers, if a separate file lists them.
        unusable: Columns that can neither label nor group images.
        notes: Remarks for the user on how the rows were read.
        by_folder: Whether the column `label` holds folder names.
        are_videos: Whether the rows hold videos.
        untrusted: Whether images are decoded in the sandbox.
    """

    name: str
    source: str
    count: int
    read: Callable[[int], bytes]
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    names: Sequence[str] = ()
    unusable: Collection[str] = ()
    notes: tuple[str, ...] = ()
    by_folder: bool = False
    are_videos: bool = False
    untrusted: bool = False

    def strings(self, column: str) -> list[str]:
        """Return a column as tidy text, with "" for empty cells.

        Raises:
            InputError: If there is no such column, or it cannot label images.
        """
        if column in self.unusable:
            raise InputError(f"The column {column!r} of {self.name!r} cannot be used: {SEVERAL}.")
        if column not in self.columns:
            listed = ", ".join(self.columns)[:300]
            raise InputError(f"{self.name!r} has no column {column!r}; its columns are {listed or 'none'}.")
        return ["" if cell is None else tidy(cell) for cell in self.columns[column]]

    def readable(
        self,
        sample: Sample = ALL,
        left_out: Mapping[int, str] = MappingProxyType({}),
        strata: Sequence[Any] = (),
        notes: Iterable[str] = (),
    ) -> tuple[list[int], dict[str, Any]]:
        """Read every image of a sample once.

        Args:
            sample: The number of rows, and the seed.
            left_out: Row -> the reason why it is skipped, "" if the skip isn't reported.
            strata: The stratum of every row; the sample is drawn from each stratum.
            notes: Further notes.

        Returns:
            The readable rows, and the fields of their `ImageSet`.

        Raises:
            InputError: If no image can be read.
        """
        digests: dict[int, bytes] = {}
        reasons, notes = {**left_out}, (*self.notes, *notes)
        for row in sample.draw_rows([row for row in range(self.count) if row not in left_out], strata):
            data = reason = self._image_or_reason(row)
            if isinstance(data, bytes):
                digest = hashlib.sha256(data).digest()
                reason = "" if self.untrusted or digest in COMPLETE else problem(data)
            if reason:
                reasons[row] = str(reason)
            else:
                digests[row] = digest
        paths = self.columns.get("file") or [f"row {row}" for row in range(self.count)]
        skipped = tuple(f"{paths[row]}: {reason}" for row, reason in reasons.items() if reason)
        if not digests:
            refusal = f"None of the {len(skipped)} images of {self.source!r} can be used."
            raise InputError(" ".join((refusal, *skipped[:1], *notes[:3])))
        COMPLETE.update(() if self.untrusted else digests.values())
        joined = b"".join(digests.values())
        return list(digests), {
            "name": self.name,
            "images": Lazy(untrusted_image if self.untrusted else decode, Lazy(self.read, tuple(digests))),
            "digests": np.frombuffer(joined, np.uint8).reshape(-1, 32),
            "fingerprint": hashlib.sha256(joined).hexdigest(),
            "source": self.source,
            "skipped": skipped,
            "notes": notes,
        }

    def _image_or_reason(self, row: int) -> bytes | str:
        """Return a row's encoded image, or the reason why there is none."""
        try:
            return self.read(row)
        except OSError as error:
            if hasattr(error, "response"):  # the Hub failed, not the image
                raise
            return error.strerror or str(error)

    def load(self, most_bytes: int) -> dict[str, Any]:
        """Read all images, and return plain values for `of_plain`, which can leave the sandbox.

        Args:
            most_bytes: Maximum size of all images in bytes if they are untrusted, which also restricts them
                to common formats; 0 for trusted images.

        Raises:
            InputError: If the images have more bytes.
        """
        images: list[bytes | str] = []
        size = 0
        for row in range(self.count):
            image = self._image_or_reason(row)
            if most_bytes and isinstance(image, bytes):
                size += len(image)
                image = problem(image, FORMATS) or image
            if size > most_bytes:
                raise InputError(f"{self.source} holds more than {most_bytes >> 20} MB once unpacked.")
            images.append(image)
        return {**vars(self), "read": images, "untrusted": bool(most_bytes)}


def of_plain(fields: Mapping[str, Any], name: str, source: str) -> Rows:
    """Make rows of images in memory.

    Args:
        fields: The result of `Rows.load`.
        name: The set's name.
        source: The origin of the rows, for messages.
    """
    return Rows(**{**fields, "read": partial(_in_memory, fields["read"]), "name": name, "source": source})


def _in_memory(images: Sequence[bytes | str], row: int) -> bytes:
    if isinstance(image := images[row], str):
        raise OSError(image)
    return image


def fingerprint(of_images: str, *labels: object) -> str:
    """Hash the fingerprint of images together with their labels."""
    return hashlib.sha256("\x00".join([of_images, *map(repr, labels)]).encode()).hexdigest()


def spread(count: int, wanted: int | None) -> range | list[int]:
    """Choose evenly spaced indices.

    Args:
        count: The number of indices.
        wanted: Maximum number to choose; None for all.
    """
    if wanted is None or wanted >= count:
        return range(count)
    return [position * count // wanted for position in range(wanted)]


# Cells ----------------------------------------------------------------------------------------------------


def tidy(cell: object) -> str:
    """Return a cell as text: HTML entities resolved, NFC, single spaces, and 7.0 as "7"."""
    text = repr(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)
    return " ".join(unicodedata.normalize("NFC", html.unescape(text)).split())


def plain(cell: Any) -> Any:
    """Return a cell as text, a number, a Boolean, or None; a list or record of one value becomes that value.

    Bytes, and lists and records of several values, are returned unchanged. They can't label images.
    """
    if isinstance(cell, dict | list) and len(cell) <= 1:
        cell = next(iter(cell.values() if isinstance(cell, dict) else cell), None)
    if cell != cell or cell in _UNKNOWN:
        return None
    if isinstance(cell, float | Decimal):
        cell = float(cell) if cell % 1 else int(cell)
    return cell if isinstance(cell, str | int | float | bytes | list | dict | None) else str(cell)


def is_several(cell: Any) -> bool:
    """Return True for bytes, a list, a record, or the text of one: a plain cell that can't label an image."""
    is_written = isinstance(cell, str) and _WRITTEN_LIST.fullmatch(cell)
    return isinstance(cell, bytes | list | dict) or bool(is_written)
