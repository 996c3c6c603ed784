"""Make sets of rows: images with classes, and people with their groups, as a record or the columns tell."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ccs import paper
from ccs.data import AnySet, BiasSet, ClassificationSet, DatasetRecord, ImageSet, templates
from ccs.data.clips import make_clips
from ccs.data.names import are_numbers, in_order, merge_spellings, wordnet_names
from ccs.data.rows import ALL, SEVERAL, Rows, Sample, fingerprint
from ccs.errors import InputError

ATTRIBUTES = ("gender", "race", "age", "skin_tone", "skin tone", "ethnicity")
MOST_GROUPS = 50
MOST_NUMBERS = 12
"""With more numbers than this in a column they are grouped by tens."""
LABELS = ("label", "cls", "class", "y")
"""Columns of the classes in a user's table."""
_OF_SETS = ("a1_type", "a1", "a2_type", "a2", "caption", "counterfactual_set")
"""Columns of SocialCounterfactuals."""


def make_set(record: DatasetRecord, rows: Rows, sample: Sample, names: Sequence[str]) -> AnySet:
    """Make the set that a record describes.

    Args:
        record: The set's record; its kind says what is made.
        rows: Its rows.
        sample: The images to draw, from each class, group, or folder.
        names: The names of the classes.

    Raises:
        InputError: If the rows don't make such a dataset.
    """
    if rows.are_videos:
        return make_clips(record, rows, sample.max_rows)
    if record.kind == "bias":
        return make_people(record, rows, sample)
    if record.kind == "classification":
        return _make_classes(record, rows, sample, names or rows.names)
    folders = [path.rpartition("/")[0] for path in rows.columns.get("file", ())]
    return ImageSet(**rows.readable(sample, strata=folders)[1])


# Classes --------------------------------------------------------------------------------------------------


def _make_classes(
    record: DatasetRecord, rows: Rows, sample: Sample, names: Sequence[str]
) -> ClassificationSet:
    """Make images with one class each; names are those of the classes, in the order of their numbers."""
    column = next((name for name in (record.label, *LABELS) if name in rows.columns), "label")
    numbers, classes, notes = _number_classes(record, rows, column, names)
    record.require_recorded(rows.source, len(classes), record.class_count, "classes")
    if len(classes) < 2:
        listed = ", ".join(classes)
        raise InputError(f"{rows.source!r} has only one class, {listed!r}: give the folder of the classes.")
    if missing := {name for subset in record.subsets.values() for name in subset} - {*classes}:
        raise InputError(f"{record.name!r} lacks the class {min(missing)!r}, which one of its subsets needs.")
    unlabeled = {row: "no label" for row, number in enumerate(numbers) if number < 0}
    at, fields = rows.readable(sample, unlabeled, numbers, notes)
    labels = np.array(numbers, np.int64)[at]
    fields["fingerprint"] = fingerprint(fields["fingerprint"], labels.tolist(), classes)
    groups = {}  # columns such as the place of Waterbirds
    for name in sorted(rows.columns.keys() - {"file", "split", column}) if not record.known else ():
        if all(isinstance(cell, str | int) for cell in rows.columns[name]):
            cells = np.array(rows.strings(name))[at]
            if 2 <= len({*cells}) <= MOST_NUMBERS and "" not in cells:
                groups[name] = cells
    return ClassificationSet(
        labels=labels,
        classes=tuple(classes),
        templates=templates(record.templates),
        subsets={name: tuple(map(classes.index, subset)) for name, subset in record.subsets.items()},
        groups=groups,
        **fields,
    )


