"""Sets made of rows: classes, and people with their groups, as a record says or as columns tell."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ccs import paper
from ccs.data import BiasSet, ClassificationSet, DatasetRecord, ImageSet, Lazy, templates
from ccs.data.decoding import decode
from ccs.data.digests import identity
from ccs.data.rows import LABELS, Readable, Rows, encoded
from ccs.errors import InputError, require
from ccs.files import as_text

ATTRIBUTES = ("gender", "race", "age", "skin_tone", "skin tone", "ethnicity")
MOST_GROUPS = 50
MOST_NUMBERS = 12
"""With more numbers than this in a column they are grouped by tens."""


def images(record: DatasetRecord, rows: Rows, most: int | None = None, names: Sequence[str] = ()) -> ImageSet:
    """The images, with their masks where there is a column `mask`, and no other column."""
    found, cells = rows.readable(most), rows.columns.get("mask")
    masks = () if cells is None else Lazy(partial(_mask, cells), found.kept)
    return ImageSet(name=rows.name, masks=masks, **found.fields())


def _mask(cells: Sequence[Any], row: int) -> Image.Image:
    """A mask of 0 and 1, or of 0 and 255, as black and white."""
    return Image.fromarray(np.where(np.asarray(decode(encoded(cells[row]))) > 0, np.uint8(255), np.uint8(0)))


def classes(
    record: DatasetRecord, rows: Rows, most: int | None = None, names: Sequence[str] = ()
) -> ClassificationSet:
    """Images with a class each. names: those of bare class numbers."""
    if not rows.count:
        raise InputError(f"{rows.source!r} has no class folders with images in them.")
    numbers, given = rows.labels(record.label if record.label in rows.columns else "label")
    if given is None:
        if not names:
            raise InputError(f"The labels of {record.name!r} are bare numbers and nothing names the classes.")
        given = tuple(names)
        if max(numbers) >= len(given):
            raise InputError(f"{record.name!r} has class {max(numbers)} but only {len(given)} class names.")
    called = [record.renames.get(name, name) for name in given]
    if record.names == "wordnet":
        called = _wordnet_names(called)
    if record.first_word:
        firsts = [name.replace(" ", "_").split("_")[0] for name in called]
        called = sorted(set(firsts))
        numbers = [-1 if number < 0 else called.index(firsts[number]) for number in numbers]
    elif record.names == "column":
        called = [name.replace("_", " ") for name in called]
    subsets = _subsets(record, called)
    if record.joined:
        called = [name.replace(" ", "_") for name in called]
    found = rows.readable(most, unlabeled={row: "no label" for row, one in enumerate(numbers) if one < 0})
    labels = found.of(numbers).astype(np.int64)
    return ClassificationSet(
        name=record.name,
        labels=labels,
        classes=tuple(called),
        templates=templates(record.templates),
        subsets=subsets,
        **found.fields(labels.tolist(), called),
    )


def _subsets(record: DatasetRecord, names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    needed = {label for members in record.subsets.values() for label in members}
    if missing := sorted(needed - set(names)):
        raise InputError(f"{record.name!r} lacks the classes {', '.join(missing)}, which its subsets need.")
    return {key: tuple(map(names.index, members)) for key, members in record.subsets.items()}


def _wordnet_names(ids: Sequence[str]) -> list[str]:
    """open_clip's names of ImageNet's classes ("n01440764" -> "tench"), by timm's list. InputError."""
    import open_clip

    every = files("timm.data").joinpath("_info/imagenet_synsets.txt").read_text(encoding="utf-8").split()
    known = dict(zip(every, open_clip.IMAGENET_CLASSNAMES, strict=True))
    for wordnet_id in ids:
        if wordnet_id not in known:
            raise InputError(f"{wordnet_id!r} is not the WordNet id of one of ImageNet's 1,000 classes.")
    return [known[wordnet_id] for wordnet_id in ids]


def matlab_rows(path: Path, name: str) -> Rows:
    """ImageNet-Segmentation as it is published: gtsegs_ijcv.mat, of MATLAB 7.3, which is HDF5. Images become
    PNG.

    `value/img` refers to each image [3, width, height], `value/gt` to a list of masks [width, height] of 0
    and 1, of which the first counts, as in the TEXTSPAN authors' code. InputError for any other file.
    """
    require("mat", "h5py")
    import h5py

    try:
        with h5py.File(path) as file:
            count, _ = len(file["value/img"]), file["value/gt"]
    except (OSError, KeyError) as error:
        raise InputError(f"{str(path)!r} is not laid out like gtsegs_ijcv.mat ({error}).") from None
    masks, source = Lazy(partial(_png, path, "gt"), range(count)), as_text(str(path))
    read = partial(_png, path, "img")
    return Rows(name, source, count, read, {"mask": masks}, identity=identity([path]))


def _png(path: Path, part: str, row: int) -> bytes:
    import h5py

    with h5py.File(path) as file:
        held = file[file[f"value/{part}"][row, 0]]
        pixels = np.asarray(file[held[0, 0]] if part == "gt" else held).T
    out = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(out, "PNG", compress_level=1)
    return out.getvalue()


# People -----------------------------------------------------------------------------------------------------


