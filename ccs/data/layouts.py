"""Read a folder, a zip, a tar, or Parquet files, in any of the layouts of docs/datasets.md, into rows."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from ccs.data import DatasetRecord
from ccs.data.files import NO_IMAGE, TABLES, Files, Opener, descend, ending, in_split, unpack
from ccs.data.rows import NO_FILE, Rows
from ccs.data.tables import match, path_column, read_rows
from ccs.errors import InputError
from ccs.files import as_text

FAIRFACE_TABLES = ("label_val.csv", "fairface_label_val.csv")


def read_files(files: Files, record: DatasetRecord, split: str = "") -> Rows:
    """Read the rows of files.

    Args:
        files: A folder's, an archive's, or one Parquet file.
        record: The set's record; of a known set, its authors' layout and its repository's are read too. Of
            images without labels (kind "images"), a folder is read whole.
        split: The split to read; "" for the record's, or else the first of test, validation, and train.

    Raises:
        InputError: If the layout is not one of these.
    """
    endings = (".parquet",) if record.known or not files.images else ()
    for suffix in (*endings, *[".tar"] * (not files.images)):
        if paths := files.ending_in(suffix):
            paths = [path for path in paths if record.config in path.split("/")[:-1]] or paths
            files = in_split(files, paths, split, record.split)
            paths = [path for path in paths if path in files.openers]
            if suffix == ".parquet":
                from ccs.data.parquet import read_parquet  # here, for PyArrow's import takes 30 MB

                chosen = files.only(paths, "no Parquet file of this set")
                rows = read_parquet(chosen.openers, record.name, as_text(files.source), record.image)
                return replace(rows, notes=chosen.notes)
            files, split = unpack(files, paths), ""
            break
    if samples := _webdataset(files):
        columns = dict.fromkeys(column for cells in samples.values() for column in cells)
        cells_by_column = {c: [cells.get(c) for cells in samples.values()] for c in columns}
        return _of_columns(files, record.name, list(samples), cells_by_column)
    if record.known and record.kind == "bias":
        return _of_authors_table(files, record)
    listed = [path for path in files.images if "images" in path.split("/")[:-1] or "/" not in path]
    if listed and (record.listed or record.label_in_name):
        return _of_authors_list(files, record, listed)
    if record.kind == "images" and not split:
        return _of_columns(files, record.name, files.images)
    files = descend(files, split, record.split)
    if record.kind == "images":
        return _of_columns(files, record.name, files.images)
    table = next((path for path in TABLES if path in files.openers), "")
    return _of_table(files, record.name, table, files.images) if table else _of_folders(files, record.name)


def _webdataset(files: Files) -> dict[str, dict[str, Any]]:
    """Return a WebDataset's images, with cells from the files of the same name; none for other files."""
    siblings: dict[str, dict[str, str]] = defaultdict(dict)
    for path in files.openers:
        folder, _, name = path.rpartition("/")
        stem, _, extension = name.partition(".")
        siblings[f"{folder}/{stem}"][extension.lower()] = path
    samples: dict[str, dict[str, Any]] = {}
    images = set(files.images)
    for paths in siblings.values():
        sample_images = [path for path in paths.values() if path in images]
        if len(sample_images) != 1 or not {"cls", "json"} & paths.keys():
            continue
        cells: dict[str, Any] = {"file": as_text(sample_images[0])}
        if "cls" in paths:
            text = files.read(paths["cls"]).decode("utf-8", "replace").strip()
            cells["cls"] = int(text) if text.isdecimal() else text
        with suppress(ValueError, TypeError, KeyError):
            metadata = dict(json.loads(files.read(paths["json"])))
            cells |= {key: cell for key, cell in metadata.items() if not isinstance(cell, list | dict)}
        samples[sample_images[0]] = cells
    return samples if 2 * len(samples) >= len(images) else {}


# Images ---------------------------------------------------------------------------------------------------


def _read_file(openers: Sequence[Opener | None], row: int) -> bytes:
    if (opener := openers[row]) is None:
        raise FileNotFoundError(2, NO_FILE)
    with opener() as stream:
        return stream.read()