def _number_classes(
    record: DatasetRecord, rows: Rows, column: str, names: Sequence[str]
) -> tuple[list[int], list[str], list[str]]:
    """Return each row's class number (-1: none), the classes' names, and notes."""
    labels, listed = rows.strings(column), rows.classes.get(column, ())
    is_bare = not listed and any(type(cell) in (int, float) for cell in rows.columns[column])
    if is_bare:
        labels = ["" if label == "-1" else label for label in labels]
    if record.first_word:
        labels = [re.split("[ _]", label)[0] for label in labels]
        listed = in_order({re.split("[ _]", name)[0] for name in listed})
    merged, notes = (labels, []) if record.known else merge_spellings(labels)
    replaced = {*labels} - {*merged}
    classes = [name for name in listed or in_order({*labels} - {""}) if name not in replaced]
    number = {name: place for place, name in enumerate(classes)}
    if names and are_numbers(classes) and all(int(name) < len(names) for name in classes):
        number, classes = {name: int(name) for name in classes}, list(names)  # some may have no images
    elif is_bare:
        why = f"class {classes[-1]} has no name ({len(names)} given)"
        raise InputError(f"The labels of {record.name!r} are bare numbers: {why}.")
    elif names:
        classes = list(renamed(classes, names, record.name))
    elif rows.by_folder:
        classes = [name.replace("-", " ") for name in classes]
    if record.names == "wordnet":
        classes = wordnet_names(classes)
    elif record.names == "column":
        separators = (" ", "_") if record.joined else ("_", " ")
        classes = [record.renames.get(name, name).replace(*separators) for name in classes]
    return [number.get(label, -1) for label in merged], classes, notes


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
    """Return open_clip's class names of WordNet ids ("n01440764": "tench"); InputError for an unknown id."""
    import open_clip
    from timm.data.imagenet_info import ImageNetInfo

    listed = ImageNetInfo().label_names()  # type: ignore[no-untyped-call]
    known = dict(zip(listed, open_clip.IMAGENET_CLASSNAMES, strict=True))
    if unknown := [wordnet_id for wordnet_id in ids if wordnet_id not in known]:
        raise InputError(f"{unknown[0]!r} is not the WordNet id of one of ImageNet's 1,000 classes.")
    return [known[wordnet_id] for wordnet_id in ids]


# People ---------------------------------------------------------------------------------------------------


