"""Make sets of rows: images with classes, and people with their groups, as a record or the columns tell."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path

import numpy as np
from PIL import Image

from ccs import paper
from ccs.data import BiasSet, ClassificationSet, DatasetRecord, ImageSet, Lazy, templates
from ccs.data.decoding import decode
from ccs.data.digests import identity
from ccs.data.rows import Readable, Rows, Sample, in_order, merge_spellings
from ccs.errors import InputError, require
from ccs.files import as_text

ATTRIBUTES = ("gender", "race", "age", "skin_tone", "skin tone", "ethnicity")
MOST_GROUPS = 50
MOST_NUMBERS = 12
"""With more numbers than this in a column they are grouped by tens."""
ALL = Sample()


def images(record: DatasetRecord, rows: Rows, sample: Sample = ALL, names: Sequence[str] = ()) -> ImageSet:
    """Return the images, with their masks if there is a column `mask`, and no other column."""
    _require_as_recorded(record, rows)
    top = [path.rpartition("/")[0] for path in rows.columns.get("file", ())]
    readable, cells = rows.readable(sample, strata=top), rows.columns.get("mask")
    masks = () if cells is None else Lazy(partial(_mask, cells), readable.kept)
    return ImageSet(name=rows.name, masks=masks, **readable.fields())


def _mask(cells: Sequence[bytes], row: int) -> Image.Image:
    """Decode a mask of 0 and 1, or of 0 and 255, as black and white."""
    return Image.fromarray(np.where(np.asarray(decode(cells[row])) > 0, np.uint8(255), np.uint8(0)))


def _require_as_recorded(record: DatasetRecord, rows: Rows, classes: int = 0) -> None:
    """Raise InputError if a copy of a known set has other numbers of rows or classes than its record."""
    for count, recorded, what in (
        (rows.count, 0 if record.approximate or rows.is_part else record.rows, "images"),
        (classes, record.class_count, "classes"),
    ):
        if record.known and count and recorded and count != recorded:
            raise InputError(
                f"{rows.source!r} has {count:,} {what}, but {record.title or record.name} {recorded:,}: it "
                "is another set or part, or is laid out in a way that isn't known (docs/datasets.md)."
            )


def classes(
    record: DatasetRecord, rows: Rows, sample: Sample = ALL, names: Sequence[str] = ()
) -> ClassificationSet:
    """Make images with one class each.

    Args:
        record: The set's record.
        rows: Its rows, with a column of labels.
        sample: The images to draw, from each class.
        names: The names of the classes, in the order of their numbers; by default those of the labels.

    Raises:
        InputError: If labels are missing or can't be told apart, or a known set isn't as recorded.
    """
    if not rows.count:
        raise InputError(
            " ".join((f"{rows.source!r} has no class folders with images in them.", *rows.notes[:3]))
        )
    numbers, given, notes = _class_numbers(rows, record, names)
    called = [record.renames.get(name, name) for name in given]
    if record.names == "wordnet":
        called = _wordnet_names(called)
    if record.first_word:
        firsts = [name.replace(" ", "_").split("_")[0] for name in called]
        called = sorted(set(firsts))
        numbers = [-1 if number < 0 else called.index(firsts[number]) for number in numbers]
    elif record.names == "column":
        called = [name.replace("_", " ") for name in called]
    _require_as_recorded(record, rows, len(called))
    if len(called) < 2:
        raise InputError(
            f"{rows.source!r} has only one class, {called[0]!r}: accuracy needs two. Give the folder that "
            "holds one folder of images per class."
        )
    subsets = _subsets(record, called)
    if record.joined:
        called = [name.replace(" ", "_") for name in called]
    unlabeled = {row: "no label" for row, number in enumerate(numbers) if number < 0}
    readable = replace(rows, notes=(*rows.notes, *notes)).readable(
        sample, unlabeled=unlabeled, strata=numbers
    )
    labels = readable.of(numbers).astype(np.int64)
    return ClassificationSet(
        name=record.name,
        labels=labels,
        classes=tuple(called),
        templates=templates(record.templates),
        subsets=subsets,
        **readable.fields(labels.tolist(), called),
    )


def _class_numbers(
    rows: Rows, record: DatasetRecord, names: Sequence[str]
) -> tuple[list[int], tuple[str, ...], tuple[str, ...]]:
    """Return each row's class number (-1 for no label), the classes' names, and notes on merged names."""
    column = record.label if record.label in rows.columns else "label" if "label" in rows.columns else "cls"
    cells = rows.column(column if column in rows.columns else "label")
    if column not in rows.classes and all(
        cell is None or (isinstance(cell, int | float) and not isinstance(cell, bool) and cell == int(cell))
        for cell in cells
    ):
        numbers = [-1 if cell is None else int(cell) for cell in cells]
        if not names:
            raise InputError(f"The labels of {record.name!r} are bare numbers and nothing names the classes.")
        if max(numbers) >= len(names):
            raise InputError(f"{record.name!r} has class {max(numbers)} but only {len(names)} class names.")
        return numbers, tuple(names), ()
    texts = rows.strings(column)
    given = in_order({text for text in texts if text})
    notes: tuple[str, ...] = ()
    if column in rows.classes:
        given = (
            list(dict.fromkeys(rows.classes[column]))
            if record.known
            else list(map(str, rows.classes[column]))
        )
    if not record.known:
        merged, notes = merge_spellings([text for text in texts if text])
        texts = [merged.get(text, "") for text in texts]
        given = [name for name in given if merged.get(name, name) == name]
    number = {name: place for place, name in enumerate(given)}
    numbers = [number.get(text, -1) for text in texts]
    if rows.by_folder:
        given = [name.replace("-", " ") for name in given]
    if names and all(re.fullmatch(r"\d{1,9}", name, re.ASCII) for name in given):
        values = list(map(int, given))
        if max(values) < len(names):  # the folders are the classes' numbers, of which some may be missing
            return [-1 if n < 0 else values[n] for n in numbers], tuple(names), notes
    return numbers, renamed(given, names, record.name) if names else tuple(given), notes


def renamed(classes: Sequence[str], names: Sequence[str], source: str) -> tuple[str, ...]:
    """Return the names for the classes. Raises InputError for another number of names."""
    if len(names) != len(classes):
        raise InputError(f"{source} has {len(classes)} classes, but {len(names)} names were given.")
    return tuple(names)


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
    sample: Sample = ALL,
    attributes: Sequence[str] = (),
    *,
    every_column: bool = False,
) -> BiasSet:
    """Make images of people with groups; K is a tenth of them, occupations and templates are the paper's.

    A known set has the groups and cut-offs of its record. Many numbers, such as ages, are grouped by tens.

    Args:
        record: The set's record.
        rows: Its rows, with columns of groups.
        sample: The images to draw, from each group.
        attributes: The columns of groups; by default those of usual names with 2 to 50 groups, or else all.
        every_column: By default, take the other columns without empty cells too.

    Raises:
        InputError: If no column groups the images, or a known set isn't as recorded.
    """
    _require_as_recorded(record, rows)
    if record.groups:
        return _known_people(record, rows, sample)
    if not rows.count:
        reason = f"{rows.source} has neither a labels.csv nor one folder of images per group."
        raise InputError(" ".join((reason, *rows.notes[:3])))
    shown = {
        "group" if name == "label" else name.replace("_", " "): name
        for name in (*rows.columns, *rows.unusable)
    }
    usual = [name for name in shown if shown[name] in ATTRIBUTES]
    others = [name for name in shown if name not in usual] if every_column or not usual else []
    columns = ", ".join(name for name in shown if name != "file") or "none"
    if unknown := [name for name in attributes if name not in shown]:
        raise InputError(f"{rows.name} has no attribute {unknown[0]!r}; its columns are {columns}.")
    groups: dict[str, list[str]] = {}
    refused: dict[str, str] = {}
    notes: list[str] = []
    for name in attributes or (*usual, *others):
        cells, merged, reason = _groups(rows, shown[name], is_chosen=name in attributes)
        if not reason and "" in cells and name in others and usual:
            reason = "it has empty cells, each of which would cost an image"
        if reason:
            refused[name] = reason
        elif attributes or shown[name] != "file":
            groups[name] = cells
            notes += merged
    if not groups or refused.keys() & set(attributes):
        wanted = next((name for name in attributes if name in refused), next(iter(refused), ""))
        why = f"; {wanted!r}: {refused[wanted]}" if wanted else ""
        named = f" {wanted!r}" if attributes else ""
        raise InputError(
            f"{rows.name} has no attribute{named} of 2 to {MOST_GROUPS} groups (columns: {columns}{why})."
        )
    notes += [
        f"the column {name!r} is no attribute: {reason}" for name, reason in refused.items() if name != "file"
    ]
    empty = {
        row: f"no {name}" for name, cells in groups.items() for row, cell in enumerate(cells) if not cell
    }
    strata = list(zip(*groups.values(), strict=True))
    readable = replace(rows, notes=(*rows.notes, *notes)).readable(sample, unlabeled=empty, strata=strata)
    arrays = {name: readable.of(cells) for name, cells in groups.items()}
    arrays = {name: cells for name, cells in arrays.items() if len(set(cells)) > 1}
    lacking = [name for name in attributes or groups if name not in arrays]
    if lacking and (attributes or not arrays):
        raise InputError(
            f"{rows.name} has no attribute {lacking[0]!r} of 2 to {MOST_GROUPS} groups among the images that "
            f"can be used (columns: {columns})."
        )
    return _people(rows.name, readable, arrays, dict.fromkeys(arrays, max(1, len(readable.images) // 10)))


def _groups(rows: Rows, column: str, *, is_chosen: bool) -> tuple[list[str], tuple[str, ...], str]:
    """Return each row's group, notes on merged groups, and why the column can't group images or ""."""
    if column in rows.unusable:
        return [], (), rows.unusable[column]
    cells = _decades(rows.strings(column), may_number_rows=not is_chosen)
    merged, notes = merge_spellings(cells)
    cells = [merged[cell] for cell in cells]
    count = len({*cells} - {""})
    if not 2 <= count <= MOST_GROUPS:
        return (
            cells,
            (),
            f"it has {count} groups" if count != 1 else f"all have {next(iter({*cells} - {''}))[:40]!r}",
        )
    return cells, notes, ""


def _decades(cells: list[str], *, may_number_rows: bool) -> list[str]:
    """Group more than a dozen whole numbers by tens ("20-29"), unless they number the rows."""
    names, known = {*cells} - {""}, [cell for cell in cells if cell]
    numbers_rows = may_number_rows and len(names) == len(known) > MOST_GROUPS
    if len(names) <= MOST_NUMBERS or numbers_rows:
        return cells
    if not all(re.fullmatch(r"\d{1,3}(\.0+)?", name, re.ASCII) for name in names):
        return cells
    tens = {name: int(float(name)) // 10 * 10 for name in names}
    return [cell and f"{tens[cell]}-{tens[cell] + 9}" for cell in cells]


def _people(name: str, readable: Readable, groups: Mapping[str, np.ndarray], k: Mapping[str, int]) -> BiasSet:
    return BiasSet(
        name=name,
        groups=groups,
        k=k,
        occupations=paper.occupations(),
        templates=paper.templates(),
        **readable.fields({attribute: cells.tolist() for attribute, cells in groups.items()}),
    )


def _known_people(record: DatasetRecord, rows: Rows, sample: Sample) -> BiasSet:
    """FairFace or SocialCounterfactuals by its record; of part of FairFace, K is the same part."""
    if "a1_type" in rows.columns:
        return _counterfactuals(record, rows, sample)
    readable = rows.readable(sample, strata=_joint(rows, record))
    groups = {}
    for attribute, column in record.groups.items():
        cells = rows.strings(column)
        if record.renames and attribute == "race":  # "race (seven)" keeps the groups as they are
            if unknown := set(cells) - set(record.renames):
                known = ", ".join(record.renames)
                raise InputError(f"The group {min(unknown)!r} is not defined; the groups are {known}.")
            cells = [record.renames[name] for name in cells]
        groups[attribute] = readable.of(cells)
    share = min(1.0, len(readable.images) / record.rows) if record.rows else 1.0
    k = {attribute: max(1, round(k * share)) for attribute, k in record.k.items()}
    return _people(record.name, readable, groups, k)


def _joint(rows: Rows, record: DatasetRecord) -> list[tuple[str, ...]]:
    """Return each row's groups in all of the record's attributes."""
    columns = dict.fromkeys(record.groups.values())
    return list(zip(*(rows.strings(column) for column in columns), strict=True))


def _counterfactuals(record: DatasetRecord, rows: Rows, sample: Sample) -> BiasSet:
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
    readable = rows.readable(sample, kept, strata=shown)
    groups = {
        attribute: np.array([varied[row][attribute] for row in readable.kept]) for attribute in record.groups
    }
    pools = readable.of(shown)
    sizes = {name: int((pools == name).sum()) for name in occupations}
    least = max(record.k.values())
    few = [f"occupation {name}: only {size} images" for name, size in sizes.items() if size < least]
    if len(few) == len(sizes):
        raise InputError(f"No occupation of {record.name!r} has the {least} images that its cut-off needs.")
    return replace(
        _people(record.name, readable, groups, dict(record.k)),
        occupations=tuple(name for name, size in sizes.items() if size >= least),
        skipped=(*readable.skipped, *few),
        pools=pools,
        units=np.unique(readable.of(units), return_inverse=True)[1].astype(np.int64),
    )
