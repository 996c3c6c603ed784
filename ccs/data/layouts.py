"""Read a folder, a zip, a tar, or Parquet files, in any of the layouts of docs/datasets.md, into rows."""

import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from os.path import dirname
from pathlib import Path
from typing import Any

from ccs.data import DatasetRecord, Lazy
from ccs.data.archives import choose_archives
from ccs.data.files import NO_IMAGE, SPLITS, TABLES, VIDEOS, Files, list_files
from ccs.data.rows import LAYOUTS, Rows, is_several, plain, tidy
from ccs.errors import InputError
from ccs.files import as_text, read_rows

PATHS = ["file", "file_name", "filename", "img_filename", "filepath", "image_path", "img_path"]
PATHS += ["path", "image", "video", "video_id"]
"""Columns that may hold the path of a row's file, in order of preference."""
_WRAPPERS = {"image", "images", "img", "imgs", "jpegimages"}
"""Names of folders that hold images, but aren't classes."""
FAIRFACE_TABLES = ("label_val.csv", "fairface_label_val.csv")
_Row = tuple[str | None, dict[str, Any]]
"""The path of an image (None if the file is missing), and the row's cells."""


@dataclass(frozen=True)
class Local:
    """A set in a folder or a file: its record, the requested split, and the path."""

    record: DatasetRecord
    split: str
    path: Path

    def open_rows(self, max_rows: int | None) -> Rows:
        """Read all rows; the sample of `max_rows` is drawn later."""
        try:
            return read_files(list_files(self.path, as_text(str(self.path))), self.record, self.split)
        except OSError as error:  # of a table; one of an image is a reason to skip it
            name = as_text(str(error.filename or self.path))
            raise InputError(f"{name!r} cannot be read: {error.strerror or error}.") from None


def read_files(files: Files, record: DatasetRecord, split: str = "") -> Rows:
    """Read files into rows.

    Args:
        files: The files of a folder or an archive, or one Parquet file.
        record: The dataset's record. A known dataset may also have the layout of its authors or of its
            repository. A folder of unlabeled images (kind "images") is read whole.
        split: The split to read; by default the record's, or else the first of test, validation, and train.

    Raises:
        InputError: If the layout is unknown, or a copy of a known dataset differs from its record.
    """
    are_videos = record.kind == "classification" and not files.images and files.ending_in(*VIDEOS)
    kinds = (".parquet",) * (record.known or not files.images) + (".tar",) * (not files.images)
    names: Sequence[str] = ()
    if record.names_file:
        if record.names_file not in files.openers:
            raise InputError(f"{record.name!r} needs {record.names_file} with the names of its classes.")
        names = files.read(record.names_file).decode("utf-8-sig").splitlines()
    if record.kind == "videos" or (are_videos and not record.known):
        if split not in ("", record.split):
            raise InputError(f"{files.source!r} is a set of clips, whose split {split!r} can't be chosen.")
        rows = _videos(files, record)
    elif files.ending_in(*kinds):
        files = choose_archives(files, record, split)
        if files.ending_in(".parquet"):
            from ccs.data.parquet import read_parquet  # here, for PyArrow's import takes 30 MB

            rows = read_parquet(files.openers, record, files.title)
            rows = replace(rows, notes=(*files.notes, *rows.notes))
        else:
            rows = _images(files.unpack(files.openers), record, "")
    else:
        rows = _images(files, record, split)
    if not rows.count and record.kind != "images":
        reason = f"{rows.source!r} has neither a labels.csv nor images in class folders, nor Parquet files."
        raise InputError(" ".join((reason, *rows.notes[:3])))
    record.require_recorded(rows.source, rows.count, record.rows, "clips" if rows.are_videos else "images")
    folders = {str(path).replace("\\", "/").rpartition("/")[0] for path in rows.columns.get("file", ())}
    words = {*re.split(r"[\W\d_]+", " ".join(folders).casefold())} & SPLITS.keys()
    splits = {*map(tidy, rows.columns.get("split", ()))} or {SPLITS[word] for word in words}
    mixed = len(splits) > 1 and record.kind != "images"
    note = f"{', '.join(sorted(splits)[:5])} are not read as splits, but together"
    return replace(rows, names=names, notes=(*rows.notes, *[note] * mixed))


