"""A gallery of one's own: labelled pictures of people from a file, a folder, or a set known by name."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np

from ccs.datasets import folder
from ccs.datasets.pictures import scan, with_labels
from ccs.datasets.sets import BiasSet
from ccs.errors import InputError

ATTRIBUTES = ("gender", "race", "age", "skin_tone", "skin tone", "ethnicity")
LABELS = "labels.csv"


def open_gallery(spec: str) -> BiasSet:
    """A gallery from a parquet file, a folder of labelled faces, or a set that `ccs.datasets` knows by name.

    A file has a column of pictures and one or more of `ATTRIBUTES`. A folder has a file labels.csv with a
    column `file` and one column an attribute, or one folder of pictures a group. Occupations and templates
    are the study's, K a tenth of the pictures. InputError for anything else.
    """
    path = Path(spec).expanduser()
    if path.is_dir():
        found = _folder(path)
    elif path.suffix == ".parquet":
        found = _parquet(path)
    else:
        from ccs import datasets

        named = datasets.open_set(spec)
        if not isinstance(named, BiasSet):
            raise InputError(f"{spec} is not a set of people with labelled groups.")
        return named
    return replace(found, k=dict.fromkeys(found.groups, max(1, len(found.images) // 10)))


def _parquet(path: Path) -> BiasSet:
    from ccs import paper
    from ccs.datasets import table

    present = table.open_parquet(path).columns if path.is_file() else ()
    attributes = {name.replace("_", " "): name for name in ATTRIBUTES if name in present}
    if not attributes:
        raise InputError(f"{path} is not there, or has none of the columns {', '.join(ATTRIBUTES)}.")
    return folder.bias_set(
        path,
        name=path.stem,
        attributes=attributes,
        k={},
        occupations=paper.occupations(),
        templates=paper.templates(),
    )


def _folder(path: Path) -> BiasSet:
    from ccs import paper

    pictures = {file.relative_to(path).as_posix(): file for file in folder.files(path)}
    labels = path / LABELS
    if labels.is_file():
        rows = _rows(labels)
    else:
        rows = [{"file": name, "group": name.split("/")[0]} for name in pictures if "/" in name]
    if not rows:
        raise InputError(f"{path} has neither a {LABELS} nor one folder of pictures a group.")
    files = [row["file"] for row in rows]
    found = scan(
        lambda i: pictures[files[i]].read_bytes() if files[i] in pictures else b"",
        range(len(files)),
        lambda i: files[i],
        str(path),
    )
    names = [name for name in rows[0] if name != "file"]
    groups = {name: np.array([rows[i][name] for i in found.kept]) for name in names}
    usable = {name: labels for name, labels in groups.items() if 2 <= len(set(labels)) <= 50}
    if not usable:
        raise InputError(f"{labels if labels.is_file() else path} names no attribute of 2 to 50 groups.")
    return BiasSet(
        name=path.resolve().name,
        images=found.pictures,
        fingerprint=with_labels(found.fingerprint, {name: list(map(str, g)) for name, g in usable.items()}),
        source=str(path),
        skipped=found.skipped,
        groups=usable,
        k={},
        occupations=paper.occupations(),
        templates=paper.templates(),
    )


def _rows(labels: Path) -> list[dict[str, str]]:
    try:
        with labels.open(encoding="utf-8-sig", newline="") as lines:
            rows = list(csv.DictReader(lines))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{labels} cannot be read as CSV: {error}.") from None
    if not rows or "file" not in rows[0] or len(rows[0]) < 2:
        raise InputError(f"{labels} needs a column `file` and at least one column of groups.")
    if any(None in row or None in row.values() for row in rows):
        raise InputError(f"{labels} has rows with more or fewer cells than its header.")
    return rows