def people(
    record: DatasetRecord,
    rows: Rows,
    most: int | None = None,
    attributes: Sequence[str] = (),
    *,
    every: bool = False,
) -> BiasSet:
    """Images of people; K is a tenth of them, occupations and templates are the study's.

    A known set has the groups and cut-offs of its record. Otherwise groups come from `attributes`, or else
    from columns of 2 to 50 groups: those of usual names, or where there are none, all; with `every` also the
    others without empty cells. Many numbers, such as ages, are grouped by tens.
    """
    if record.groups:
        return _known_people(record, rows, most)
    if not rows.count:
        raise InputError(f"{rows.source} has neither a {LABELS} nor one folder of images per group.")
    known = {"group" if name == "label" else name.replace("_", " "): name for name in rows.columns}
    usual = [name for name in known if known[name] in ATTRIBUTES]
    others = [name for name in known if name not in usual] if every or not usual else []
    columns = ", ".join(name for name in known if name != "file") or "none"
    if unknown := [name for name in attributes if name not in known]:
        raise InputError(f"{rows.name} has no attribute {unknown[0]!r}; its columns are {columns}.")
    texts = {name: _decades(rows.strings(known[name])) for name in attributes or usual + others}
    # An empty cell in another column would cost the usual ones an image.
    holed = {name for name in others if usual and "" in texts.get(name, ())}
    texts = {
        name: cells
        for name, cells in texts.items()
        if len({*cells} - {""}) in range(2, MOST_GROUPS + 1) and (attributes or name not in {"file", *holed})
    }
    found = rows.readable(
        most,
        unlabeled={row: f"no {name}" for name in texts for row, cell in enumerate(texts[name]) if not cell},
    )
    groups = {name: found.of(cells) for name, cells in texts.items()}
    groups = {name: cells for name, cells in groups.items() if len(set(cells)) > 1}
    lacking = [name for name in attributes if name not in groups]
    if lacking or not groups:
        named = f" {lacking[0]!r}" if lacking else ""
        raise InputError(
            f"{rows.name} has no attribute{named} of 2 to {MOST_GROUPS} groups (columns: {columns})."
        )
    return _people(rows.name, found, groups, dict.fromkeys(groups, max(1, len(found.images) // 10)))


def _decades(cells: Sequence[str]) -> Sequence[str]:
    """More than a dozen whole numbers by tens ("20-29"), but for those that number the rows; other groups as
    they are.
    """
    names, known = {*cells} - {""}, [cell for cell in cells if cell]
    if len(names) <= MOST_NUMBERS or len(names) == len(known) > MOST_GROUPS:
        return cells
    if not all(re.fullmatch(r"\d{1,3}", name, re.ASCII) for name in names):
        return cells
    return [cell and f"{int(cell) // 10 * 10}-{int(cell) // 10 * 10 + 9}" for cell in cells]


def _people(name: str, found: Readable, groups: Mapping[str, np.ndarray], k: Mapping[str, int]) -> BiasSet:
    return BiasSet(
        name=name,
        groups=groups,
        k=k,
        occupations=paper.occupations(),
        templates=paper.templates(),
        **found.fields({attribute: cells.tolist() for attribute, cells in groups.items()}),
    )


def _known_people(record: DatasetRecord, rows: Rows, most: int | None) -> BiasSet:
    """FairFace or SocialCounterfactuals by its record; of part of FairFace, K is the same part."""
    if "a1_type" in rows.columns:
        return _counterfactuals(record, rows, most)
    found = rows.readable(most)
    groups = {}
    for attribute, column in record.groups.items():
        cells = rows.strings(column)
        if record.renames and attribute == "race":  # "race (seven)" keeps the groups as they are
            if unknown := set(cells) - set(record.renames):
                known = ", ".join(record.renames)
                raise InputError(f"The group {min(unknown)!r} is not defined; the groups are {known}.")
            cells = [record.renames[name] for name in cells]
        groups[attribute] = found.of(cells)
    share = min(1.0, len(found.images) / record.rows) if record.rows else 1.0
    k = {attribute: max(1, round(k * share)) for attribute, k in record.k.items()}
    return _people(record.name, found, groups, k)


def _counterfactuals(record: DatasetRecord, rows: Rows, most: int | None) -> BiasSet:
    """SocialCounterfactuals, with only those sets that vary all of the record's attributes.

    A row names the two attributes that its set varies, in either order, and its caption ends with the
    occupation, which is left out where it has fewer images than the largest cut-off.
    """
    told = zip(*(rows.strings(column) for column in ("a1_type", "a1", "a2_type", "a2")), strict=True)
    varied = [{one_type: one, other_type: other} for one_type, one, other_type, other in told]
    # The study's code uses the last word of the file's name, which has the same words as the caption.
    shown = [text.lower().strip(" .").rpartition(" ")[2] for text in rows.strings("caption")]
    units, occupations, wanted = rows.strings("counterfactual_set"), paper.occupations(), set(record.groups)
    kept = [row for row, own in enumerate(varied) if wanted <= own.keys() and shown[row] in occupations]
    if not kept:
        raise InputError(
            f"No row of {record.name!r} varies {' and '.join(sorted(wanted))} for an occupation of the study."
        )
    found = rows.readable(most, kept)
    groups = {
        attribute: np.array([varied[row][attribute] for row in found.kept]) for attribute in record.groups
    }
    pools = found.of(shown)
    sizes = {name: int((pools == name).sum()) for name in occupations}
    least = max(record.k.values())
    few = [f"occupation {name}: only {size} images" for name, size in sizes.items() if size < least]
    if len(few) == len(sizes):
        raise InputError(f"No occupation of {record.name!r} has the {least} images that its cut-off needs.")
    return replace(
        _people(record.name, found, groups, dict(record.k)),
        occupations=tuple(name for name, size in sizes.items() if size >= least),
        skipped=(*found.skipped, *few),
        pools=pools,
        units=np.unique(found.of(units), return_inverse=True)[1].astype(np.int64),
    )
