"""Read a folder, a zip, a tar, or Parquet files, in any of the layouts of docs/datasets.md, into rows."""

import json
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from ccs.data import DatasetRecord
from ccs.data.files import NO_IMAGE, TABLES, Files, Opener, descend, in_split, read_file, splits_in, unpack
from ccs.data.rows import NO_FILE, Rows
from ccs.data.tables import PATHS, match, read_rows
from ccs.errors import InputError
from ccs.files import as_text

FAIRFACE_TABLES = ("label_val.csv", "fairface_label_val.csv")
_Row = tuple[str | None, dict[str, Any]]
"""The path of an image, None for one that isn't there, and cells."""


def read_files(files: Files, record: DatasetRecord, split: str = "") -> Rows:
    """Read the rows of files.

    Args:
        files: A folder's, an archive's, or one Parquet file.
        record: The dataset's record. Of a known dataset, the layouts of its authors and its repository are
            read too. Of images without labels (kind "images"), a folder is read whole.
        split: The split to read; "" for the record's, or else the first of test, validation, and train.

    Raises:
        InputError: If the layout is not one of these.
    """
    kinds = (".parquet",) * (record.known or not files.images) + (".tar",) * (not files.images)
    if archives := next(filter(None, map(files.ending_in, kinds)), []):
        archives = [path for path in archives if record.config in path.split("/")[:-1]] or archives
        splits = {path: words.pop() if len(words := splits_in(path)) == 1 else "" for path in archives}
        files = in_split(files.only(archives, "no file of this set"), splits, split, record.split)
        if archives[0].lower().endswith(".parquet"):
            from ccs.data.parquet import read_parquet  # here, for PyArrow's import takes 30 MB

            rows = read_parquet(files.openers, record, as_text(files.source))
            return replace(rows, notes=files.notes)
        files, split = unpack(files, files.openers), ""
    labeled, table = record.kind != "images", ""
    notes: Sequence[str] = ()
    records = _webdataset(files)
    if not records and record.known:
        records, table = _as_published(files, record)
    if not records:
        files = descend(files, split, record.split) if labeled or split else files
        if table := next((path for path in TABLES if labeled and path in files.openers), ""):
            records = _read_table(files, table, files.images)
        elif labeled:
            records, notes = _label_by_folder(files)
        else:
            records = [(path, {}) for path in files.images]
    paths = [path for path, _ in records]
    names = dict.fromkeys(name for _, cells in records for name in cells)
    columns: dict[str, list[Any]] = {"file": [as_text(path or "") for path in paths]}
    columns |= {name: [cells.get(name) for _, cells in records] for name in names}
    used = {path for path in (table, *paths) if path}
    unused = files.only({*files.images, *used}, NO_IMAGE).only(used, "no label")
    return Rows(
        name=record.name,
        source=as_text(files.source),
        count=len(paths),
        read=partial(_read_image, [files.openers[path] if path else None for path in paths]),
        columns=columns,
        notes=(*unused.notes, *notes),
        by_folder=labeled and not table and "label" in columns,
    )


def _read_image(openers: Sequence[Opener | None], row: int) -> bytes:
    if (opener := openers[row]) is None:
        raise FileNotFoundError(2, NO_FILE)
    return read_file(opener)


def _webdataset(files: Files) -> list[_Row]:
    """Return a row for each image of a WebDataset, with cells of files of the same name; or none."""
    siblings: dict[str, dict[str, str]] = defaultdict(dict)
    for path in files.openers:
        folder, _, name = path.rpartition("/")
        stem, _, extension = name.partition(".")
        siblings[f"{folder}/{stem}"][extension.lower()] = path
    samples: list[_Row] = []
    images = {*files.images}
    for paths in siblings.values():
        sample_images = [path for path in paths.values() if path in images]
        if len(sample_images) != 1 or not {"cls", "json"} & paths.keys():
            continue
        cells: dict[str, Any] = {}
        with suppress(ValueError, TypeError, KeyError):
            metadata = dict(json.loads(files.read(paths["json"])))
            cells = {k: cell for k, cell in metadata.items() if not isinstance(cell, list | dict)}
            cells.pop("file", None)
        if "cls" in paths:
            text = files.read(paths["cls"]).decode("utf-8", "replace").strip()
            cells["cls"] = int(text) if text.isdecimal() else text
        samples.append((sample_images[0], cells))
    return samples if 2 * len(samples) >= len(images) else []


