"""Make sets of rows: images with classes, and people with their groups, as a record or the columns tell."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np

from ccs import paper
from ccs.data import BiasSet, ClassificationSet, DatasetRecord, ImageSet, templates
from ccs.data.names import are_numbers, in_order, merge_spellings
from ccs.data.rows import ALL, Rows, Sample, fingerprint
from ccs.errors import InputError

ATTRIBUTES = ("gender", "race", "age", "skin_tone", "skin tone", "ethnicity")
MOST_GROUPS = 50
MOST_NUMBERS = 12
"""With more numbers than this in a column they are grouped by tens."""
LABELS = ("label", "cls", "class", "y")
"""Columns of the classes in a user's table."""


def images(record: DatasetRecord, rows: Rows, sample: Sample = ALL, names: Sequence[str] = ()) -> ImageSet:
    """Make images without labels.

    Args:
        record: The set's record.
        rows: Its rows.
        sample: The images to draw, from each folder.
        names: Not used; as in `classes`.
    """
    _require_as_recorded(record, rows)
    folders = [path.rpartition("/")[0] for path in rows.columns.get("file", ())]
    return ImageSet(name=rows.name, **rows.readable(sample, strata=folders)[1])


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


# Classes --------------------------------------------------------------------------------------------------


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
    column = next((name for name in (record.label, *LABELS) if name in rows.columns), "label")
    numbers, class_names, notes = _class_numbers(rows, record, column, names)
    class_names = [record.renames.get(name, name) for name in class_names]
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
    if missing := sorted({name for subset in record.subsets.values() for name in subset} - {*class_names}):
        raise InputError(f"{record.name!r} lacks the classes {', '.join(missing)}, which its subsets need.")
    subsets = {name: tuple(map(class_names.index, subset)) for name, subset in record.subsets.items()}
    if record.joined:
        class_names = [name.replace(" ", "_") for name in class_names]
    unlabeled = {row: "no label" for row, number in enumerate(numbers) if number < 0}
    at, fields = rows.readable(sample, unlabeled=unlabeled, strata=numbers, notes=notes)
    labels = np.array(numbers, np.int64)[at]
    fields["fingerprint"] = fingerprint(fields["fingerprint"], labels.tolist(), class_names)
    others = () if record.known else sorted(rows.columns.keys() - {"file", "split", column})
    groups = {name: cells for name in others if (cells := _few_groups(rows, name, at)) is not None}
    return ClassificationSet(
        name=record.name,
        labels=labels,
        classes=tuple(class_names),
        templates=templates(record.templates),
        subsets=subsets,
        groups=groups,
        **fields,
    )


def _few_groups(rows: Rows, column: str, at: Sequence[int]) -> np.ndarray | None:
    """Return a column that divides the images into a few groups, such as the place of Waterbirds, or None."""
    if not all(isinstance(cell, str | int) for cell in rows.columns[column]):
        return None
    cells = np.array(rows.strings(column))[at]
    return cells if 2 <= len({*cells}) <= MOST_NUMBERS and "" not in cells else None


def _class_numbers(
    rows: Rows, record: DatasetRecord, column: str, names: Sequence[str]
) -> tuple[list[int], list[str], tuple[str, ...]]:
    """Return each row's class number (-1 for no label), the classes' names, and notes on merged names."""
    labels = rows.strings(column)
    is_bare = column not in rows.classes and any(type(cell) in (int, float) for cell in rows.columns[column])
    if is_bare:
        labels = ["" if label == "-1" else label for label in labels]
    classes = list(rows.classes.get(column, ())) or in_order({*labels} - {""})
    has_numbers = are_numbers(classes)
    if is_bare and not (names and has_numbers):
        raise InputError(f"The labels of {record.name!r} are bare numbers and nothing names the classes.")
    notes: tuple[str, ...] = ()
    if not record.known:
        spellings, notes = merge_spellings(label for label in labels if label)
        labels = [spellings.get(label, "") for label in labels]
        classes = [name for name in classes if spellings.get(name, name) == name]
    number = {name: place for place, name in enumerate(classes)}
    if names and has_numbers:
        values = {name: int(name) for name in classes}
        if max(values.values(), default=0) < len(names):  # numbers of classes, of which some may be missing
            number, classes = values, list(names)
        elif is_bare:
            raise InputError(f"{record.name!r} has class {max(values.values())} but only {len(names)} names.")
    if names:
        classes = list(renamed(classes, names, record.name))
    elif rows.by_folder:
        classes = [name.replace("-", " ") for name in classes]
    return [number.get(label, -1) for label in labels], classes, notes


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


def _wordnet_names(ids: Sequence[str]) -> list[str]:
    """open_clip's names of ImageNet's classes ("n01440764" -> "tench"), by timm's list. InputError."""
    import open_clip

    wordnet_ids = (
        files("timm.data").joinpath("_info/imagenet_synsets.txt").read_text(encoding="utf-8").split()
    )
    known = dict(zip(wordnet_ids, open_clip.IMAGENET_CLASSNAMES, strict=True))
    if unknown := [wordnet_id for wordnet_id in ids if wordnet_id not in known]:
        raise InputError(f"{unknown[0]!r} is not the WordNet id of one of ImageNet's 1,000 classes.")
    return [known[wordnet_id] for wordnet_id in ids]


