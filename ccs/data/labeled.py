"""Make sets of rows: images with classes, and people with their groups, as a record or the columns tell."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.resources import files

import numpy as np
from PIL import Image

from ccs import paper
from ccs.data import BiasSet, ClassificationSet, DatasetRecord, ImageSet, Lazy, templates
from ccs.data.decoding import decode
from ccs.data.rows import ALL, Readable, Rows, Sample, in_order, merge_spellings
from ccs.errors import InputError

ATTRIBUTES = ("gender", "race", "age", "skin_tone", "skin tone", "ethnicity")
MOST_GROUPS = 50
MOST_NUMBERS = 12
"""With more numbers than this in a column they are grouped by tens."""
LABELS = ("label", "cls", "class", "y")
"""Columns of the classes in a user's table."""


def images(record: DatasetRecord, rows: Rows, sample: Sample = ALL, names: Sequence[str] = ()) -> ImageSet:
    """Make images without labels, with their masks if there is a column `mask`.

    Args:
        record: The set's record.
        rows: Its rows.
        sample: The images to draw, from each folder.
        names: Not used; as in `classes`.
    """
    _require_as_recorded(record, rows)
    top = [path.rpartition("/")[0] for path in rows.columns.get("file", ())]
    readable, cells = rows.readable(sample, strata=top), rows.columns.get("mask")
    masks = () if cells is None else Lazy(partial(_mask, cells), readable.row_numbers)
    return ImageSet(name=rows.name, masks=masks, **readable.fields())


def _mask(cells: Sequence[bytes], row: int) -> Image.Image:
    """Decode a mask of 0 and 1, or of 0 and 255, as black and white."""
    return Image.fromarray(np.where(np.asarray(decode(cells[row])) > 0, np.uint8(255), np.uint8(0)))