def _images(files: Files, record: DatasetRecord, split: str) -> Rows:
    """Read images, with labels from a table, from files next to them, from folders, or from their names."""
    labeled, table = record.kind != "images", ""
    notes: list[str] = []
    records, used = _webdataset(files) if labeled and record.known else ([], set())
    if not records and record.known:
        records, table = _as_published(files, record)
    if not records:
        files = files.descend(split, record.split) if labeled or split else files
        records, used = _webdataset(files) if labeled else ([], set())
        if records:
            notes = [f"labels are those of files next to the images, such as {as_text(min(used))}"]
        elif table := next((path for path in TABLES if labeled and path in files.openers), ""):
            records = _read_table(files, table, files.images)
        elif labeled:
            records, notes = _label_by_folder(files)
        else:
            records = [(path, {}) for path in files.images]
    used |= {path for path in (table, *dict(records)) if path}
    unused = files.only({*files.images, *used}, NO_IMAGE).only(used, "no label")
    rows = _rows(files, record, records)
    by_folder = labeled and not table and "label" in rows.columns
    return replace(rows, notes=(*unused.notes, *notes), by_folder=by_folder)


def _videos(files: Files, record: DatasetRecord) -> Rows:
    """Read videos, possibly in archives, with captions from the record's table, or else the only table."""
    tables = files.ending_in(".json", ".jsonl", ".csv")
    tables = [path for path in tables if path.rpartition("/")[2] == record.annotations] or tables
    if len(tables) != 1:
        listed = f"the tables {', '.join(tables[:5])}: keep the one" if tables else "no JSON file or table"
        raise InputError(f"{files.source!r} has {listed} with the captions of its clips.")
    if not files.ending_in(*VIDEOS):
        files = files.unpack(files.ending_in(".zip", ".tar"))
    records = _read_table(files, tables[0], files.ending_in(*VIDEOS), VIDEOS)
    unused = files.only([tables[0], *filter(None, dict(records))], "no clip with a caption")
    return replace(_rows(files, record, records), are_videos=True, notes=unused.notes)


def _rows(files: Files, record: DatasetRecord, records: Sequence[_Row]) -> Rows:
    paths = [path for path, _ in records]
    columns: dict[str, list[Any]] = {"file": [as_text(path or "") for path in paths]}
    names = dict.fromkeys(name for _, cells in records for name in cells)
    columns |= {name: [plain(cells.get(name)) for _, cells in records] for name in names}
    read = Lazy(files.read, paths).__getitem__
    rows = Rows(name=record.name, source=files.title, count=len(paths), read=read, columns=columns)
    return replace(rows, unusable=[name for name in columns if any(map(is_several, columns[name]))])


def _webdataset(files: Files) -> tuple[list[_Row], set[str]]:
    """Return the rows of a WebDataset, and the files with their cells; both are empty for other files."""
    siblings: dict[str, dict[str, str]] = defaultdict(dict)
    for path in files.openers:
        folder, _, name = path.rpartition("/")
        stem, _, extension = name.partition(".")
        siblings[f"{folder}/{stem}"][extension.lower()] = path
    samples: list[_Row] = []
    used: set[str] = set()
    images = {*files.images}
    for paths in siblings.values():
        sample_images = [path for path in paths.values() if path in images]
        if len(sample_images) != 1 or not {"cls", "json"} & paths.keys():
            continue
        cells: dict[str, Any] = {}
        with suppress(ValueError, TypeError, KeyError):
            cells = dict(json.loads(files.read(paths["json"])))
        if "cls" in paths:
            text = files.read(paths["cls"]).decode("utf-8", "replace").strip()
            cells["cls"] = int(text) if text.isdecimal() else text
        samples.append((sample_images[0], cells | {"file": as_text(sample_images[0])}))
        used |= {paths[ending] for ending in ("cls", "json") if ending in paths}
    return (samples, used) if 2 * len(samples) >= len(images) else ([], set())


def _read_table(files: Files, table: str, paths: Sequence[str], endings: tuple[str, ...] = ()) -> list[_Row]:
    """Return the rows of a table, matched with these paths regardless of `endings`."""
    title = f"{as_text(files.source)}/{table}"
    rows = read_rows(files.read(table), title)
    columns = dict.fromkeys(name for row in rows for name in row)
    if not (key := next(filter(columns.__contains__, PATHS), "")):
        listed = f"it has {', '.join(columns) or 'no rows'}"[:200]
        raise InputError(f"{title} needs a header: `file`, columns of labels, and commas between; {listed}.")
    names = [str(row.pop(key, "")) for row in rows]
    matched = zip(match(names, paths, title, endings), names, rows, strict=True)
    return [(path, {"file": name, **row}) for path, name, row in matched]