# People ---------------------------------------------------------------------------------------------------


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
        return (_counterfactuals if "a1_type" in rows.columns else _fairface)(record, rows, sample)
    if not rows.count:
        reason = f"{rows.source} has neither a labels.csv nor one folder of images per group."
        raise InputError(" ".join((reason, *rows.notes[:3])))
    column_of = {
        "group" if name == "label" else name.replace("_", " "): name
        for name in (*rows.columns, *rows.unusable)
        if name != "file"
    }
    columns = ", ".join(column_of) or "none"
    if unknown := [name for name in attributes if name not in column_of]:
        raise InputError(f"{rows.name} has no attribute {unknown[0]!r}; its columns are {columns}.")
    usual = [name for name in column_of if column_of[name] in ATTRIBUTES]
    others = [name for name in column_of if name not in usual] if every_column or not usual else []
    groups: dict[str, list[str]] = {}
    refused: dict[str, str] = {}
    notes: list[str] = []
    for name in attributes or (*usual, *others):
        cells, merged, reason = _groups(rows, column_of[name], is_chosen=name in attributes)
        if not reason and not attributes and usual and name in others and "" in cells:
            reason = "it has empty cells, each of which would cost an image"
        if reason:
            refused[name] = reason
        else:
            groups[name] = cells
            notes += merged
    if groups and not (refused and attributes):
        notes += [f"the column {name!r} is no attribute: {reason}" for name, reason in refused.items()]
        empty = {row: f"no {name}" for name in groups for row, cell in enumerate(groups[name]) if not cell}
        strata = list(zip(*groups.values(), strict=True))
        at, fields = rows.readable(sample, unlabeled=empty, strata=strata, notes=notes)
        arrays = {name: np.array(cells)[at] for name, cells in groups.items()}
        varying = {name: cells for name, cells in arrays.items() if len({*cells}) > 1}
        if varying and not (attributes and len(varying) < len(arrays)):
            return _people(rows.name, varying, dict.fromkeys(varying, max(1, len(at) // 10)), fields)
        refused = dict.fromkeys(arrays.keys() - varying, "all images that can be used are of one group")
    name, reason = next(iter(refused.items()), ("", "it has no columns of groups"))
    raise InputError(
        f"{rows.name} has no {f'attribute {name!r}' if attributes else 'attribute'} of 2 to {MOST_GROUPS} "
        f"groups (columns: {columns}; {f'{name!r}: ' if name else ''}{reason})."
    )


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


def _people(
    name: str, groups: Mapping[str, np.ndarray], k: Mapping[str, int], fields: dict[str, Any]
) -> BiasSet:
    labels = {attribute: cells.tolist() for attribute, cells in groups.items()}
    fields["fingerprint"] = fingerprint(fields["fingerprint"], labels)
    occupations, prompts = paper.occupations(), paper.templates()
    return BiasSet(name=name, groups=groups, k=k, occupations=occupations, templates=prompts, **fields)


def _fairface(record: DatasetRecord, rows: Rows, sample: Sample) -> BiasSet:
    """Make FairFace by its record; if only a part is used, K shrinks with it."""
    groups = {attribute: rows.strings(column) for attribute, column in record.groups.items()}
    at, fields = rows.readable(sample, strata=list(zip(*groups.values(), strict=True)))
    if unknown := set(groups["race"]) - set(record.renames):
        listed = ", ".join(record.renames)
        raise InputError(f"The group {min(unknown)!r} is not defined; the groups are {listed}.")
    groups["race"] = [record.renames[name] for name in groups["race"]]  # not those of "race (seven)"
    share = min(1.0, len(at) / record.rows)
    k = {attribute: max(1, round(k * share)) for attribute, k in record.k.items()}
    return _people(record.name, {name: np.array(cells)[at] for name, cells in groups.items()}, k, fields)


def _counterfactuals(record: DatasetRecord, rows: Rows, sample: Sample) -> BiasSet:
    """Make SocialCounterfactuals of those sets that vary all of the record's attributes.

    A row names the two attributes that its set varies, in either order, and its caption ends with the
    occupation, which is left out if it has fewer images than the largest cut-off, or only those of one set:
    these can't be resampled, nor split into the halves of cross-fitted metrics.
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
    at, fields = rows.readable(sample, fitting, strata=occupation_of)
    pools, sets = np.array(occupation_of)[at], np.array(rows.strings("counterfactual_set"))[at]
    smallest_pool, ranked, few = max(record.k.values()), [], []
    for name in occupations:
        size, sets_of = int((pools == name).sum()), len({*sets[pools == name]})
        if size >= smallest_pool and sets_of > 1:
            ranked.append(name)
        else:
            few.append(f"occupation {name}: only {f'{size} images' if sets_of != 1 else 'one set of images'}")
    if not ranked:
        raise InputError(
            f"No occupation of {record.name!r} has the {smallest_pool} images of two sets or more that its "
            "cut-off needs."
        )
    fields["notes"] = (*fields["notes"], *few)
    groups = {attribute: np.array([varied[row][attribute] for row in at]) for attribute in record.groups}
    return replace(
        _people(record.name, groups, dict(record.k), fields),
        occupations=tuple(ranked),
        pools=pools,
        units=np.unique(sets, return_inverse=True)[1].astype(np.int64),
    )


MAKERS: Mapping[str, Callable[[DatasetRecord, Rows, Sample, Sequence[str]], ImageSet]] = {
    "images": images,
    "classification": classes,
    "bias": people,
}
"""What makes a set of rows, by its kind."""
