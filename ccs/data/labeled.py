"""Make sets from rows: images with classes, and people with groups, by the record or the columns."""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ccs import paper
from ccs.data import AnySet, BiasSet, ClassificationSet, DatasetRecord, ImageSet, templates
from ccs.data.clips import make_clips
from ccs.data.rows import ALL, LAYOUTS, SEVERAL, Rows, Sample, fingerprint, tidy
from ccs.errors import InputError

ATTRIBUTES = ("gender", "sex", "race", "age", "skin_tone", "skin tone", "ethnicity")
MOST_GROUPS = 50
MOST_NUMBERS = 12
"""With more numbers than this in a column they are grouped by tens."""
LABELS = ("label", "labels", "cls", "class", "y")
"""Columns of the classes in a user's table."""
_SETS = ("a1_type", "a1", "a2_type", "a2", "caption", "counterfactual_set")
"""Columns of SocialCounterfactuals."""


def make_set(record: DatasetRecord, rows: Rows, sample: Sample, names: Sequence[str]) -> AnySet:
    """Make the set that a record describes.

    Args:
        record: The set's record, with the kind of the set.
        rows: Its rows.
        sample: The sample to draw from each class, group, or folder.
        names: The names of the classes.

    Raises:
        InputError: If the rows don't fit this kind.
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
    """Make images with one class each; `names` are class names in the order of their numbers."""
    column = next((name for name in (record.label, *LABELS) if name in rows.columns), "label")
    numbers, classes, notes = _number_classes(record, rows, column, names)
    record.require_recorded(rows.source, len(classes), record.class_count, "classes")
    if len(classes) < 2:
        listed = ", ".join(classes)
        raise InputError(f"{rows.source!r} has only one class, {listed!r}: {LAYOUTS}.")
    if missing := {name for subset in record.subsets.values() for name in subset} - {*classes}:
        raise InputError(f"{record.name!r} lacks the class {min(missing)!r}, which one of its subsets needs.")
    unlabeled = {row: "no label" for row, number in enumerate(numbers) if number < 0}
    at, fields = rows.readable(sample, unlabeled, numbers, notes)
    labels = np.array(numbers, np.int64)[at]
    if empty := [classes[number] for number in np.setdiff1d(range(len(classes)), labels)]:
        fields["notes"] += (f"classes without images: {len(empty)} of {len(classes)}, such as {empty[0]}",)
    class_of: dict[bytes, int] = {}
    pairs = zip(map(bytes, fields["digests"]), labels.tolist(), strict=True)
    if twice := sum(class_of.setdefault(digest, label) != label for digest, label in pairs):
        fields["notes"] += (f"images that are in another class too: {twice}",)
    fields["fingerprint"] = fingerprint(fields["fingerprint"], labels.tolist(), classes)
    # Columns such as the place of Waterbirds:
    others = [] if record.known else rows.columns.keys() - {"file", "split", column, *rows.unusable}
    columns = ((name, np.array(rows.strings(name))[at]) for name in sorted(others))
    groups = {name: c for name, c in columns if "" not in c and 2 <= len({*c}) <= MOST_NUMBERS}
    fields["subsets"] = {name: tuple(map(classes.index, subset)) for name, subset in record.subsets.items()}
    fields |= {"classes": tuple(classes), "templates": templates(record.templates)}
    return ClassificationSet(labels=labels, groups=groups, **fields)


def _number_classes(
    record: DatasetRecord, rows: Rows, column: str, names: Sequence[str]
) -> tuple[list[int], list[str], list[str]]:
    """Return each row's class number (-1 for none), the names of the classes, and notes."""
    labels, listed = rows.strings(column), rows.classes.get(column, ())
    is_bare = not listed and any(type(cell) in (int, float) for cell in rows.columns[column])
    numbers = {*labels} - {"", "-1"}
    are_texts = listed or rows.by_folder or len(numbers) < 2 or not are_numbers(numbers)
    if is_bare or not are_texts:
        labels = ["" if label == "-1" else label for label in labels]
    if record.first_word:
        labels = [re.split("[ _]", label)[0] for label in labels]
        listed = in_order({re.split("[ _]", name)[0] for name in listed})
    merged, notes = (labels, []) if record.known else merge_spellings(labels)
    replaced = {*labels} - {*merged}
    classes = [name for name in listed or in_order({*labels} - {""}) if name not in replaced]
    number = {name: place for place, name in enumerate(classes)}
    if names and are_numbers(classes) and all(float(name) < len(names) for name in classes):
        number, classes = {name: int(float(name)) for name in classes}, list(names)  # some may have no images
    elif is_bare:
        problem = f"bare numbers ({', '.join(classes)[:80]}), and {len(names)} names don't fit them"
        raise InputError(f"The labels of {record.name!r} are {problem}: name all from 0 on with `classes`.")
    elif names:
        classes = list(renamed(classes, names, record.name))
    elif rows.by_folder:
        classes = [re.sub(r"(?<=\w)-(?=\w)", " ", name) for name in classes]
    if not (names or record.known) and all(re.match(r"n?\d+(\D|$)", name) for name in classes):
        notes.append(f"the names of the classes are or begin with numbers: {', '.join(classes)[:40]}")
    if record.names == "wordnet":
        classes = _wordnet_names(classes)
    elif record.names == "column":
        separators = (" ", "_") if record.joined else ("_", " ")
        classes = [record.renames.get(name, name).replace(*separators).strip() or name for name in classes]
    return [number.get(label, -1) for label in merged], classes, notes


