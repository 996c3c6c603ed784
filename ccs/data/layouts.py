"""Read a folder, a zip, a tar, or Parquet files, in any of the layouts of docs/datasets.md, into rows."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from ccs.data import DatasetRecord
from ccs.data.files import NO_IMAGE, TABLES, Files, Opener, descend, in_split, unpack
from ccs.data.rows import NO_FILE, Rows
from ccs.data.tables import PATHS, match, read_rows
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
    for suffix in (".parquet",) * (record.known or not files.images) + (".tar",) * (not files.images):
        if archives := files.ending_in(suffix):
            archives = [path for path in archives if record.config in path.split("/")[:-1]] or archives
            files = in_split(files, archives, split, record.split)
            chosen = files.only({*archives} & {*files.openers}, "no Parquet file of this set")
            if suffix == ".parquet":
                from ccs.data.parquet import read_parquet  # here, for PyArrow's import takes 30 MB

                rows = read_parquet(chosen.openers, record.name, as_text(files.source), record.image)
                return replace(rows, notes=chosen.notes)
            files, split = unpack(files, chosen.openers), ""
            break
    columns, labeled = _webdataset(files), record.kind != "images"
    paths: Sequence[str | None] = columns.pop("path", [])
    notes: Sequence[str] = ()
    table = ""
    in_images = [path for path in files.images if "images" in path.split("/")[:-1] or "/" not in path]
    if not paths and record.known and record.kind == "bias":
        table, images = _authors_table(files, record)
        paths, columns = _read_table(files, table, images)
    elif not paths and in_images and (record.listed or record.label_in_name):
        paths, columns = _authors_list(files, record, in_images)
    elif not paths:
        files = descend(files, split, record.split) if labeled or split else files
        if table := next((path for path in TABLES if labeled and path in files.openers), ""):
            paths, columns = _read_table(files, table, files.images)
        elif labeled:
            paths, columns, notes = _label_by_folder(files)
        else:
            paths = files.images
    used = {path for path in (*paths, table) if path}
    unused = files.only({*files.images, *used}, NO_IMAGE).only(used, "no label")
    return Rows(
        name=record.name,
        source=as_text(files.source),
        count=len(paths),
        read=partial(_read_file, [files.openers[path] if path else None for path in paths]),
        columns={"file": [as_text(path or "") for path in paths], **columns},
        notes=(*unused.notes, *notes),
        by_folder=labeled and not table and "label" in columns,
    )


def _read_file(openers: Sequence[Opener | None], row: int) -> bytes:
    if (opener := openers[row]) is None:
        raise FileNotFoundError(2, NO_FILE)
    with opener() as stream:
        return stream.read()


def _webdataset(files: Files) -> dict[str, list[Any]]:
    """Return a WebDataset's images in the column `path`, with cells of files of the same name; or none."""
    siblings: dict[str, dict[str, str]] = defaultdict(dict)
    for path in files.openers:
        folder, _, name = path.rpartition("/")
        stem, _, extension = name.partition(".")
        siblings[f"{folder}/{stem}"][extension.lower()] = path
    samples: list[dict[str, Any]] = []
    images = set(files.images)
    for paths in siblings.values():
        sample_images = [path for path in paths.values() if path in images]
        if len(sample_images) != 1 or not {"cls", "json"} & paths.keys():
            continue
        cells: dict[str, Any] = {"file": as_text(sample_images[0]), "path": sample_images[0]}
        if "cls" in paths:
            text = files.read(paths["cls"]).decode("utf-8", "replace").strip()
            cells["cls"] = int(text) if text.isdecimal() else text
        with suppress(ValueError, TypeError, KeyError):
            metadata = dict(json.loads(files.read(paths["json"])))
            cells = {k: cell for k, cell in metadata.items() if not isinstance(cell, list | dict)} | cells
        samples.append(cells)
    columns = dict.fromkeys(column for cells in samples for column in cells)
    is_dataset = samples and 2 * len(samples) >= len(images)
    return {column: [cells.get(column) for cells in samples] for column in columns if is_dataset}


def _read_table(
    files: Files, table: str, images: Sequence[str]
) -> tuple[list[str | None], dict[str, list[str]]]:
    """Return the image of each row of a table, None if it isn't there, and the columns."""
    title = f"{as_text(files.source)}/{table}"
    rows = read_rows(files.read(table), title)
    names = dict.fromkeys(column for row in rows for column in row)
    columns = {name: [_as_label(row.get(name)) for row in rows] for name in names}
    if not (key := next((column for column in PATHS if column in columns), "")):
        listed = f"it has {', '.join(columns) or 'no rows'}"[:200]
        raise InputError(f"{title} needs a column `file`, columns of labels, and commas between; {listed}.")
    columns = {"file" if column == key else column: cells for column, cells in columns.items()}
    return match(columns["file"], images, title), columns


def _as_label(cell: object) -> str:
    return "" if cell is None or isinstance(cell, list | dict) else str(cell).strip()


def _label_by_folder(files: Files) -> tuple[list[str], dict[str, list[str]], Sequence[str]]:
    """Label images by the folder they lie in; of domain/class/image, the domain is a column of its own."""
    paths = [path for path in files.images if "/" in path]
    folders = [[*as_text(path).split("/"), ""][:3] for path in paths]
    classes: dict[str, set[str]] = defaultdict(set)
    for path, (top, second, _) in zip(paths, folders, strict=True):
        classes[top].add(second if path.count("/") == 2 else "")
    shared = set.intersection(*classes.values()) if len(classes) > 1 else set()
    if len(shared) < 2 or any("" in names or len(names) >= 2 * len(shared) for names in classes.values()):
        return paths, {"label": [top for top, *_ in folders]}, ()
    note = f"the folders {', '.join(sorted(classes)[:5])} are domains; classes are the folders inside"
    return (
        paths,
        {"label": [second for _, second, _ in folders], "domain": [top for top, *_ in folders]},
        (note,),
    )


# The layouts of authors -----------------------------------------------------------------------------------


def _authors_table(files: Files, record: DatasetRecord) -> tuple[str, list[str]]:
    """Read FairFace as its authors publish it: a table of labels, and a folder of images per margin."""
    table = next((path for path in files.openers if path.endswith((*FAIRFACE_TABLES, *TABLES))), "")
    margin = f"margin{(record.config or '').replace('.', '')}"
    has_margins = any("margin" in path for path in files.images)
    images = [path for path in files.images if margin in path or not has_margins]
    if not table or not images:
        raise InputError(f"{files.source!r} lacks labels.csv or images of {margin}, as {record.name!r} has.")
    return table, images


def _authors_list(
    files: Files, record: DatasetRecord, images: Sequence[str]
) -> tuple[list[str | None], dict[str, list[str]]]:
    """Read the images that the authors' list names, as in Food-101, with the class in their path."""
    paths: list[str | None] = [*images]
    if record.listed:
        table = next((path for path in files.openers if f"/{path}".endswith(f"/{record.listed}")), "")
        lines = files.read(table).decode("utf-8", "replace").splitlines() if table else []
        stems = [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]
        paths = match(stems, images, record.listed, endings=(".jpg", ".jpeg", ".png"))
        if missing := [stem for stem, path in zip(stems, paths, strict=True) if path is None]:
            raise InputError(f"{files.source!r} has no image {missing[0]!r}, which {record.listed} names.")
    folders = [["", *(path or "").split("/")] for path in paths]
    labels = [f[-1].rpartition("_")[0] if record.label_in_name else f[-2] for f in folders]
    return paths, {"label": labels}
