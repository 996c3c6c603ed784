"""Read a folder, a zip, a tar, or Parquet files, by path or as bytes, into rows."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ccs.data import DatasetRecord
from ccs.data.digests import identity
from ccs.data.files import (
    NO_IMAGE,
    OTHER_SPLIT,
    SPLITS,
    TABLES,
    File,
    Files,
    choose_split,
    descend,
    ending,
    image_paths,
    list_tar,
    splits_in,
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
    name = record.name
    pictures = image_paths(files)
    parquet = [path for path in files.by_path if ending(path) == ".parquet"]
    if parquet and (record.known or not pictures):
        return _of_parquet(files, parquet, record, split)
    tars = [path for path in files.by_path if ending(path) == ".tar"]
    if tars and not pictures:
        files, split = _unpacked(files, tars, record, split), ""
        pictures = image_paths(files)
    if (samples := _webdataset(files, pictures)) is not None:
        return _of_columns(files, name, *samples)
    if record.known and record.kind == "bias":
        return _of_authors_table(files, record)
    if record.listed or record.label_in_name:
        listed = [path for path in pictures if "images" in path.split("/")[:-1] or "/" not in path]
        if listed:
            return _of_authors_list(files, record, listed)
    if not labeled:
        return _of_columns(files, name, pictures, {"file": list(map(as_text, pictures))})
    known_split = record.known and any(
        SPLITS.get(path.split("/")[0].casefold()) == record.split for path in pictures
    )
    files, entered = descend(files, split or record.split * known_split)
    files = replace(files, source=files.source + f" (split {entered})" * bool(entered))
    table = next((path for path in TABLES if path in files.by_path), "")
    return _of_table(files, name, table) if table else _of_folders(files, name)


# Parquet and tar ------------------------------------------------------------------------------------------


def _of_parquet(files: Files, paths: list[str], record: DatasetRecord, split: str) -> Rows:
    from ccs.data.parquet import read_parquet  # here, for PyArrow's import takes 30 MB

    if record.known and record.config:
        paths = [path for path in paths if record.config in path.split("/")[:-1]] or paths
    chosen, entered = _chosen(paths, record, split, files.source)
    files = files.only(paths, "no Parquet file of this set").only(chosen, OTHER_SPLIT)
    source = files.source + f" (split {entered})" * (len(chosen) < len(paths))
    rows = read_parquet(files.by_path, record.name, as_text(source), record.image)
    return replace(rows, notes=files.notes())


def _chosen(paths: list[str], record: DatasetRecord, split: str, source: str) -> tuple[list[str], str]:
    """Choose the files of a split; of a known set, those of its own split."""
    if record.known and not split:
        named = [path for path in paths if record.split in splits_in(path)]
        return (named, record.split) if named else (paths, "")
    return choose_split(paths, split, source)


def _unpacked(files: Files, tars: list[str], record: DatasetRecord, split: str) -> Files:
    """List what the tars of a split hold, each below its own path."""
    chosen, entered = _chosen(tars, record, split, files.source)
    files = files.only([path for path in files.by_path if path not in tars or path in chosen], OTHER_SPLIT)
    inside: dict[str, File] = {}
    for path, file in files.by_path.items():
        if path not in chosen:
            inside[path] = file
        elif file.member:
            raise InputError(f"{files.source!r} holds the tar {path} in an archive: unpack the archive.")
        else:
            listed = list_tar(Path(file.disk), path).by_path
            inside |= {f"{path}/{member}": within for member, within in listed.items()}
    return replace(files, by_path=inside, source=files.source + f" (split {entered})" * bool(entered))


def _webdataset(files: Files, pictures: Sequence[str]) -> tuple[list[str], dict[str, list[Any]]] | None:
    """Return a WebDataset's images, with columns from the files of the same name; None for other files."""
    parts: dict[str, dict[str, str]] = defaultdict(dict)
    for path in files.by_path:
        folder, _, file = path.rpartition("/")
        stem, _, extension = file.partition(".")
        parts[f"{folder}/{stem}"][extension.lower()] = path
    images: list[str] = []
    cells: list[dict[str, Any]] = []
    known = set(pictures)
    for sample in parts.values():
        shown = [path for path in sample.values() if path in known]
        if len(shown) != 1 or not {"cls", "json"} & sample.keys():
            continue
        columns: dict[str, Any] = {"file": as_text(shown[0])}
        if "cls" in sample:
            text = files.by_path[sample["cls"]].read().decode("utf-8", "replace").strip()
            columns["cls"] = int(text) if text.isdecimal() else text
        if "json" in sample:
            try:
                told = json.loads(files.by_path[sample["json"]].read())
            except ValueError:
                told = {}
            if isinstance(told, dict):
                columns |= {key: cell for key, cell in told.items() if not isinstance(cell, list | dict)}
        images.append(shown[0])
        cells.append(columns)
    if not images or 2 * len(images) < len(pictures):
        return None
    names = {key: None for row in cells for key in row}
    return images, {key: [row.get(key) for row in cells] for key in names}


# Images ---------------------------------------------------------------------------------------------------