def _require_as_recorded(record: DatasetRecord, rows: Rows, classes: int = 0) -> None:
    """Raise InputError if a copy of a known set has other numbers of rows or classes than its record."""
    for count, recorded, unit in (
        (rows.count, 0 if record.approximate or rows.is_part else record.rows, "images"),
        (classes, record.class_count, "classes"),
    ):
        if record.known and count and recorded and count != recorded:
            raise InputError(
                f"{rows.source!r} has {count:,} {unit}, but {record.title or record.name} {recorded:,}: it "
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
    numbers, label_names, notes = _class_numbers(rows, record, names)
    class_names = [record.renames.get(name, name) for name in label_names]
    if record.names == "wordnet":
        class_names = _wordnet_names(class_names)
    if record.first_word:
        firsts = [name.replace(" ", "_").split("_")[0] for name in class_names]
        class_names = sorted(set(firsts))
        numbers = [-1 if number < 0 else class_names.index(firsts[number]) for number in numbers]
    elif record.names == "column":
        class_names = [name.replace("_", " ") for name in class_names]
    _require_as_recorded(record, rows, len(class_names))
    if len(class_names) < 2:
        raise InputError(
            f"{rows.source!r} has only one class, {', '.join(class_names)!r}: accuracy needs two. Give the "
            "folder that holds one folder of images per class."
        )
    subsets = _subsets(record, class_names)
    if record.joined:
        class_names = [name.replace(" ", "_") for name in class_names]
    unlabeled = {row: "no label" for row, number in enumerate(numbers) if number < 0}
    readable = replace(rows, notes=(*rows.notes, *notes)).readable(
        sample, unlabeled=unlabeled, strata=numbers
    )
    labels = readable.of(numbers).astype(np.int64)
    return ClassificationSet(
        name=record.name,
        labels=labels,
        classes=tuple(class_names),
        templates=templates(record.templates),
        subsets=subsets,
        groups=_group_columns(rows, record, readable.row_numbers),
        **readable.fields(labels.tolist(), class_names),
    )


def _label_column(rows: Rows, record: DatasetRecord) -> str:
    return next((name for name in (record.label, *LABELS) if name in rows.columns), "label")


def _group_columns(rows: Rows, record: DatasetRecord, row_numbers: Sequence[int]) -> dict[str, np.ndarray]:
    """Return the columns that divide the images into a few groups, such as the place of Waterbirds."""
    groups = {}
    for name in () if record.known else rows.columns.keys() - {"file", "split", _label_column(rows, record)}:
        if name not in rows.unusable and all(isinstance(cell, str | int) for cell in rows.columns[name]):
            texts = np.array(rows.strings(name))[list(row_numbers)]
            if 2 <= len(np.unique(texts)) <= MOST_NUMBERS and (texts != "").all():
                groups[name] = texts
    return dict(sorted(groups.items()))


def _class_numbers(
    rows: Rows, record: DatasetRecord, names: Sequence[str]
) -> tuple[list[int], tuple[str, ...], tuple[str, ...]]:
    """Return each row's class number (-1 for no label), the classes' names, and notes on merged names."""
    column = _label_column(rows, record)
    labels = rows.strings(column)
    is_bare = column not in rows.classes and any(type(cell) in (int, float) for cell in rows.columns[column])
    if is_bare:
        labels = ["" if label == "-1" else label for label in labels]
    classes = list(rows.classes.get(column, ())) or in_order({*labels} - {""})
    are_numbers = all(re.fullmatch(r"\d{1,9}", name, re.ASCII) for name in classes)
    if is_bare and not (names and are_numbers):
        raise InputError(f"The labels of {record.name!r} are bare numbers and nothing names the classes.")
    notes: tuple[str, ...] = ()
    if not record.known:
        spellings, notes = merge_spellings(label for label in labels if label)
        labels = [spellings.get(label, "") for label in labels]
        classes = [name for name in classes if spellings.get(name, name) == name]
    number = {name: place for place, name in enumerate(classes)}
    if names and are_numbers:
        values = {name: int(name) for name in classes}
        if max(values.values(), default=0) < len(names):  # numbers of classes, of which some may be missing
            number, classes = values, list(names)
        elif is_bare:
            raise InputError(f"{record.name!r} has class {max(values.values())} but only {len(names)} names.")
    if names:
        classes = list(renamed(classes, names, record.name))
    elif rows.by_folder:
        classes = [name.replace("-", " ") for name in classes]
    return [number.get(label, -1) for label in labels], tuple(classes), notes


def renamed(classes: Sequence[str], names: Sequence[str], source: str) -> tuple[str, ...]:
    """Return the names for the classes.

    Args:
        classes: The classes.
        names: Their names in prompts.
        source: The set's name in messages.

    Raises:
        InputError: If there are more or fewer names than classes.
    """
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

    wordnet_ids = (
        files("timm.data").joinpath("_info/imagenet_synsets.txt").read_text(encoding="utf-8").split()
    )
    known = dict(zip(wordnet_ids, open_clip.IMAGENET_CLASSNAMES, strict=True))
    for wordnet_id in ids:
        if wordnet_id not in known:
            raise InputError(f"{wordnet_id!r} is not the WordNet id of one of ImageNet's 1,000 classes.")
    return [known[wordnet_id] for wordnet_id in ids]


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
    offered = {
        "group" if name == "label" else name.replace("_", " "): name
        for name in (*rows.columns, *rows.unusable)
        if name != "file"
    }
    columns = ", ".join(offered) or "none"
    if unknown := [name for name in attributes if name not in offered]:
        raise InputError(f"{rows.name} has no attribute {unknown[0]!r}; its columns are {columns}.")
    usual = [name for name in offered if offered[name] in ATTRIBUTES]
    others = [name for name in offered if name not in usual] if every_column or not usual else []
    groups: dict[str, list[str]] = {}
    refused: dict[str, str] = {}
    notes: list[str] = []
    for name in attributes or (*usual, *others):
        cells, merged, reason = _groups(rows, offered[name], is_chosen=name in attributes)
        if not reason and not attributes and usual and name in others and "" in cells:
            reason = "it has empty cells, each of which would cost an image"
        if reason:
            refused[name] = reason
        else:
            groups[name] = cells
            notes += merged
    empty = {
        row: f"no {name}" for name, cells in groups.items() for row, cell in enumerate(cells) if not cell
    }
    if refused.keys() & set(attributes) or not groups:
        name, reason = next(iter(refused.items()), ("", ""))
        raise InputError(
            _no_groups(rows, name * bool(attributes), columns, reason and f"; {name!r}: {reason}")
        )
    notes += [f"the column {name!r} is no attribute: {reason}" for name, reason in refused.items()]
    strata = list(zip(*groups.values(), strict=True))
    readable = replace(rows, notes=(*rows.notes, *notes)).readable(sample, unlabeled=empty, strata=strata)
    arrays = {name: readable.of(cells) for name, cells in groups.items()}
    varying = {name: cells for name, cells in arrays.items() if len(set(cells)) > 1}
    if not varying or (attributes and len(varying) < len(arrays)):
        lacking = next(name for name in arrays if name not in varying)
        raise InputError(_no_groups(rows, lacking, columns, "; among the images that can be used"))
    return _people(rows.name, readable, varying, dict.fromkeys(varying, max(1, len(readable.images) // 10)))


def _no_groups(rows: Rows, name: str, columns: str, reason: str) -> str:
    attribute = f"attribute {name!r}" if name else "attribute"
    return f"{rows.name} has no {attribute} of 2 to {MOST_GROUPS} groups (columns: {columns}{reason})."


def _groups(rows: Rows, column: str, *, is_chosen: bool) -> tuple[list[str], tuple[str, ...], str]:
    """Return each row's group, notes on merged groups, and why the column can't group images or ""."""
    if column in rows.unusable:
        return [], (), rows.unusable[column]
    cells = _decades(rows.strings(column), may_number_rows=not is_chosen)
    spellings, notes = merge_spellings(cells)
    cells = [spellings[cell] for cell in cells]
    groups = {*cells} - {""}
    if len(groups) == 1:
        return cells, (), f"all have {groups.pop()[:40]!r}"
    return cells, notes, "" if 2 <= len(groups) <= MOST_GROUPS else f"it has {len(groups)} groups"


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
    """Make FairFace or SocialCounterfactuals by its record; of part of FairFace, K is the same part."""
    if "a1_type" in rows.columns:
        return _counterfactuals(record, rows, sample)
    groups = {attribute: rows.strings(column) for attribute, column in record.groups.items()}
    readable = rows.readable(sample, strata=list(zip(*groups.values(), strict=True)))
    if record.renames:  # "race (seven)" keeps the groups as they are
        if unknown := set(groups["race"]) - set(record.renames):
            listed = ", ".join(record.renames)
            raise InputError(f"The group {min(unknown)!r} is not defined; the groups are {listed}.")
        groups["race"] = [record.renames[name] for name in groups["race"]]
    share = min(1.0, len(readable.images) / record.rows) if record.rows else 1.0
    k = {attribute: max(1, round(k * share)) for attribute, k in record.k.items()}
    return _people(record.name, readable, {name: readable.of(cells) for name, cells in groups.items()}, k)


def _counterfactuals(record: DatasetRecord, rows: Rows, sample: Sample) -> BiasSet:
    """Make SocialCounterfactuals of those sets that vary all of the record's attributes.

    A row names the two attributes that its set varies, in either order, and its caption ends with the
    occupation, which is left out if it has fewer images than the largest cut-off.
    """
    pairs = zip(*(rows.strings(column) for column in ("a1_type", "a1", "a2_type", "a2")), strict=True)
    varied = [{type_1: group_1, type_2: group_2} for type_1, group_1, type_2, group_2 in pairs]
    # The paper's code uses the last word of the file's name, which has the same words as the caption.
    occupation_of = [text.lower().strip(" .").rpartition(" ")[2] for text in rows.strings("caption")]
    occupations, wanted = paper.occupations(), set(record.groups)
    fitting = [
        row
        for row, groups in enumerate(varied)
        if wanted <= groups.keys() and occupation_of[row] in occupations
    ]
    if not fitting:
        raise InputError(
            f"No row of {record.name!r} varies {' and '.join(sorted(wanted))} for an occupation of the paper."
        )
    readable = rows.readable(sample, fitting, strata=occupation_of)
    groups = {
        attribute: np.array([varied[row][attribute] for row in readable.row_numbers])
        for attribute in record.groups
    }
    pools, sets = readable.of(occupation_of), readable.of(rows.strings("counterfactual_set"))
    smallest_pool, ranked, notes = max(record.k.values()), [], list(readable.rows.notes)
    for name in occupations:
        size, sets_of = int((pools == name).sum()), len({*sets[pools == name]})
        if size >= smallest_pool and sets_of > 1:
            ranked.append(name)
        else:  # a single set can't be resampled, nor split into the halves of cross-fitted metrics
            notes.append(
                f"occupation {name}: only {f'{size} images' if sets_of != 1 else 'one set of images'}"
            )
    if not ranked:
        raise InputError(
            f"No occupation of {record.name!r} has the {smallest_pool} images of two sets or more that its "
            "cut-off needs."
        )
    return replace(
        _people(record.name, readable, groups, dict(record.k)),
        occupations=tuple(ranked),
        notes=tuple(notes),
        pools=pools,
        units=np.unique(sets, return_inverse=True)[1].astype(np.int64),
    )
