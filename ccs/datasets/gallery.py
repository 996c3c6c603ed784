"""A user's gallery: labeled images of people from a file, a folder, or a set known by name."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from zipfile import ZipFile

import numpy as np
from PIL import Image, UnidentifiedImageError

from ccs.datasets import folder, table
from ccs.datasets.decoding import Scan, scan
from ccs.errors import InputError
from ccs.image_sets import BiasSet
from ccs.paper import figures as paper

ATTRIBUTES = ("gender", "race", "age", "skin_tone", "skin tone", "ethnicity")
LABELS = "labels.csv"
MOST_FILES, MOST_BYTES, MOST_PIXELS = 2000, 64 * 2**20, 40_000_000
"""The most that a stranger's file may hold: images, bytes once unpacked, pixels of one image."""
CODECS = ("UNCOMPRESSED", "SNAPPY")  # others may compress a stranger's gigabyte into nothing
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")


def open_path(path: Path) -> BiasSet:
    """The gallery in a folder or a parquet file, as for `ccs.specs.open_gallery`."""
    found, groups = _folder(path) if path.is_dir() else _parquet(path)
    return _gallery(path.resolve().name if path.is_dir() else path.stem, found, groups)


def _parquet(path: Path) -> tuple[Scan, Mapping[str, np.ndarray]]:
    rows = table.open_parquet(path)
    attributes = {name.replace("_", " "): name for name in ATTRIBUTES if name in rows.columns}
    if not attributes:
        raise InputError(f"{path} has none of the columns {', '.join(ATTRIBUTES)}.")
    found = folder.scan_column(rows, rows.image_column(), None, str(path))
    kept = list(found.kept)
    return found, {name: np.array(rows.strings(column))[kept] for name, column in attributes.items()}


def open_upload(data: bytes, name: str) -> BiasSet:
    """A stranger's gallery: a zip file laid out like a folder, or a parquet file, as for `open_path`.

    All of it stays in memory. `name`: the set's name. Raises InputError for other files, other layouts, and
    more than `MOST_FILES` images or `MOST_BYTES` bytes once unpacked.
    """
    read = _of_parquet if data.startswith(b"PAR1") else _of_zip
    try:
        found, groups = read(data)
    except InputError:
        raise
    except Exception as error:  # both readers may raise anything
        words = " ".join(str(error).split())[:200]
        raise InputError(f"The file cannot be read as zip or parquet: {words}.") from None
    return _gallery(name, found, groups)


def _require_small(files: int, size: int) -> None:
    if files > MOST_FILES:
        raise InputError(f"The file holds {files} images; at most {MOST_FILES} are accepted.")
    if size > MOST_BYTES:
        raise InputError(f"The file holds more than {MOST_BYTES // 2**20} MB once unpacked.")


def _of_parquet(data: bytes) -> tuple[Scan, Mapping[str, np.ndarray]]:
    """Images as bytes, alone or with a path, which is not followed; groups as text or class numbers."""
    import pyarrow as pa
    from pyarrow import parquet

    file = parquet.ParquetFile(io.BytesIO(data))
    about, schema = file.metadata, file.schema_arrow
    parts = [
        about.row_group(g).column(c) for g in range(about.num_row_groups) for c in range(about.num_columns)
    ]
    if packed := {part.compression for part in parts} - set(CODECS):
        raise InputError(f"The file is packed with {min(packed)}; {' or '.join(CODECS)} is accepted.")
    _require_small(about.num_rows, sum(part.total_uncompressed_size for part in parts))
    names = [name for name in ATTRIBUTES if name in schema.names]
    structs = {field.name: pa.types.is_struct(field.type) for field in schema
               if pa.types.is_binary(field.type) or pa.types.is_struct(field.type)}  # fmt: skip
    if not structs:
        raise InputError(f"The file has no column of images; its columns are {', '.join(schema.names)}.")
    image = next(iter(structs))
    told = json.loads((schema.metadata or {}).get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    images, groups, size = list[bytes | None](), {name: list[str]() for name in names}, 0
    for batch in file.iter_batches(16, columns=[image, *names]):
        size += batch.nbytes  # a value stored once in the file may be repeated in every row
        _require_small(about.num_rows, size)
        column = batch.column(image)
        images += (column.field("bytes") if structs[image] else column).to_pylist()
        for name in names:
            classes = told.get(name, {}).get("names")
            groups[name] += [str(classes[v] if classes else v) for v in batch.column(name).to_pylist()]
    found = scan(
        lambda row: _checked(images[row] or b""), range(len(images)), lambda row: f"row {row}", "the file"
    )
    return found, _usable({name: np.array(cells)[list(found.kept)] for name, cells in groups.items()})


def _of_zip(data: bytes) -> tuple[Scan, Mapping[str, np.ndarray]]:
    with ZipFile(io.BytesIO(data)) as archive:
        inside = [one for one in archive.infolist() if not one.is_dir()]
        inside = [one for one in inside if not one.filename.startswith((".", "__MACOSX"))]
        _require_small(len(inside), sum(one.file_size for one in inside))
        # Read up to the stated size and no further, whatever the packed data hold.
        unpacked = {one.filename: archive.open(one).read(one.file_size) for one in inside}
    top = {path.split("/")[0] for path in unpacked}
    if len(top) == 1 and any(path.count("/") > 1 or path.endswith(f"/{LABELS}") for path in unpacked):
        unpacked = {path.partition("/")[2]: content for path, content in unpacked.items()}
    images = {path: partial(_checked, content) for path, content in sorted(unpacked.items())
              if Path(path).suffix.lower() in folder.SUFFIXES}  # fmt: skip
    table, rows = unpacked.get(LABELS), None
    if table is not None:
        rows = folder.label_rows(table.decode("utf-8-sig", "replace"), LABELS, ["file"])
    return _labeled(images, rows, "The zip file")


def _checked(data: bytes) -> bytes:
    """The bytes of a stranger's image in a usual format and size; OSError for any other."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > MOST_PIXELS:
                raise OSError(f"more than {MOST_PIXELS // 10**6} megapixels")
    except UnidentifiedImageError:
        raise OSError(f"not an image of these kinds: {', '.join(FORMATS)}") from None
    return data


def _folder(path: Path) -> tuple[Scan, Mapping[str, np.ndarray]]:
    images = {file.relative_to(path).as_posix(): file.read_bytes for file in folder.files(path)}
    labels = path / LABELS
    return _labeled(images, folder.read_labels(labels, ["file"]) if labels.is_file() else None, str(path))


def _labeled(
    images: Mapping[str, Callable[[], bytes]], rows: Sequence[Mapping[str, str]] | None, source: str
) -> tuple[Scan, Mapping[str, np.ndarray]]:
    """The images named in a table, with their groups; without a table, one folder per group."""
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
    return found, _usable(groups)


def _usable(groups: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    usable = {name: cells for name, cells in groups.items() if 2 <= len(set(cells)) <= 50}
    if not usable:
        raise InputError(f"There is no attribute of 2 to 50 groups ({', '.join(groups) or 'none'}).")
    return usable


def _gallery(name: str, found: Scan, groups: Mapping[str, np.ndarray]) -> BiasSet:
    return BiasSet(
        name=name,
        groups=groups,
        k=dict.fromkeys(groups, max(1, len(found.images) // 10)),
        occupations=paper.occupations(),
        templates=paper.templates(),
        **found.fields({attribute: cells.tolist() for attribute, cells in groups.items()}),
    )