def _read_file(files: Sequence[File | None], row: int) -> bytes:
    file = files[row]
    if file is None:
        raise FileNotFoundError(2, "no such file")
    return file.read()


def _of_columns(
    files: Files, name: str, paths: Sequence[str | None], columns: Mapping[str, list[Any]]
) -> Rows:
    """Make rows of images by path, with columns; files that have no row are counted."""
    chosen = [files.by_path[path] if path is not None else None for path in paths]
    row_paths = {path for path in paths if path is not None}
    pictures = {path for path in image_paths(files) if path not in row_paths}
    unused = files.only([path for path in files.by_path if path in pictures or path in row_paths], NO_IMAGE)
    labels = list(map(as_text, columns["file"]))
    disks = {file.disk for file in chosen if file and file.disk}
    return Rows(
        name,
        as_text(files.source),
        len(chosen),
        partial(_read_file, chosen),
        columns,
        name_of=labels.__getitem__,
        identity=identity(sorted(disks), *labels) if disks else "",
        notes=unused.only(row_paths, "no label").notes(),
    )


def _of_table(files: Files, name: str, table: str, pictures: Sequence[str] | None = None) -> Rows:
    """Make the rows of a table; images without a row are counted."""
    called = f"{as_text(files.source)}/{table}"
    cells = read_rows(files.by_path[table].read(), called)
    key = path_column(cells, called)
    paths = match([row[key] for row in cells], image_paths(files) if pictures is None else pictures, called)
    columns: dict[str, list[Any]] = {"file": [row[key] for row in cells]}
    columns |= {column: [row[column] for row in cells] for column in cells[0] if column != key}
    others = {path: file for path, file in files.by_path.items() if path != table}
    return _of_columns(replace(files, by_path=others), name, paths, columns)


def _of_folders(files: Files, name: str) -> Rows:
    """Label images by the folder they lie in; of domain/class/image, the domain is a column of its own."""
    paths = [path for path in image_paths(files) if "/" in path]
    inner: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        top, second, *_ = (*path.split("/"), "")
        inner[top].add(second if path.count("/") == 2 else "")
    shared = set.intersection(*inner.values()) if inner else set()
    columns: dict[str, list[Any]] = {"file": list(map(as_text, paths))}
    has_domains = (
        len(inner) > 1
        and len(shared) > 1
        and all("" not in names and len(names) < 2 * len(shared) for names in inner.values())
    )
    if has_domains:
        columns["label"] = [as_text(path.split("/")[1]) for path in paths]
        columns["domain"] = [as_text(path.split("/")[0]) for path in paths]
    else:
        columns["label"] = [as_text(path.split("/")[0]) for path in paths]
    rows = _of_columns(files, name, paths, columns)
    domains = f"the folders {', '.join(sorted(inner)[:5])} are domains; classes are the folders inside"
    return replace(rows, by_folder=True, notes=(*rows.notes, as_text(domains)) if has_domains else rows.notes)


# The layouts of authors -----------------------------------------------------------------------------------


def _of_authors_table(files: Files, record: DatasetRecord) -> Rows:
    """FairFace as its authors publish it: a table of labels, and a folder of images for each margin."""
    table = next((path for path in files.by_path if path.endswith((*FAIRFACE_TABLES, *TABLES))), None)
    if table is None:
        raise InputError(f"{files.source!r} has no labels.csv with the groups of its images.")
    pictures, margin = image_paths(files), f"margin{(record.config or '').replace('.', '')}"
    if any("margin" in path for path in pictures):
        pictures = [path for path in pictures if margin in path]
        if not pictures:
            raise InputError(
                f"{files.source!r} has no images of {margin}, which {record.name!r} consists of."
            )
    return _of_table(files, record.name, table, pictures)


def _of_authors_list(files: Files, record: DatasetRecord, pictures: Sequence[str]) -> Rows:
    """Read the images that the authors' list names, as in Food-101, with the class in their path."""
    paths = list(pictures)
    if record.listed:
        table = next((path for path in files.by_path if f"/{path}".endswith(f"/{record.listed}")), None)
        if table is None:
            raise InputError(f"{files.source!r} has no {record.listed}, which names the images for tests.")
        lines = [line.split() for line in files.by_path[table].read().decode("utf-8", "replace").splitlines()]
        stems = [line[0] for line in lines if line and not line[0].startswith("#")]
        matched = match(stems, pictures, table, key=_without_ending)
        if missing := [stem for stem, path in zip(stems, matched, strict=True) if path is None]:
            raise InputError(
                f"{files.source!r} has no image {missing[0]!r}, which its {record.listed} names."
            )
        paths = [path for path in matched if path is not None]
    if record.label_in_name:
        labels = [path.rpartition("/")[2].rpartition("_")[0] for path in paths]
    else:
        labels = [path.split("/")[-2] if "/" in path else "" for path in paths]
    return _of_columns(files, record.name, paths, {"file": list(map(as_text, paths)), "label": labels})


def _without_ending(path: str) -> str:
    stem, suffix = os.path.splitext(path)
    return stem if suffix.lower() in (".jpg", ".jpeg", ".png") else path