def _of_columns(
    files: Files, name: str, paths: Sequence[str | None], columns: Mapping[str, list[Any]] | None = None
) -> Rows:
    """Make rows of images by path, with columns; files that have no row are counted."""
    row_paths = {path for path in paths if path is not None}
    unused = files.only({*files.images, *row_paths}, NO_IMAGE).only(row_paths, "no label")
    return Rows(
        name=name,
        source=as_text(files.source),
        count=len(paths),
        read=partial(_read_file, [None if path is None else files.openers[path] for path in paths]),
        columns={"file": [as_text(path or "") for path in paths], **(columns or {})},
        notes=unused.notes,
    )


def _of_table(files: Files, name: str, table: str, images: Sequence[str]) -> Rows:
    """Make the rows of a table; images without a row are counted."""
    title = f"{as_text(files.source)}/{table}"
    cells = read_rows(files.read(table), title)
    key = path_column(cells, title)
    columns = {"file" if column == key else column: [row[column] for row in cells] for column in cells[0]}
    others = {path: opener for path, opener in files.openers.items() if path != table}
    return _of_columns(replace(files, openers=others), name, match(columns["file"], images, title), columns)


def _of_folders(files: Files, name: str) -> Rows:
    """Label images by the folder they lie in; of domain/class/image, the domain is a column of its own."""
    paths = [path for path in files.images if "/" in path]
    folders = [[*as_text(path).split("/"), ""][:3] for path in paths]
    classes: dict[str, set[str]] = defaultdict(set)
    for path, (top, second, _) in zip(paths, folders, strict=True):
        classes[top].add(second if path.count("/") == 2 else "")
    shared = set.intersection(*classes.values()) if len(classes) > 1 else set()
    has_domains = len(shared) > 1 and not any(
        "" in names or len(names) >= 2 * len(shared) for names in classes.values()
    )
    columns = {"label": [parts[has_domains] for parts in folders]}
    notes = []
    if has_domains:
        columns["domain"] = [parts[0] for parts in folders]
        notes = [f"the folders {', '.join(sorted(classes)[:5])} are domains; classes are the folders inside"]
    rows = _of_columns(files, name, paths, columns)
    return replace(rows, by_folder=True, notes=(*rows.notes, *notes))


# The layouts of authors -----------------------------------------------------------------------------------


def _of_authors_table(files: Files, record: DatasetRecord) -> Rows:
    """FairFace as its authors publish it: a table of labels, and a folder of images for each margin."""
    table = next((path for path in files.openers if path.endswith((*FAIRFACE_TABLES, *TABLES))), "")
    margin = f"margin{(record.config or '').replace('.', '')}"
    has_margins = any("margin" in path for path in files.images)
    images = [path for path in files.images if margin in path or not has_margins]
    if not table or not images:
        raise InputError(f"{files.source!r} lacks labels.csv or images of {margin}, as {record.name!r} has.")
    return _of_table(files, record.name, table, images)


def _of_authors_list(files: Files, record: DatasetRecord, images: Sequence[str]) -> Rows:
    """Read the images that the authors' list names, as in Food-101, with the class in their path."""
    paths: Sequence[str | None] = images
    if record.listed:
        table = next((path for path in files.openers if f"/{path}".endswith(f"/{record.listed}")), None)
        lines = files.read(table).decode("utf-8", "replace").splitlines() if table else []
        stems = [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]
        paths = match(stems, images, record.listed, key=_without_ending)
        if missing := [stem for stem, path in zip(stems, paths, strict=True) if path is None]:
            raise InputError(f"{files.source!r} has no image {missing[0]!r}, which {record.listed} names.")
    folders = [(path or "").split("/") for path in paths]
    labels = [f[-1].rpartition("_")[0] if record.label_in_name else ["", *f][-2] for f in folders]
    return _of_columns(files, record.name, paths, {"label": labels})


def _without_ending(name: str) -> str:
    return os.path.splitext(name)[0] if ending(name) in (".jpg", ".jpeg", ".png") else name