def make_people(
    record: DatasetRecord, rows: Rows, sample: Sample = ALL, attributes: Sequence[str] = ()
) -> BiasSet:
    """Make images of people with groups; K is a tenth of them, occupations and templates are the paper's.

    A known set has the groups and cut-offs of its record; if only a part is used, these shrink with it.

    Args:
        record: The set's record.
        rows: Its rows, with columns of groups.
        sample: The images to draw, from each group.
        attributes: The columns of groups; by default those of usual names with 2 to 50 groups, or else all.

    Raises:
        InputError: If no column groups the images.
    """
    in_sets = bool(record.groups) and "a1_type" in rows.columns
    column_of = record.groups or _column_of_attributes(rows, attributes)
    usable = [column for column in column_of.values() if record.groups or column in rows.columns]
    cells = {column: rows.strings(column) for column in (_OF_SETS if in_sets else usable)}
    notes: list[str] = []
    if in_sets:
        groups, left_out, strata = _groups_of_sets(record, cells)
    else:
        if record.groups:
            groups = {name: cells[column] for name, column in column_of.items()}
            if unknown := {*groups["race"]} - {*record.renames}:
                raise InputError(f"The race {min(unknown)!r} is none of {', '.join(record.renames)}.")
            groups["race"] = [record.renames[name] for name in groups["race"]]  # not those of "race (seven)"
        else:
            groups = _read_groups(rows, column_of, cells, bool(attributes), notes)
        left_out = {row: f"no {name}" for name in groups for row, cell in enumerate(groups[name]) if not cell}
        strata = list(zip(*groups.values(), strict=True))
    at, fields = rows.readable(sample, left_out, strata, notes)
    arrays = {name: np.array(groups[name])[at] for name in groups}
    k = dict.fromkeys(arrays, max(1, len(at) // 10))
    if in_sets:
        k, pools = dict(record.k), np.array(strata)[at]
        fields |= _pools_of_sets(record, pools, np.array(cells["counterfactual_set"])[at], fields["notes"])
    elif record.groups:
        share = min(1.0, len(at) / (record.sample or record.rows))
        k = {name: max(1, round(most * share)) for name, most in record.k.items()}
    else:
        varying = {name: labels for name, labels in arrays.items() if len({*labels}) > 1}
        if not varying or (attributes and len(varying) < len(arrays)):
            alike = min(arrays.keys() - varying)
            raise InputError(f"All images of {rows.name} that can be used are of one group of {alike!r}.")
        arrays, k = varying, {name: k[name] for name in varying}
    labels = {name: of_images.tolist() for name, of_images in arrays.items()}
    fields["fingerprint"] = fingerprint(fields["fingerprint"], labels)
    prompts = {"occupations": paper.occupations(), "templates": paper.templates()}
    return BiasSet(groups=arrays, k=k, **prompts | fields)


def _column_of_attributes(rows: Rows, attributes: Sequence[str]) -> dict[str, str]:
    """Return the columns of a user's attributes, by default of those with usual names, or else all."""
    columns = [name for name in (*rows.columns, *rows.unusable) if name != "file"]
    column_of = {"group" if name == "label" else name.replace("_", " "): name for name in columns}
    usual = [name for name in column_of if column_of[name] in ATTRIBUTES]
    return {name: column_of.get(name, "") for name in attributes or usual or column_of}


def _read_groups(
    rows: Rows, column_of: Mapping[str, str], texts: Mapping[str, list[str]], named: bool, notes: list[str]
) -> dict[str, list[str]]:
    """Return each row's groups by attribute, and add notes on merged groups and other columns.

    More than a dozen whole numbers are grouped by tens ("20-29"), unless they number the rows of a column
    that isn't named by the user.
    """
    groups: dict[str, list[str]] = {}
    refused: dict[str, str] = {}
    for name, column in column_of.items():
        if (cells := texts.get(column)) is None:
            refused[name] = SEVERAL if column in rows.unusable else "there is no such column"
            continue
        labels, n_known = {*cells} - {""}, sum(map(bool, cells))
        numbers_rows = not named and len(labels) == n_known > MOST_GROUPS
        whole = all(re.fullmatch(r"\d{1,3}(\.0+)?", label, re.ASCII) for label in labels)
        if len(labels) > MOST_NUMBERS and whole and not numbers_rows:
            tens = {label: int(float(label)) // 10 * 10 for label in labels}
            cells = [cell and f"{tens[cell]}-{tens[cell] + 9}" for cell in cells]
        cells, merged = merge_spellings(cells)
        labels = {*cells} - {""}
        if 2 <= len(labels) <= MOST_GROUPS:
            groups[name] = cells
            notes += merged
        else:
            alike = f"all have {min(labels)[:40]!r}" if len(labels) == 1 else ""
            refused[name] = alike or f"it has {len(labels)} groups"
    if not groups or (refused and named):
        name, reason = next(iter(refused.items()), ("", "it has no columns of groups"))
        listed = ", ".join(column for column in (*rows.columns, *rows.unusable) if column != "file")
        which = f" {name!r}" if named else ""
        reason = f"columns: {listed or 'none'}; {f'{name!r}: ' if name else ''}{reason}"
        raise InputError(f"{rows.name} has no attribute{which} of 2 to {MOST_GROUPS} groups ({reason}).")
    notes += [f"the column {name!r} is no attribute: {why}" for name, why in refused.items()]
    return groups


# SocialCounterfactuals ------------------------------------------------------------------------------------


def _groups_of_sets(
    record: DatasetRecord, cells: Mapping[str, list[str]]
) -> tuple[dict[str, list[str]], dict[int, str], list[str]]:
    """Return each row's groups, the rows to leave out, and each row's occupation.

    A row names the two attributes that its set varies, in either order, and its caption ends with the
    occupation. Sets that don't vary all of the record's attributes are left out.
    """
    pairs = zip(*(cells[name] for name in _OF_SETS[:4]), strict=True)
    varied = [{type_1: group_1, type_2: group_2} for type_1, group_1, type_2, group_2 in pairs]
    # The paper's code uses the last word of the file's name, which has the same words as the caption.
    occupations = [text.lower().strip(" .").rpartition(" ")[2] for text in cells["caption"]]
    known = {*paper.occupations()}
    left_out = {
        row: ""
        for row, of_row in enumerate(varied)
        if not {*record.groups} <= {*of_row} or occupations[row] not in known
    }
    groups = {name: [of_row.get(name, "") for of_row in varied] for name in record.groups}
    return groups, left_out, occupations


def _pools_of_sets(
    record: DatasetRecord, pools: np.ndarray, sets: np.ndarray, notes: tuple[str, ...]
) -> dict[str, Any]:
    """Return the fields of occupations that rank their own images.

    An occupation is left out if it has fewer images than the largest cut-off, or only those of one set: these
    can't be resampled, nor split into the halves of cross-fitted metrics.
    """
    smallest = max(record.k.values())
    counts = {name: ((pools == name).sum(), len({*sets[pools == name]})) for name in paper.occupations()}
    ranked = tuple(name for name, (images, n_sets) in counts.items() if images >= smallest and n_sets > 1)
    if not ranked:
        raise InputError(f"No occupation of {record.name!r} has {smallest} images of two sets or more.")
    few = (
        "occupation {}: only {} images (sets: {})".format(n, *counts[n]) for n in counts if n not in ranked
    )
    units = np.unique(sets, return_inverse=True)[1].astype(np.int64)
    return {"occupations": ranked, "pools": pools, "units": units, "notes": (*notes, *few)}
