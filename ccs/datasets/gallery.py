"""A gallery of one's own: labeled images of people from a file, a folder, or a set known by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ccs.datasets import folder, opening, table
from ccs.datasets.images import Scan, scan
from ccs.datasets.sets import BiasSet
from ccs.errors import InputError
from ccs.paper import figures as paper

ATTRIBUTES = ("gender", "race", "age", "skin_tone", "skin tone", "ethnicity")
LABELS = "labels.csv"


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
    return BiasSet(
        name=path.resolve().name if path.is_dir() else path.stem,
        groups=groups,
        k=dict.fromkeys(groups, max(1, len(found.images) // 10)),
        occupations=paper.occupations(),
        templates=paper.templates(),
        **found.fields({name: cells.tolist() for name, cells in groups.items()}),
    )


def _parquet(path: Path) -> tuple[Scan, Mapping[str, np.ndarray]]:
    rows = table.open_parquet(path)
    attributes = {name.replace("_", " "): name for name in ATTRIBUTES if name in rows.columns}
    if not attributes:
        raise InputError(f"{path} has none of the columns {', '.join(ATTRIBUTES)}.")
    found = folder.scan_column(rows, rows.image_column(), None, str(path))
    kept = list(found.kept)
    return found, {name: np.array(rows.strings(column))[kept] for name, column in attributes.items()}


def _folder(path: Path) -> tuple[Scan, Mapping[str, np.ndarray]]:
    images = {file.relative_to(path).as_posix(): file for file in folder.files(path)}
    labels = path / LABELS
    if labels.is_file():
        rows = folder.read_labels(labels, ["file"])
    else:
        rows = [{"file": name, "group": name.split("/")[0]} for name in images if "/" in name]
    if not rows:
        raise InputError(f"{path} has neither a {LABELS} nor one folder of images per group.")
    files = [row["file"] for row in rows]
    found = scan(
        lambda i: images[files[i]].read_bytes() if files[i] in images else b"",
        range(len(files)),
        lambda i: files[i],
        str(path),
    )
    groups = {name: np.array([rows[i][name] for i in found.kept]) for name in rows[0] if name != "file"}
    usable = {name: cells for name, cells in groups.items() if 2 <= len(set(cells)) <= 50}
    if not usable:
        raise InputError(f"{labels if labels.is_file() else path} names no attribute of 2 to 50 groups.")
    return found, usable
