"""A gallery of one's own: labeled images of people from a file, a folder, or a set known by name."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from zipfile import ZipFile

import numpy as np
from PIL import Image

from ccs.datasets import folder, opening, table
from ccs.datasets.images import Scan, scan
from ccs.datasets.sets import BiasSet
from ccs.errors import InputError
from ccs.paper import figures as paper

ATTRIBUTES = ("gender", "race", "age", "skin_tone", "skin tone", "ethnicity")
LABELS = "labels.csv"
MOST_FILES, MOST_BYTES, MOST_PIXELS = 2000, 64 * 2**20, 40_000_000
"""What a zip file may hold: files, bytes once unpacked, pixels of an image."""
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")


def open_gallery(spec: str) -> BiasSet:
    """Open a parquet file, a folder of labeled faces, or a set that `ccs.datasets` knows by name.

    A file has a column of images and one or more of `ATTRIBUTES`. A folder has a file labels.csv with a
    column `file` and one column per attribute, or one folder of images per group. Occupations and templates
    are the study's, K a tenth of the images. Raises InputError for anything else.
    """
    path = Path(spec).expanduser()
    if path.is_dir():
        found, groups = _folder(path)
    elif path.suffix == ".parquet":
        found, groups = _parquet(path)
    else:
        named = opening.open_set(spec)
        if not isinstance(named, BiasSet):
            raise InputError(f"{spec} is not a set of people with labeled groups.")
        return named
    return _gallery(path.resolve().name if path.is_dir() else path.stem, found, groups)


def _parquet(path: Path) -> tuple[Scan, Mapping[str, np.ndarray]]:
    rows = table.open_parquet(path)
    attributes = {name.replace("_", " "): name for name in ATTRIBUTES if name in rows.columns}
    if not attributes:
        raise InputError(f"{path} has none of the columns {', '.join(ATTRIBUTES)}.")
    found = folder.scan_column(rows, rows.image_column(), None, str(path))
    kept = list(found.kept)
    return found, {name: np.array(rows.strings(column))[kept] for name, column in attributes.items()}


def open_zip(data: bytes, name: str) -> BiasSet:
    """A gallery from a zip file, laid out like a folder: in memory, and nothing of it on the disk.

    `name`: what the set is called. Raises InputError for what is no zip file, is laid out differently, or
    holds more than `MOST_FILES` files or `MOST_BYTES` bytes once unpacked.
    """
    try:
        with ZipFile(io.BytesIO(data)) as archive:
            inside = [one for one in archive.infolist() if not one.is_dir()]
            inside = [one for one in inside if not one.filename.startswith((".", "__MACOSX"))]
            if len(inside) > MOST_FILES or sum(one.file_size for one in inside) > MOST_BYTES:
                raise InputError(
                    f"The zip file holds {len(inside)} files; at most {MOST_FILES} with "
                    f"{MOST_BYTES // 2**20} MB together are accepted."
                )
            # Read to the size that is told and no further, whatever the packed data hold.
            unpacked = {one.filename: archive.open(one).read(one.file_size) for one in inside}
    except InputError:
        raise
    except Exception as error:  # zipfile raises whatever its formats make it stumble over
        raise InputError(f"The zip file cannot be read: {error}.") from None
    top = {path.split("/")[0] for path in unpacked}
    if len(top) == 1 and any(path.count("/") > 1 or path.endswith(f"/{LABELS}") for path in unpacked):
        unpacked = {path.partition("/")[2]: content for path, content in unpacked.items()}
    images = {path: partial(_checked, content) for path, content in sorted(unpacked.items())
              if Path(path).suffix.lower() in folder.SUFFIXES}  # fmt: skip
    table, rows = unpacked.get(LABELS), None
    if table is not None:
        rows = folder.label_rows(table.decode("utf-8-sig", "replace"), LABELS, ["file"])
    return _gallery(name, *_labeled(images, rows, "The zip file"))


def _checked(data: bytes) -> bytes:
    """A stranger's image, of a usual kind and size; OSError for any other."""
    with Image.open(io.BytesIO(data), formats=FORMATS) as image:
        if image.width * image.height > MOST_PIXELS:
            raise OSError(f"more than {MOST_PIXELS // 10**6} megapixels")
    return data


def _folder(path: Path) -> tuple[Scan, Mapping[str, np.ndarray]]:
    images = {file.relative_to(path).as_posix(): file.read_bytes for file in folder.files(path)}
    labels = path / LABELS
    return _labeled(images, folder.read_labels(labels, ["file"]) if labels.is_file() else None, str(path))


def _labeled(
    images: Mapping[str, Callable[[], bytes]], rows: Sequence[Mapping[str, str]] | None, source: str
) -> tuple[Scan, Mapping[str, np.ndarray]]:
    """The images that a table names, with their groups; without a table those in one folder per group."""
    if rows is None:
        rows = [{"file": name, "group": name.split("/")[0]} for name in images if "/" in name]
    if not rows:
        raise InputError(f"{source} has neither a {LABELS} nor one folder of images per group.")
    files = [row["file"] for row in rows]
    found = scan(
        lambda i: images[files[i]]() if files[i] in images else b"",
        range(len(files)),
        lambda i: files[i],
        source,
    )
    groups = {name: np.array([rows[i][name] for i in found.kept]) for name in rows[0] if name != "file"}
    usable = {name: cells for name, cells in groups.items() if 2 <= len(set(cells)) <= 50}
    if not usable:
        raise InputError(f"{source} names no attribute of 2 to 50 groups.")
    return found, usable


def _gallery(name: str, found: Scan, groups: Mapping[str, np.ndarray]) -> BiasSet:
    return BiasSet(
        name=name,
        groups=groups,
        k=dict.fromkeys(groups, max(1, len(found.images) // 10)),
        occupations=paper.occupations(),
        templates=paper.templates(),
        **found.fields({attribute: cells.tolist() for attribute, cells in groups.items()}),
    )
