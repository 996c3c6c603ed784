"""Sets from the reader's own disk: a folder of images, class folders, parquet files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ccs.datasets.images import Scan, scan, spread, with_labels
from ccs.datasets.sets import ClassificationSet, ImageSet
from ccs.datasets.table import ImageTable, open_parquet
from ccs.errors import InputError

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"})


def files(folder: Path, suffixes: frozenset[str] = SUFFIXES) -> list[Path]:
    """Files of these kinds below `folder`, in the order of their paths, hidden ones left out."""
    found = (path for path in folder.rglob("*") if path.suffix.lower() in suffixes and path.is_file())
    visible = (
        path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    return sorted(visible, key=lambda path: path.relative_to(folder).as_posix())


def _existing(path: str | Path) -> Path:
    found = Path(path).expanduser()
    if not found.exists():
        raise InputError(f"{str(path)!r} does not exist; give a folder of images or a parquet file.")
    return found


def image_set(path: str | Path, max_images: int | None = None) -> ImageSet:
    """The images of a folder (at any depth), or of a parquet file or folder of them with a column of
    images.

    Of more than `max_images`, evenly spaced ones are taken. InputError if there are none.
    """
    folder = _existing(path)
    if folder.is_file():
        return table_images(open_parquet(folder), max_images, source=str(path))
    paths = files(folder)
    if not paths and files(folder, frozenset({".parquet"})):
        return table_images(open_parquet(folder), max_images, source=str(path))
    if not paths:
        raise InputError(f"There are no images in {str(path)!r} (looked for {', '.join(sorted(SUFFIXES))}).")
    found = scan_files([paths[index] for index in spread(len(paths), max_images)], folder, str(path))
    return ImageSet(
        name=folder.resolve().name,
        images=found.images,
        fingerprint=found.fingerprint,
        source=str(path),
        skipped=found.skipped,
    )


def scan_files(paths: Sequence[Path], folder: Path, source: str) -> Scan:
    """The image files below `folder`, checked."""
    return scan(
        lambda entry: paths[entry].read_bytes(),
        range(len(paths)),
        lambda entry: paths[entry].relative_to(folder).as_posix(),
        source,
    )


def scan_column(table: ImageTable, column: str, max_images: int | None, source: str) -> Scan:
    """The images of one column, checked; evenly spaced rows of more than `max_images`."""
    return scan(table.encoded(column), spread(len(table), max_images), table.row_name, source)


def table_images(table: ImageTable, max_images: int | None = None, *, source: str) -> ImageSet:
    """The images of a table's first column that holds any, as `image_set`."""
    found = scan_column(table, table.image_column(), max_images, source)
    return ImageSet(
        name=table.name,
        images=found.images,
        fingerprint=found.fingerprint,
        source=source,
        skipped=found.skipped,
    )


def classification_set(
    path: str | Path,
    *,
    name: str,
    templates: Sequence[str],
    class_names: Mapping[str, str] | None = None,
    subsets: Mapping[str, Sequence[str]] | None = None,
    max_images: int | None = None,
) -> ClassificationSet:
    """Images in one folder a class. `class_names` renames folders; else "_" and "-" become spaces.

    Folders `test` or `val` are entered if there is one. `subsets`: name -> classes, by the folders' names.
    """
    folder = _existing(path)
    for inner in ("test", "val", "validation"):
        if (folder / inner).is_dir():
            folder = folder / inner
            break
    paths = [path for path in files(folder) if path.parent != folder]
    if not paths:
        raise InputError(f"{str(path)!r} has no class folders with images in them.")
    folders = sorted({path.relative_to(folder).parts[0] for path in paths})
    chosen = [paths[index] for index in spread(len(paths), max_images)]
    found = scan_files(chosen, folder, str(path))
    index = {label: number for number, label in enumerate(folders)}
    labels = np.array([index[chosen[entry].relative_to(folder).parts[0]] for entry in found.kept], np.int64)
    renamed = class_names or {}
    classes = tuple(renamed.get(label, label.replace("_", " ").replace("-", " ")) for label in folders)
    return ClassificationSet(
        name=name,
        images=found.images,
        fingerprint=with_labels(found.fingerprint, labels.tolist(), classes),
        source=str(path),
        skipped=found.skipped,
        labels=labels,
        classes=classes,
        templates=tuple(templates),
        subsets={key: tuple(index[label] for label in members) for key, members in (subsets or {}).items()},
    )