def _read_table(files: Files, table: str, images: Sequence[str]) -> list[_Row]:
    """Return the rows of a table."""
    title = f"{as_text(files.source)}/{table}"
    rows = read_rows(files.read(table), title)
    columns = dict.fromkeys(name for row in rows for name in row)
    if not (key := next(filter(columns.__contains__, PATHS), "")):
        listed = f"it has {', '.join(columns) or 'no rows'}"[:200]
        raise InputError(f"{title} needs a column `file`, columns of labels, and commas between; {listed}.")
    texts = [
        {k: "" if isinstance(cell, list | dict | None) else str(cell).strip() for k, cell in row.items()}
        for row in rows
    ]
    names = [row.pop(key, "") for row in texts]
    matched = zip(match(names, images, title), names, texts, strict=True)
    return [(path, {"file": name, **row}) for path, name, row in matched]


def _label_by_folder(files: Files) -> tuple[list[_Row], Sequence[str]]:
    """Label images by the folder they lie in; of domain/class/image, the domain is its own column."""
    paths = [path for path in files.images if "/" in path]
    classes: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        top, *inside = as_text(path).split("/")
        classes[top].add(inside[0] if len(inside) == 2 else "")
    shared = set.intersection(*classes.values()) if len(classes) > 1 else set()
    too_many = any("" in names or len(names) >= 2 * len(shared) for names in classes.values())
    are_domains = len(shared) > 1 and not too_many
    folders = [path.rsplit("/", path.count("/") - are_domains)[0] for path in paths]
    parts = {folder: as_text(folder).split("/")[::-1] for folder in {*folders}}
    cells = {folder: dict(zip(("label", "domain"), parts[folder], strict=False)) for folder in parts}
    note = f"the folders {', '.join(sorted(classes)[:5])} are domains; classes are the folders inside"
    return [(path, cells[folder]) for path, folder in zip(paths, folders, strict=True)], (note,) * are_domains


def _as_published(files: Files, record: DatasetRecord) -> tuple[list[_Row], str]:
    """Read a known dataset as its authors publish it; nothing if it isn't laid out so.

    FairFace has a table of labels, and a folder of images per margin. Food-101 and Oxford-Pets have the class
    in the path or name of an image, and may list the images of a split.

    Returns:
        The rows, and the table.
    """
    if record.kind == "bias":
        table = next((path for path in files.openers if path.endswith((*FAIRFACE_TABLES, *TABLES))), "")
        margin = f"margin{(record.config or '').replace('.', '')}"
        has_margins = any("margin" in path for path in files.images)
        images = [path for path in files.images if margin in path or not has_margins]
        if not table or not images:
            raise InputError(f"{files.source!r} lacks labels.csv or {margin}, which {record.name!r} has.")
        return _read_table(files, table, images), table
    paths = [path for path in files.images if "images" in path.split("/")[:-1] or "/" not in path]
    if not paths or not (record.listed or record.label_in_name):
        return [], ""
    if lists := [path for path in files.openers if f"/{path}".endswith(f"/{record.listed}")]:
        lines = files.read(lists[0]).decode("utf-8", "replace").splitlines()
        stems = [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]
        matched = match(stems, paths, record.listed, endings=(".jpg", ".jpeg", ".png"))
        if missing := [stem for stem, path in zip(stems, matched, strict=True) if not path]:
            raise InputError(f"{files.source!r} has no image {missing[0]!r}, which {record.listed} names.")
        paths = [*filter(None, matched)]
    if record.label_in_name:
        return [(path, {"label": path.rpartition("/")[2].rpartition("_")[0]}) for path in paths], ""
    return [(path, {"label": f"/{path}".split("/")[-2]}) for path in paths], ""
