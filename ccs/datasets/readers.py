"""Evaluation sets from their records, read from a local copy or the Hub."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from ccs.datasets import folder, hub, video
from ccs.datasets.decoding import Scan, scan, spread, with_labels
from ccs.datasets.known_sets import DatasetRecord, templates
from ccs.datasets.table import ImageTable, open_parquet
from ccs.errors import InputError
from ccs.image_sets import BiasSet, ClassificationSet, ImageSet, Lazy, RetrievalSet
from ccs.paper import figures as paper

AnySet = ImageSet | RetrievalSet


def open_source(record: DatasetRecord, local: Path | None, max_images: int | None) -> AnySet:
    """The set, from its own folder or file on this machine or else from the Hub."""
    found = _open(record, local, max_images)
    if record.joined and isinstance(found, ClassificationSet):
        return replace(found, classes=tuple(name.replace(" ", "_") for name in found.classes))
    return found


def _open(record: DatasetRecord, local: Path | None, max_images: int | None) -> AnySet:
    if record.kind == "videos":
        return video.retrieval_set(
            local or hub.video_folder(record),
            name=record.name,
            count=record.frames,
            annotations=record.annotations,
            max_clips=max_images,
        )
    if local is not None and local.is_dir() and not folder.files(local, frozenset({".parquet", ".tar"})):
        return _plain_folder(record, local, max_images)
    table = _local_table(record, local, max_images) if local is not None else hub.rows(record, max_images)
    if record.kind == "captions":
        return _captions(record, table, max_images)
    if record.kind == "bias":
        return _bias(record, table, max_images)
    if record.kind == "images":
        return folder.table_images(table, max_images, source=record.address)
    return _classes(record, table, local, max_images)


def _local_table(record: DatasetRecord, local: Path, max_rows: int | None) -> ImageTable:
    if local.is_dir() and (local / "README.md").exists():
        # A clone of the repository: its card assigns files to configurations and splits.
        return hub.any_rows(str(local), name=record.name, config=record.config, split=record.split)
    if local.is_dir() and folder.files(local, frozenset({".tar"})):
        return hub.any_rows(str(local), name=record.name, split=record.split)
    return open_parquet(local)


def _plain_folder(record: DatasetRecord, local: Path, max_images: int | None) -> AnySet:
    if record.kind == "classification":
        return folder.classification_set(
            local,
            name=record.name,
            templates=templates(record.templates),
            class_names=wordnet_names if record.names == "wordnet" else None,
            first_word=record.first_word,
            subsets=record.subsets,
            max_images=max_images,
        )
    if record.kind == "bias":
        return _bias_csv(record, local, max_images)
    if record.kind == "images":
        return folder.image_set(local, max_images)
    raise InputError(
        f"{record.name!r} needs parquet files with images and captions, not the folder {str(local)!r}."
    )


def _found(record: DatasetRecord, table: ImageTable, max_images: int | None) -> Scan:
    column = record.image if record.image in table.columns else table.image_column()
    return folder.scan_column(table, column, max_images, record.address)


def _classes(
    record: DatasetRecord, table: ImageTable, local: Path | None, max_images: int | None
) -> ClassificationSet:
    column = record.label if record.label in table.columns else "label"
    numbers, given = table.labels(column)
    if given is None:
        given = tuple(_class_file(record, local).splitlines())
        if max(numbers) >= len(given):
            raise InputError(
                f"{record.name!r} has class number {max(numbers)} but only {len(given)} class names."
            )
    names = [record.renames.get(name, name) for name in given]
    if record.names == "wordnet":
        names = wordnet_names(names)
    if record.first_word:
        firsts = [name.replace(" ", "_").split("_")[0] for name in names]
        names = sorted(set(firsts))
        numbers = [names.index(firsts[number]) for number in numbers]
    elif record.names == "column":
        names = [name.replace("_", " ") for name in names]
    found = _found(record, table, max_images)
    labels = np.array(numbers, np.int64)[list(found.kept)]
    return ClassificationSet(
        name=record.name,
        labels=labels,
        classes=tuple(names),
        templates=templates(record.templates),
        subsets=folder.subset_indices(record.name, record.subsets, names),
        **found.fields(labels.tolist(), names),
    )


def _class_file(record: DatasetRecord, local: Path | None) -> str:
    if record.names == "column":
        raise InputError(
            f"The labels of {record.name!r} are bare numbers and nothing says which class each is."
        )
    if local is None:
        return hub.text_file(record, record.names)
    for path in (local / record.names, local.parent / record.names):
        if path.exists():
            return path.read_text(encoding="utf-8").strip("\n")
    raise InputError(f"{record.name!r} needs the file {record.names} of {record.hub!r} beside its data.")


@cache
def _imagenet_classes() -> dict[str, str]:
    """WordNet id -> class name, from the lists that timm and open_clip ship."""
    import open_clip

    ids = files("timm.data").joinpath("_info/imagenet_synsets.txt").read_text(encoding="utf-8").split()
    return dict(zip(ids, open_clip.IMAGENET_CLASSNAMES, strict=True))


def wordnet_names(ids: Iterable[str]) -> list[str]:
    """open_clip's names of ImageNet's classes ("n01440764" -> "tench").

    Raises InputError for any other id.
    """
    known = _imagenet_classes()
    for wordnet_id in ids:
        if wordnet_id not in known:
            raise InputError(f"{wordnet_id!r} is not the WordNet id of one of ImageNet's 1,000 classes.")
    return [known[wordnet_id] for wordnet_id in ids]


def _captions(record: DatasetRecord, table: ImageTable, max_images: int | None) -> RetrievalSet:
    single = next((column for column in ("captions", "caption") if column in table.columns), None)
    found = _found(record, table, max_images)
    if single is not None:
        cells = table.values(single)
        every = [tuple(cell) if isinstance(cell, list) else (cell,) for cell in cells]
    else:
        every = list(zip(*(table.strings(column) for column in record.captions), strict=True))
    captions, images = tuple(every[row] for row in found.kept), found.images
    return RetrievalSet(
        name=record.name,
        clips=Lazy(lambda index: (images[index],), range(len(images))),
        captions=captions,
        fingerprint=with_labels(found.fingerprint, captions),
        source=record.address,
        skipped=found.skipped,
    )


def _bias(record: DatasetRecord, table: ImageTable, max_images: int | None) -> BiasSet:
    if "a1_type" in table.columns:
        return _counterfactuals(record, table, max_images)
    values = {attribute: table.strings(column) for attribute, column in record.groups.items()}
    return _bias_set(record, _found(record, table, max_images), values)


def _counterfactuals(record: DatasetRecord, table: ImageTable, max_images: int | None) -> BiasSet:
    """SocialCounterfactuals, with only those sets that vary all of the record's attributes.

    A row names the two attributes that its set varies, in either order, and its caption ends with the
    occupation. Occupations with fewer images than the largest cut-off are left out.
    """
    columns = ("a1_type", "a1", "a2_type", "a2", "caption")
    wanted, occupations = set(record.groups), set(paper.occupations())
    rows = table.records(*columns)
    table = table.select(
        [
            number
            for number, row in enumerate(rows)
            if wanted <= {row["a1_type"], row["a2_type"]} and _occupation(row) in occupations
        ]
    )
    rows = table.records(*columns)
    if not rows:
        raise InputError(
            f"No row of {record.name!r} varies {' and '.join(sorted(wanted))} for an occupation of the study."
        )
    by_type = [{row["a1_type"]: row["a1"], row["a2_type"]: row["a2"]} for row in rows]
    values = {attribute: [row[attribute] for row in by_type] for attribute in record.groups}
    scanned = _found(record, table, max_images)
    found = _bias_set(record, scanned, values)
    pools = np.array([_occupation(rows[row]) for row in scanned.kept])
    sets = np.array(table.strings("counterfactual_set"))[list(scanned.kept)]
    sizes = {name: int((pools == name).sum()) for name in paper.occupations()}
    least = max(record.k.values())
    few = [f"occupation {name}: only {size} images" for name, size in sizes.items() if size < least]
    if len(few) == len(sizes):
        raise InputError(f"No occupation of {record.name!r} has the {least} images that its cut-off needs.")
    return replace(
        found,
        occupations=tuple(name for name, size in sizes.items() if size >= least),
        skipped=(*found.skipped, *few),
        pools=pools,
        units=np.unique(sets, return_inverse=True)[1].astype(np.int64),
    )


def _occupation(row: Mapping[str, Any]) -> str:
    """The last word of a caption: "A photo of a Black female judge" -> "judge".

    The study's code uses the last word of the file's name, which has the same words.
    """
    return str(row["caption"]).lower().strip(" .").rpartition(" ")[2]


def _bias_csv(record: DatasetRecord, local: Path, max_images: int | None) -> BiasSet:
    """FairFace as its authors distribute it: a CSV of labels, one row per image, and folders of images."""
    labels = sorted(local.rglob("*label_val*.csv")) or sorted(local.rglob("*.csv"))
    if not labels:
        raise InputError(f"{record.name!r} needs a CSV file with the groups of its images in {str(local)!r}.")
    rows = folder.read_labels(labels[0], ["file", *record.groups.values()])
    # The CSV's paths start at a folder that may be missing here; the end of a path identifies the image.
    tails = {"/".join(path.parts[-2:]): path for path in folder.files(local)}

    def read(row: int) -> bytes:
        tail = "/".join(Path(rows[row]["file"]).parts[-2:])
        if tail not in tails:
            raise FileNotFoundError(2, "no such file")
        return tails[tail].read_bytes()

    found = scan(read, spread(len(rows), max_images), lambda row: rows[row]["file"], str(local))
    values = {attribute: [row[column] for row in rows] for attribute, column in record.groups.items()}
    return _bias_set(record, found, values)


def merge_groups(groups: Iterable[str], definition: Mapping[str, str]) -> list[str]:
    """Groups renamed, and so merged, by a record's `renames`; InputError for a group that is not in it."""
    found = []
    for name in groups:
        if name not in definition:
            raise InputError(f"The group {name!r} is not defined; the groups are {', '.join(definition)}.")
        found.append(definition[name])
    return found


def _bias_set(record: DatasetRecord, found: Scan, values: dict[str, list[str]]) -> BiasSet:
    groups: dict[str, np.ndarray] = {}
    for attribute, cells in values.items():
        # "race (seven)" keeps the groups as they are.
        merged = merge_groups(cells, record.renames) if record.renames and attribute == "race" else cells
        groups[attribute] = np.array(merged)[list(found.kept)]
    return BiasSet(
        name=record.name,
        groups=groups,
        k=dict(record.k),
        occupations=paper.occupations(),
        templates=paper.templates(),
        **found.fields({key: value.tolist() for key, value in groups.items()}),
    )
