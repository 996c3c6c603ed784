"""Rows of encoded images with columns beside them: the one form in which every source is read."""

from __future__ import annotations

import csv
import hashlib
import io
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any
from zipfile import ZipFile, ZipInfo

import numpy as np
from PIL import Image

from ccs.data import Lazy
from ccs.data.decoding import decode, problem, untrusted_image
from ccs.data.digests import Digests, identity
from ccs.errors import InputError, require
from ccs.files import as_text, sha256

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"})
IMAGE_COLUMNS = ("image", "img", "jpg", "png", "webp", "picture", "photo")
LABELS = "labels.csv"
Files = Mapping[str, Callable[[], bytes]]
"""A folder's or a zip's files: path -> a function that reads it."""


@dataclass(frozen=True)
class Readable:
    """The images of some rows (`kept`) that can be read, and why the others are skipped. digests: uint8
    [images, 32], the SHA-256 of each one's encoded bytes; the fingerprint is a SHA-256 over these.
    """

    images: Lazy[Image.Image]
    kept: tuple[int, ...]
    digests: np.ndarray
    source: str
    skipped: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.digests.tobytes()).hexdigest()

    def of(self, cells: Sequence[Any]) -> np.ndarray:
        """The cells of the readable rows, of a column of all rows."""
        return np.array(cells)[list(self.kept)]

    def fields(self, *labels: object) -> dict[str, Any]:
        """The fields of an ImageSet except its name; the fingerprint includes the labels."""
        text = "\x00".join([self.fingerprint, *map(repr, labels)])
        fingerprint = hashlib.sha256(text.encode()).hexdigest() if labels else self.fingerprint
        about = {"fingerprint": fingerprint, "source": self.source, "skipped": self.skipped}
        return {"images": self.images, "digests": self.digests, **about}


@dataclass(frozen=True)
class Rows:
    """Encoded images, each read when it is needed, and columns beside them.

    name: the set's, in messages. source: where the rows come from. read: row -> encoded image; OSError for a
    row without one. columns: name -> cells, one per row. classes: column -> the names of its class numbers.
    called: row -> its name in messages. identity: of the files that they are in. strange: they
    come from a stranger: `read` gives whole images only, and these are decoded in the sandbox.
    """

    name: str
    source: str
    count: int
    read: Callable[[int], bytes]
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    called: Callable[[int], str] = "row {}".format
    identity: str = ""
    strange: bool = False

    def column(self, column: str) -> Sequence[Any]:
        """A column as it is. Raises InputError, with the existing columns, if it is missing."""
        if column not in self.columns:
            known = ", ".join(self.columns)
            raise InputError(f"{self.name!r} has no column {column!r}; its columns are {known}.")
        return self.columns[column]

    def strings(self, column: str) -> list[str]:
        """A column as text without space around it, class numbers as the classes' names; "" for no label."""
        names, cells = self.classes.get(column), self._cells(column)
        return ["" if cell is None else str(names[cell] if names else cell).strip() for cell in cells]

    def labels(self, column: str) -> tuple[list[int], tuple[str, ...] | None]:
        """The class numbers of all rows, -1 for no label, and the classes' names (None for bare numbers)."""
        cells = self._cells(column)
        if all(
            cell is None or (isinstance(cell, int | float) and float(cell).is_integer()) for cell in cells
        ):
            numbers = [-1 if cell is None else int(cell) for cell in cells]
            return numbers, tuple(self.classes[column]) if column in self.classes else None
        texts = self.strings(column)
        names = sorted({text for text in texts if text})
        number = {name: i for i, name in enumerate(names)}
        return [number.get(text, -1) for text in texts], tuple(names)

    def _cells(self, column: str) -> list[Any]:
        """A column, None for no label: an empty cell, NaN, or the -1 of `datasets`' class numbers."""
        nothing = ("", -1) if column in self.classes else ("",)
        return [None if cell != cell or cell in nothing else cell for cell in self.column(column)[:]]

    def readable(
        self,
        most: int | None = None,
        among: Sequence[int] | None = None,
        unlabeled: Mapping[int, str] = MappingProxyType({}),
    ) -> Readable:
        """Read every image once, of at most `most` evenly spaced rows (`among` these, by default all), but
        for what an earlier run read of the same files. unlabeled: rows that are skipped, and why. InputError
        if none can be read.
        """
        known, digests = Digests(self.identity), list[str]()
        kept: list[int] = []
        skipped: list[str] = []
        rows = range(self.count) if among is None else among
        for row in (rows[place] for place in spread(len(rows), most)):
            digest, why = "", unlabeled.get(row, "")
            if not why:
                digest, why = known.of(row, partial(self._read, row))
            if why:
                skipped.append(f"{self.called(row)}: {why}")
                continue
            kept.append(row)
            digests.append(digest)
        known.keep()
        if not kept:
            raise InputError(
                f"None of the {len(skipped)} images of {self.source!r} can be read "
                f"(for example {skipped[0]})."
                if skipped
                else f"There are no images in {self.source!r}."
            )
        images = Lazy(partial(_image, self.read, untrusted_image if self.strange else decode), kept)
        found = np.frombuffer(bytes.fromhex("".join(digests)), np.uint8).reshape(-1, 32)
        return Readable(images, tuple(kept), found, self.source, tuple(skipped))

    def _read(self, row: int) -> tuple[str, str, int]:
        try:
            data = self.read(row)
        except OSError as error:
            return "", error.strerror or str(error), 0
        return hashlib.sha256(data).hexdigest(), "" if self.strange else problem(data), len(data)


