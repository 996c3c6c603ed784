"""Read a folder, a zip, a tar, or Parquet files, by path or as bytes, into rows."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ccs.data import DatasetRecord
from ccs.data.digests import identity
from ccs.data.files import (
    NO_IMAGE,
    SPLITS,
    TABLES,
    File,
    Files,
    choose_split,
    descend,
    splits_in,
    unpack,
)
from ccs.data.rows import Rows
from ccs.data.tables import match, path_column, read_rows
from ccs.errors import InputError
from ccs.files import as_text

FAIRFACE_TABLES = ("label_val.csv", "fairface_label_val.csv")


def read_files(files: Files, record: DatasetRecord, *, labeled: bool, split: str = "") -> Rows:
    """Read the rows of files in any of the layouts of docs/datasets.md.

    Args:
        files: A folder's, an archive's, or one Parquet file.
        record: The set's record; of a known set, its authors' layout and its repository's are read too.
        labeled: Whether images have labels: by a table or the folders they lie in.
        split: The split to read; "" for the first of test, validation, and train that is there.

    Raises:
        InputError: If the layout is not one of these.
    """
    parquet, tars = files.ending_in(".parquet"), files.ending_in(".tar")
    if parquet and (record.known or not files.images):
        from ccs.data.parquet import read_parquet  # here, for PyArrow's import takes 30 MB

        files = _of_split(files, parquet, record, split).only(parquet, "no Parquet file of this set")
        rows = read_parquet(files.by_path, record.name, as_text(files.source), record.image)
        return replace(rows, notes=files.notes())
    if tars and not files.images:
        files = _of_split(files, tars, record, split)
        files, split = unpack(files, files.ending_in(".tar")), ""
    if samples := _webdataset(files):
        columns = dict.fromkeys(column for cells in samples.values() for column in cells)
        return _of_columns(
            files,
            record.name,
            list(samples),
            {c: [cells.get(c) for cells in samples.values()] for c in columns},
        )
    if record.known and record.kind == "bias":
        return _of_authors_table(files, record)
    listed = [path for path in files.images if "images" in path.split("/")[:-1] or "/" not in path]
    if listed and (record.listed or record.label_in_name):
        return _of_authors_list(files, record, listed)
    if not labeled and not split:
        return _of_columns(files, record.name, files.images)
    if (
        labeled
        and record.known
        and any(SPLITS.get(path.split("/")[0].casefold()) == record.split for path in files.images)
    ):
        split = split or record.split
    files, entered = descend(files, split)
    files = replace(files, source=files.source + f" (split {entered})" * bool(entered))
    if not labeled:
        return _of_columns(files, record.name, files.images)
    table = next((path for path in TABLES if path in files.by_path), "")
    return _of_table(files, record.name, table, files.images) if table else _of_folders(files, record.name)


def _of_split(files: Files, paths: Sequence[str], record: DatasetRecord, split: str) -> Files:
    """Leave out Parquet files or tars of other splits; of a known set, those of other configurations too."""
    chosen, entered = list(paths), ""
    if record.known and record.config:
        chosen = [path for path in paths if record.config in path.split("/")[:-1]] or chosen
    if record.known and any(record.split in splits_in(path) for path in chosen):
        split = split or record.split
    if split or not record.known:
        chosen, entered = choose_split(chosen, split, files.source)
    reason = f"not in the split {entered}" if entered else "of another configuration"
    source = files.source + f" (split {entered})" * (bool(entered) and len(chosen) < len(paths))
    others = [path for path in files.by_path if path not in paths]
    return replace(files.only([*others, *chosen], reason), source=source)


def _webdataset(files: Files) -> dict[str, dict[str, Any]]:
    """Return a WebDataset's images, with cells from the files of the same name; none for other files."""
    siblings: dict[str, dict[str, str]] = defaultdict(dict)
    for path in files.by_path:
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
            text = files.by_path[paths["cls"]].read().decode("utf-8", "replace").strip()
            cells["cls"] = int(text) if text.isdecimal() else text
        if "json" in paths:
            try:
                metadata = dict(json.loads(files.by_path[paths["json"]].read()))
            except (ValueError, TypeError):
                metadata = {}
            cells |= {key: cell for key, cell in metadata.items() if not isinstance(cell, list | dict)}
        samples[sample_images[0]] = cells
    return samples if 2 * len(samples) >= len(images) else {}


# Images ---------------------------------------------------------------------------------------------------


def _read_file(files: Sequence[File | None], row: int) -> bytes:
    file = files[row]
    if file is None:
        raise FileNotFoundError(2, "no such file")
    return file.read()


