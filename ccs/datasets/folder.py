"""Sets on the user's own disk: a folder of images, class folders, parquet files."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from ccs.datasets.decoding import Scan, scan, spread
from ccs.datasets.table import ImageTable, open_parquet
from ccs.errors import InputError
from ccs.files import as_text, read_text
from ccs.image_sets import ClassificationSet, ImageSet

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"})


def files(folder: Path, suffixes: frozenset[str] = SUFFIXES) -> list[Path]:
    """The files with these suffixes below `folder`, ordered by path, without hidden ones."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    return [
        path
        for name, path in sorted(found.items())
        if path.suffix.lower() in suffixes and "/." not in f"/{name}" and path.is_file()
    ]


def _existing(path: str | Path) -> Path:
    found = Path(path).expanduser()
    if not found.exists():
        raise InputError(f"{str(path)!r} does not exist; give a folder of images or a parquet file.")
    return found


def image_set(path: str | Path, max_images: int | None = None) -> ImageSet:
    """The images in a folder (at any depth), a parquet file or a folder of parquet files.

    If there are more than `max_images`, evenly spaced ones are used. Raises InputError if there are none.
    """
    folder = _existing(path)
    paths = [] if folder.is_file() else files(folder)
    if folder.is_file() or (not paths and files(folder, frozenset({".parquet"}))):
        return table_images(open_parquet(folder), max_images, source=str(path))
    if not paths:
        raise InputError(f"There are no images in {str(path)!r} (looked for {', '.join(sorted(SUFFIXES))}).")
    found = scan_files([paths[index] for index in spread(len(paths), max_images)], folder, str(path))
    return ImageSet(name=as_text(folder.resolve().name), **found.fields())


def scan_files(paths: Sequence[Path], folder: Path, source: str) -> Scan:
    """The `scan` of image files below `folder`."""
    return scan(
        lambda entry: paths[entry].read_bytes(),
        range(len(paths)),
        lambda entry: as_text(paths[entry].relative_to(folder).as_posix()),
        as_text(source),
    )


def scan_column(table: ImageTable, column: str, max_images: int | None, source: str) -> Scan:
    """The `scan` of one column of images; of at most `max_images`, evenly spaced."""
    return scan(table.encoded(column), spread(len(table), max_images), "row {}".format, source)


def table_images(table: ImageTable, max_images: int | None = None, *, source: str) -> ImageSet:
    """The images in a table's first column of images, as in `image_set`."""
    found = scan_column(table, table.image_column(), max_images, source)
    return ImageSet(name=table.name, **found.fields())


def classification_set(
    path: str | Path,
    *,
    name: str,
    templates: Sequence[str],
    class_names: Callable[[Sequence[str]], Sequence[str]] | None = None,
    first_word: bool = False,
    subsets: Mapping[str, Sequence[str]] | None = None,
    max_images: int | None = None,
) -> ClassificationSet:
    """Images in one folder per class, or with `first_word` images whose file names start with their class.

    With `first_word` a class is the file's name up to the first "_". `class_names` turns folders' names into
    classes; by default "_" and "-" become spaces. A folder `test` or `val` (with `first_word`: `images`) is
    entered if there is one. `subsets`: name -> classes, by the folders' names. Raises InputError if there are
    no images, or if classes of a subset are missing.
    """
    folder = _existing(path)
    for inner in ("images",) if first_word else ("test", "val", "validation"):
        if (folder / inner).is_dir():
            folder = folder / inner
            break

    def label(path: Path) -> str:
        return as_text(path.name.split("_")[0] if first_word else path.relative_to(folder).parts[0])

    paths = [path for path in files(folder) if first_word or path.parent != folder]
    if not paths:
        raise InputError(f"{str(path)!r} has no class folders with images in them.")
    folders = sorted(set(map(label, paths)))
    chosen = [paths[index] for index in spread(len(paths), max_images)]
    found = scan_files(chosen, folder, str(path))
    labels = np.array([folders.index(label(chosen[entry])) for entry in found.kept], np.int64)
    spaced = [name.replace("_", " ").replace("-", " ") for name in folders]
    classes = tuple(class_names(folders) if class_names else spaced)
    return ClassificationSet(
        name=name,
        labels=labels,
        classes=classes,
        templates=tuple(templates),
        subsets=subset_indices(name, subsets or {}, folders),
        **found.fields(labels.tolist(), classes),
    )


def read_labels(path: Path, needed: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a CSV file of labels. Raises InputError without rows or a needed column."""
    return label_rows(read_text(path), str(path), needed)


def label_rows(text: str, name: str, needed: Sequence[str]) -> list[dict[str, str]]:
    """The rows in the text of a CSV, as in `read_labels`; `name`: its name in errors."""
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise InputError(f"{name} cannot be read as CSV: {error}.") from None
    if not rows or not set(needed) <= set(rows[0]):
        raise InputError(f"{name} needs rows with the columns {', '.join(needed)}.")
    if any(None in row or None in row.values() for row in rows):
        raise InputError(f"{name} has rows with more or fewer cells than its header.")
    return rows


def subset_indices(
    name: str, subsets: Mapping[str, Sequence[str]], classes: Sequence[str]
) -> dict[str, tuple[int, ...]]:
    """The indices of each subset's classes. Raises InputError for a class missing from the data."""
    needed = {label for members in subsets.values() for label in members}
    if missing := sorted(needed - set(classes)):
        raise InputError(f"{name!r} lacks the classes {', '.join(missing)}, which its subsets need.")
    return {key: tuple(map(classes.index, members)) for key, members in subsets.items()}