def _image(read: Callable[[int], bytes], decoded: Callable[[bytes], Image.Image], row: int) -> Image.Image:
    return decoded(read(row))


def spread(count: int, wanted: int | None) -> range | list[int]:
    """At most `wanted` of `count` indices, evenly spaced because files and rows are often sorted by class."""
    if wanted is None or wanted >= count:
        return range(count)
    return [position * count // wanted for position in range(wanted)]


# Files ------------------------------------------------------------------------------------------------------


def files_of(path: Path) -> Files:
    """The images and tables in a folder, at any depth, or in a zip; ordered by path, without hidden ones."""
    if path.is_file():
        return {name: partial(_member, path, one.filename) for name, one in members(_opened(path)).items()}
    wanted = {*SUFFIXES, ".csv"}
    found = {one.relative_to(path).as_posix(): one for one in path.rglob("*") if one.suffix.lower() in wanted}
    shown = (name for name in sorted(found) if "/." not in f"/{name}" and found[name].is_file())
    return {name: found[name].read_bytes for name in shown}


def members(archive: ZipFile) -> dict[str, ZipInfo]:
    """The files of a zip, ordered by path; a single folder around all of them is left out of the paths."""
    found = {one.filename: one for one in archive.infolist() if not one.is_dir()}
    found = {name: found[name] for name in sorted(found) if not name.startswith((".", "__MACOSX"))}
    top = {name.split("/")[0] for name in found}
    if len(top) == 1 and any(name.count("/") > 1 or name.endswith(f"/{LABELS}") for name in found):
        return {name.partition("/")[2]: one for name, one in found.items()}
    return found


def _opened(path: Path) -> ZipFile:
    """The zip as it is now; each process opens its own, for they would move one another's place in it."""
    return _archive(path, path.stat().st_mtime_ns, os.getpid())


@lru_cache(maxsize=4)
def _archive(path: Path, changed: int, process: int) -> ZipFile:
    try:
        return ZipFile(path)
    except Exception as error:  # zipfile raises many kinds
        raise InputError(f"{str(path)!r} cannot be read as zip ({error}).") from None


def _member(path: Path, name: str) -> bytes:
    return _opened(path).read(name)


def of_files(
    files: Files,
    name: str,
    source: str,
    label: Callable[[str], str] | None = None,
    table: str = "",
    place: Path | None = None,
) -> Rows:
    """The images among files, with a column `label`, or with the columns of a table. Raises InputError.

    label: path -> the image's label; images with the label "" are left out. table: the path of a CSV whose
    rows are then the rows; the last two parts of `file` are enough. place: the folder or zip that they are
    in.
    """
    images = {path: read for path, read in files.items() if Path(path).suffix.lower() in SUFFIXES}
    if table:
        cells = _csv(files[table](), f"{source}/{table}")
    elif label is not None:
        cells = [{"file": path, "label": as_text(label(path))} for path in images if label(path)]
    else:
        cells = [{"file": path} for path in images]
    ends = {_end(path): read for path, read in images.items()}
    found = [images.get(row["file"]) or ends.get(_end(row["file"])) for row in cells]
    columns = {column: [row[column] for row in cells] for column in (cells[0] if cells else ())}
    called = [as_text(row["file"]) for row in cells]
    places = [] if place is None else [place] if place.is_file() else [place / path for path in images]
    known = identity(places, *called)
    read = partial(_file, found)
    if table and len(cells) < len(images):
        source = f"{source} ({len(cells)} of its {len(images)} images, those in {Path(table).name})"
    return Rows(name, as_text(source), len(cells), read, columns, {}, called.__getitem__, known)


def _file(found: Sequence[Callable[[], bytes] | None], row: int) -> bytes:
    read = found[row]
    if read is None:
        raise FileNotFoundError(2, "no such file")
    return read()


def _end(path: str) -> str:
    return "/".join(path.split("/")[-2:])


def _csv(data: bytes, name: str) -> list[dict[str, str]]:
    try:
        rows = list(csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline="")))
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{name} cannot be read as CSV in UTF-8: {error}.") from None
    if not rows or "file" not in rows[0]:
        found = f"it has {', '.join(rows[0])}" if rows else "it has no rows"
        raise InputError(f"{name} needs a column `file`, columns of labels, and commas between; {found}.")
    if any(None in row or None in row.values() for row in rows):
        raise InputError(f"{name} has rows with more or fewer cells than its header.")
    named = Counter(row["file"] for row in rows)
    if twice := next((file for file, count in named.items() if count > 1), None):
        raise InputError(f"{name} names {as_text(twice)} twice; an image has one row.")
    return rows