def _of_columns(
    files: Files, name: str, paths: Sequence[str | None], columns: Mapping[str, list[Any]] | None = None
) -> Rows:
    """Make rows of images by path, with columns; files that have no row are counted."""
    columns = {"file": [as_text(path or "") for path in paths], **(columns or {})}
    chosen = [files.by_path[path] if path is not None else None for path in paths]
    row_paths = {path for path in paths if path is not None}
    disks = {file.disk for file in chosen if file and file.disk}
    return Rows(
        name=name,
        source=as_text(files.source),
        count=len(chosen),
        read=partial(_read_file, chosen),
        columns=columns,
        identity=identity(sorted(disks), *columns["file"]) if disks else "",
        notes=files.only({*files.images, *row_paths}, NO_IMAGE).only(row_paths, "no label").notes(),
    )


def _of_table(files: Files, name: str, table: str, images: Sequence[str]) -> Rows:
    """Make the rows of a table; images without a row are counted."""
    title = f"{as_text(files.source)}/{table}"
    cells = read_rows(files.by_path[table].read(), title)
    key = path_column(cells, title)
    paths = match([row[key] for row in cells], images, title)
    columns = {"file" if column == key else column: [row[column] for row in cells] for column in cells[0]}
    others = {path: file for path, file in files.by_path.items() if path != table}
    return _of_columns(replace(files, by_path=others), name, paths, columns)


def _of_folders(files: Files, name: str) -> Rows:
    """Label images by the folder they lie in; of domain/class/image, the domain is a column of its own."""
    paths = [path for path in files.images if "/" in path]
    folders = [[*as_text(path).split("/"), ""][:3] for path in paths]
    classes: dict[str, set[str]] = defaultdict(set)
    for path, (top, second, _) in zip(paths, folders, strict=True):
        classes[top].add(second if path.count("/") == 2 else "")
    shared = set.intersection(*classes.values()) if classes else set()
    has_domains = (
        len(classes) > 1
        and len(shared) > 1
        and all("" not in names and len(names) < 2 * len(shared) for names in classes.values())
    )
    columns = {"label": [parts[has_domains] for parts in folders]}
    if has_domains:
        columns["domain"] = [parts[0] for parts in folders]
    rows = _of_columns(files, name, paths, columns)
    domains = f"the folders {', '.join(sorted(classes)[:5])} are domains; classes are the folders inside"
    return replace(rows, by_folder=True, notes=(*rows.notes, *[domains] * has_domains))


# The layouts of authors -----------------------------------------------------------------------------------


def _of_authors_table(files: Files, record: DatasetRecord) -> Rows:
    """FairFace as its authors publish it: a table of labels, and a folder of images for each margin."""
    table = next((path for path in files.by_path if path.endswith((*FAIRFACE_TABLES, *TABLES))), None)
    margin = f"margin{(record.config or '').replace('.', '')}"
    images = files.images
    if any("margin" in path for path in images):
        images = [path for path in images if margin in path]
    if table is None:
        raise InputError(f"{files.source!r} has no labels.csv with the groups of its images.")
    if not images:
        raise InputError(f"{files.source!r} has no images of {margin}, which {record.name!r} consists of.")
    return _of_table(files, record.name, table, images)


def _of_authors_list(files: Files, record: DatasetRecord, images: Sequence[str]) -> Rows:
    """Read the images that the authors' list names, as in Food-101, with the class in their path."""
    paths = list(images)
    if record.listed:
        table = next((path for path in files.by_path if f"/{path}".endswith(f"/{record.listed}")), None)
        if table is None:
            raise InputError(f"{files.source!r} has no {record.listed}, which names the images for tests.")
        lines = files.by_path[table].read().decode("utf-8", "replace").splitlines()
        stems = [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]
        matched = match(stems, images, table, key=_without_ending)
        paths = [path for path in matched if path is not None]
        if len(paths) < len(stems):
            missing = stems[matched.index(None)]
            raise InputError(f"{files.source!r} has no image {missing!r}, which its {record.listed} names.")
    if record.label_in_name:
        labels = [path.rpartition("/")[2].rpartition("_")[0] for path in paths]
    else:
        labels = [path.split("/")[-2] if "/" in path else "" for path in paths]
    return _of_columns(files, record.name, paths, {"label": labels})


def _without_ending(path: str) -> str:
    stem, suffix = os.path.splitext(path)
    return stem if suffix.lower() in (".jpg", ".jpeg", ".png") else path