def _label_by_folder(files: Files) -> tuple[list[_Row], list[str]]:
    """Label images by their folder. In domain/class/image, the domain becomes a separate column."""
    paths = [path for path in files.images if "/" in path]
    classes: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        top, *inside = as_text(path).split("/")
        classes[top].add(inside[0] if len(inside) == 2 else "")
    shared = set.intersection(*classes.values()) if len(classes) > 1 else set()
    too_many = any("" in names or len(names) >= 2 * len(shared) for names in classes.values())
    are_splits = {*map(str.casefold, shared)} <= SPLITS.keys()
    are_domains = len(shared) > 1 and not too_many and not are_splits
    folders = [path.rsplit("/", path.count("/") - are_domains)[0] for path in paths]
    parts = {folder: as_text(folder).split("/")[::-1] for folder in {*folders}}
    cells = {folder: dict(zip(("label", "domain"), parts[folder], strict=False)) for folder in parts}
    listed = ", ".join(sorted(classes)[:5])
    if len(classes) > 1 and {*map(str.casefold, classes)} & _WRAPPERS:
        raise InputError(f"{files.source!r} has the folders {listed}, which are no classes: {LAYOUTS}.")
    notes = [f"the folders {listed} are domains; classes are the folders inside"] * are_domains
    if deeper := [] if are_domains else [path for path in paths if path.count("/") > 1]:
        notes.append(f"folders inside class folders are ignored, such as {as_text(dirname(deeper[0]))}")
    return [(path, cells[folder]) for path, folder in zip(paths, folders, strict=True)], notes


def _as_published(files: Files, record: DatasetRecord) -> tuple[list[_Row], str]:
    """Read a known dataset in its authors' layout.

    FairFace has a table of labels, and a folder of images per margin. In Food-101 and Oxford-Pets, the path
    or the name of an image has the class, and a file may list the images of a split.

    Returns:
        The rows, empty for another layout, and the table.
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


# Tables ---------------------------------------------------------------------------------------------------


def match(
    rows: Sequence[str], files: Sequence[str], name: str, endings: tuple[str, ...] = (), strict: bool = True
) -> list[str | None]:
    """Find each row's file: the one with the same path, or else with the longest common end of the path.

    A missing file isn't replaced by a file of the same name in another folder, unless no row has a file. In
    that case the folders were probably renamed.

    Args:
        rows: Paths in a table.
        files: Paths of the existing files.
        name: The table's name in messages.
        endings: File endings that are ignored.
        strict: Whether folders must have the same names.

    Returns:
        The path of each row's file, None for a missing file.

    Raises:
        InputError: If two files fit a row equally well, or two rows name the same file.
    """
    by_name: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for file in files:
        parts = _parts(file, endings)
        by_name[parts[0]][file] = parts
    row_of: dict[str | None, str] = {}
    matched: list[str | None] = []
    for row in rows:
        parts = _parts(row, endings)
        candidates = by_name[parts[0]]
        fits = {file: _fit(parts, candidates[file], strict=False) for file in candidates}
        longest = max(fits.values(), default=0)
        best = [file for file, fit in fits.items() if fit == longest > 0]
        fitting = [file for file in best if _fit(parts, candidates[file], strict)]
        if fitting and len(best) > 1:
            two = " and ".join(map(as_text, best[:2]))
            raise InputError(f"{name}: {as_text(row)[:200]!r} fits two files, {two}; write more of its path.")
        path = fitting[0] if fitting else None
        if path and path in row_of:
            twice = f"{as_text(path)} twice, as {row_of[path]!r} and {row!r}"
            raise InputError(f"{name} names {twice}; an image has one row.")
        row_of[path] = row
        matched.append(path)
    return matched if any(matched) or not strict else match(rows, files, name, endings, strict=False)


def _parts(path: str, endings: tuple[str, ...]) -> list[str]:
    """Return a path's parts from last to first, with normalized slashes, spaces, and Unicode, without "."."""
    path = unicodedata.normalize("NFC", path.strip().replace("\\", "/"))
    if path.lower().endswith(endings):
        path = path.rpartition(".")[0]
    *folders, name = path.split("/")
    return [name, *[part for i, part in enumerate(folders) if part != "." and (part or i == 0)][::-1]]


def _fit(parts: Sequence[str], file_parts: Sequence[str], strict: bool) -> int:
    """Return the number of parts that two paths share at their end, plus 1 if they are equal.

    The number is 0 if the folders above these parts name different splits or, if `strict`, differ at all.
    """
    pairs = zip(parts, file_parts, strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    above = [SPLITS.get(side[shared].casefold(), "") for side in (parts, file_parts) if len(side) > shared]
    differ = len(above) == 2 and (above[0] != above[1] if all(above) else strict)
    return 0 if differ else shared + (parts == file_parts)