def renamed(classes: Sequence[str], names: Sequence[str], source: str) -> tuple[str, ...]:
    """Return the user's names for the classes.

    Args:
        classes: The classes.
        names: Their names in prompts.
        source: The set's name in messages.

    Raises:
        InputError: If the numbers of names and classes differ, or a class would get another class's name.
    """
    if len(names) != len(classes):
        raise InputError(f"{source} has {len(classes)} classes, but {len(names)} names were given.")
    # Two classes may share a name, but a class's own name must not be another's alone.
    new_names = {spelling(name): spelling(names[place]) for place, name in enumerate(classes)}
    if moved := [name for name in names if new_names.get(spelling(name), spelling(name)) != spelling(name)]:
        order = ", ".join(classes)[:200]
        raise InputError(f"{source} has the classes {order}, in this order: {moved[0]!r} would name another.")
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
    """Make images of people with groups. K is a tenth of them; occupations and templates are the paper's.

    A known set has the groups and cut-offs of its record; those of a sample are proportionally smaller.

    Args:
        record: The set's record.
        rows: Its rows, with columns of groups.
        sample: The sample to draw from each group.
        attributes: The columns of groups. By default those with a usual name, or else all, if they have 2 to
            50 groups.

    Raises:
        InputError: If no column groups the images.
    """
    in_sets = bool(record.groups) and "a1_type" in rows.columns
    columns = dict(zip(_SETS, _SETS, strict=True)) if in_sets else record.groups
    columns = columns or _columns_of_groups(rows, attributes)
    unread = [name for name in rows.columns if name not in ("file", *columns.values())]
    skipped = () if record.groups else rows.unusable
    groups = {name: rows.strings(column) for name, column in columns.items() if column not in skipped}
    notes: list[str] = []
    occupations: Sequence[str] = ()
    if in_sets:
        sets = groups["counterfactual_set"]
        groups, occupations = _groups_of_sets(record, groups)
    elif not record.groups:
        refused = dict.fromkeys(columns.keys() - groups, SEVERAL)
        groups, notes = _read_groups(rows.name, groups, refused, bool(attributes))
    elif unknown := {*groups["race"]} - {*record.renames}:
        raise InputError(f"The race {min(unknown)!r} is none of {', '.join(record.renames)}.")
    else:
        groups["race"] = [record.renames[name] for name in groups["race"]]  # not those of "race (seven)"
    notes += [f"columns that are not used: {', '.join(unread)[:200]}"] * bool(unread and not record.groups)
    reasons = {name: "" if in_sets else f"no {name}" for name in groups}
    empty = {row: reasons[name] for name in groups for row, cell in enumerate(groups[name]) if not cell}
    strata: Sequence[Any] = occupations or list(zip(*groups.values(), strict=True))
    at, fields = rows.readable(sample, empty, strata, notes)
    arrays = {name: np.array(cells)[at] for name, cells in groups.items()}
    if in_sets:
        pools = _pools_of_sets(record, np.array(occupations)[at], np.array(sets)[at], fields["notes"])
        return _gallery(arrays, dict(record.k), fields | pools)
    if record.groups:
        share = min(1.0, len(at) / (record.sample or record.rows))
        return _gallery(arrays, {name: max(1, round(k * share)) for name, k in record.k.items()}, fields)
    varying = {name: cells for name, cells in arrays.items() if len({*cells}) > 1}
    if alike := [name for name in arrays if name not in varying and (attributes or not varying)]:
        raise InputError(f"All images of {rows.name} that can be used are of one group of {alike[0]!r}.")
    return _gallery(varying, dict.fromkeys(varying, max(1, len(at) // 10)), fields)


def _gallery(groups: dict[str, np.ndarray], k: dict[str, int], fields: dict[str, Any]) -> BiasSet:
    labels = {attribute: cells.tolist() for attribute, cells in groups.items()}
    fields["fingerprint"] = fingerprint(fields["fingerprint"], labels)
    prompts = {"occupations": paper.occupations(), "templates": paper.templates()}
    return BiasSet(groups=groups, k=k, **prompts | fields)


def _columns_of_groups(rows: Rows, attributes: Sequence[str]) -> dict[str, str]:
    """Return attribute -> column: the user's choice, or else those with usual names, or else all."""
    columns = [name for name in (*rows.columns, *rows.unusable) if name != "file"]
    free_names = {name: "group" if name == "label" else name.replace("_", " ") for name in columns}
    column_of = {name if free in columns else free: name for name, free in free_names.items()}
    usual = [name for name in column_of if column_of[name].casefold() in ATTRIBUTES]
    if absent := [name for name in attributes if name not in column_of]:
        listed = ", ".join(column_of) or "none"
        raise InputError(f"{rows.name} has no attribute {absent[0]!r}; its columns of groups are {listed}.")
    return {name: column_of[name] for name in attributes or usual or column_of}


def _read_groups(
    source: str, columns: Mapping[str, list[str]], refused: dict[str, str], by_user: bool
) -> tuple[dict[str, list[str]], list[str]]:
    """Return each row's group by attribute, and notes on merged groups and on columns without groups.

    More than a dozen different numbers, such as ages, are grouped by tens ("20-29"). A negative number means
    unknown, unless the column has only two numbers. If the user doesn't name a column, it isn't an attribute
    if each of more than a dozen rows has a different value.
    """
    groups: dict[str, list[str]] = {}
    notes: list[str] = []
    for name, cells in columns.items():
        labels, n_known = {*cells} - {""}, sum(map(bool, cells))
        may_name_rows = not by_user and name.casefold() not in ATTRIBUTES
        names_rows = may_name_rows and len(labels) == n_known > MOST_NUMBERS
        numbers = [label for label in labels if re.fullmatch(r"-?\d{1,3}(\.\d+)?", label, re.ASCII)]
        read_as = {number: "" for number in numbers if float(number) < 0} if len(numbers) > 2 else {}
        if len(numbers) > MOST_NUMBERS and not names_rows:
            tens = {number: int(float(number) // 10 * 10) for number in numbers if number not in read_as}
            read_as |= {number: f"{ten}-{ten + 9}" for number, ten in tens.items()}
        cells, merged = merge_spellings([read_as.get(cell, cell) for cell in cells])
        labels = {*cells} - {""}
        if 2 <= len(labels) <= MOST_GROUPS and not names_rows:
            groups[name] = cells
            notes += merged + [f"the numbers of {name!r} are grouped by tens"] * (len(numbers) > MOST_NUMBERS)
        else:
            alike = f"all have {min(labels)[:40]!r}" if len(labels) == 1 else ""
            refused[name] = alike or f"it has {len(labels)} groups"
    if not groups or (refused and by_user):
        reasons = "; ".join(f"{name!r}: {reason}" for name, reason in refused.items()) or "there is no column"
        refusal = f"has no attribute of 2 to {MOST_GROUPS} groups ({reasons[:500]})"
        raise InputError(f"{source} {refusal}: {LAYOUTS}.")
    return groups, notes + [f"the column {name!r} is no attribute: {why}" for name, why in refused.items()]


def _groups_of_sets(
    record: DatasetRecord, cells: Mapping[str, list[str]]
) -> tuple[dict[str, list[str]], list[str]]:
    """Return each row's groups and occupation in SocialCounterfactuals.

    A row names the two attributes that its set varies, in any order. Its caption ends with the occupation.
    Groups are "" in sets that don't vary all attributes of the record.
    """
    pairs = zip(*(cells[name] for name in _SETS[:4]), strict=True)
    varied = [{type_1: group_1, type_2: group_2} for type_1, group_1, type_2, group_2 in pairs]
    # The paper's code uses the last word of the file's name, which has the same words as the caption.
    occupations = [text.lower().strip(" .").rpartition(" ")[2] for text in cells["caption"]]
    known = {*paper.occupations()}
    for row, groups in enumerate(varied):
        if not {*record.groups} <= {*groups} or occupations[row] not in known:
            varied[row] = dict.fromkeys(record.groups, "")
    return {name: [groups[name] for groups in varied] for name in record.groups}, occupations


def _pools_of_sets(
    record: DatasetRecord, pools: np.ndarray, sets: np.ndarray, notes: tuple[str, ...]
) -> dict[str, Any]:
    """Return the fields of a gallery in which each occupation ranks its own images.

    An occupation is left out if it has fewer images than the largest cut-off, or images of one set only.
    These can't be resampled or split into halves for cross-fitted metrics.
    """
    smallest = max(record.k.values())
    counts = {name: ((pools == name).sum(), len({*sets[pools == name]})) for name in paper.occupations()}
    ranked = tuple(name for name, (images, n_sets) in counts.items() if images >= smallest and n_sets > 1)
    if not ranked:
        raise InputError(f"No occupation of {record.name!r} has {smallest} images of two sets or more.")
    few = [
        "occupation {}: only {} images (sets: {})".format(n, *counts[n]) for n in counts if n not in ranked
    ]
    units = np.unique(sets, return_inverse=True)[1].astype(np.int64)
    return {"occupations": ranked, "pools": pools, "units": units, "notes": (*notes, *few)}


# Names ----------------------------------------------------------------------------------------------------


def spelling(name: str) -> str:
    """Return the common form of spellings that differ in case, space, _, -, and invisible characters only."""
    visible = "".join(letter for letter in tidy(name) if unicodedata.category(letter) != "Cf")
    return " ".join(re.sub(r"_|(?<=\w)-(?=\w)", " ", visible).casefold().split()) or name


def merge_spellings(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Replace spellings of the same name by the most frequent one.

    Returns:
        The spellings, and a note for each name that is merged into another.
    """
    counts = Counter(names)
    spellings: dict[str, str] = {}
    merged: dict[str, str] = {}
    for name in sorted(counts, key=lambda name: (-counts[name], name)):
        merged[name] = spellings.setdefault(spelling(name), name)
    notes = [f"{name!r} is read as {merged[name]!r}" for name in merged if name and name != merged[name]]
    return [merged[name] for name in names], notes


def are_numbers(names: Collection[str]) -> bool:
    """Return True if all names are whole numbers, such as 7 or 7.0, and no two are equal."""
    whole = all(re.fullmatch(r"\d{1,9}(\.0+)?", name, re.ASCII) for name in names)
    return whole and len({*map(float, names)}) == len(names)


def in_order(names: Collection[str]) -> list[str]:
    """Sort names: whole numbers by value, others as text."""
    return sorted(names, key=float if are_numbers(names) else None)