# Parquet ----------------------------------------------------------------------------------------------------


def of_dataset(rows: Any, name: str, source: str, image: str = "image") -> Rows:
    """The rows of a `datasets.Dataset`, which stay on disk; `image`: its column of images, if it is there."""
    require("data", "datasets")
    import datasets

    features = dict(rows.features)
    pictures = [column for column, feature in features.items() if isinstance(feature, datasets.Image)]
    usual = [column for column in (image, *pictures, *IMAGE_COLUMNS) if column in features]
    if not usual:
        raise InputError(f"{name!r} has no column of images; its columns are {', '.join(features)}.")
    for column in pictures:
        rows = rows.cast_column(column, datasets.Image(decode=False))
    read = partial(_cell, rows.select_columns(usual[:1]), usual[0])
    classes = {
        column: tuple(feature.names)
        for column, feature in features.items()
        if isinstance(feature, datasets.ClassLabel)
    }
    columns = {column: rows[column] for column in features}  # read when they are asked for
    known = identity(Path(file["filename"]) for file in rows.cache_files)
    return Rows(name, source, len(rows), read, columns, classes, identity=known)


def _cell(cells: Any, column: str, row: int) -> bytes:
    return encoded(cells[row][column])


def encoded(cell: Any) -> bytes:
    """The encoded image in a cell. Raises OSError where there is none."""
    data = cell.get("bytes") if isinstance(cell, dict) else cell
    if data is None and isinstance(cell, dict) and cell.get("path"):
        return Path(cell["path"]).read_bytes()
    if not isinstance(data, bytes):
        raise OSError("no image in this row")
    return data


def of_parquet(path: Path, name: str, image: str = "image") -> Rows:
    """The rows of a parquet file, or of a folder of them (those of the test split, where so named)."""
    require("data", "datasets")
    import datasets

    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    for split in ("test", "validation", "val"):
        matching = [file for file in files if split in file.relative_to(path.parent).as_posix().lower()]
        if path.is_dir() and matching:
            files = matching
            break
    shown = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()  # reading is fast; a bar would be the caller's first output
    try:
        rows = datasets.Dataset.from_parquet([str(file) for file in files])
    except (datasets.exceptions.DatasetsError, OSError, ValueError) as error:
        why = " ".join(str(error).split())
        raise InputError(f"{str(path)!r} cannot be read as parquet ({why}).") from error
    finally:
        if shown:
            datasets.enable_progress_bars()
    source = as_text(str(path)) if path.is_dir() else f"{as_text(str(path))} (SHA-256 {sha256(path)[:16]})"
    return of_dataset(rows, name, source, image)
