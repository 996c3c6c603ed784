"""From a registered source, wherever its data are, to an evaluation set."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from ccs import paper
from ccs.datasets import folder, hub, video, wordnet
from ccs.datasets.people import merge_groups
from ccs.datasets.pictures import Scan, scan, spread, with_labels
from ccs.datasets.sets import BiasSet, ClassificationSet, ImageSet, RetrievalSet
from ccs.datasets.source import Source
from ccs.datasets.table import Table, open_parquet
from ccs.errors import InputError

AnySet = ImageSet | RetrievalSet


def open_source(source: Source, root: Path | None, max_images: int | None) -> AnySet:
    """The set, from a local copy (`root`) or the Hub."""
    local = _local(source, root)
    if source.kind == "videos":
        return video.retrieval_set(
            local or hub.video_folder(source),
            name=source.name,
            count=source.frames,
            annotations=source.annotations,
            max_clips=max_images,
        )
    if local is not None and local.is_dir() and not folder.files(local, frozenset({".parquet", ".tar"})):
        return _plain_folder(source, local, max_images)
    table = _local_table(source, local, max_images) if local is not None else hub.rows(source, max_images)
    if source.kind == "captions":
        return _captions(source, table, max_images)
    if source.kind == "bias":
        return _bias(source, table, max_images)
    if source.kind == "images":
        return folder.table_images(table, max_images, source=_where(source))
    return _classes(source, table, local, max_images)


def _where(source: Source) -> str:
    parts = [source.hub or "local copy", source.config, source.split, source.revision]
    return " ".join(part for part in parts if part)


def _local(source: Source, root: Path | None) -> Path | None:
    """The set's own folder or file below `root`, or `root` itself."""
    if root is None:
        return None
    root = root.expanduser()
    if not root.exists():
        raise InputError(f"{str(root)!r}, where {source.name!r} should be, does not exist.")
    for name in (source.name, source.name.replace("-", "_"), f"{source.name}.parquet"):
        if (root / name).exists():
            return root / name
    return root


def _local_table(source: Source, local: Path, max_rows: int | None) -> Table:
    if local.is_dir() and (local / "README.md").exists():
        # A clone of the repository: its card says which files are which configuration and split.
        return hub.any_rows(str(local), name=source.name, config=source.config, split=source.split)
    if local.is_dir() and folder.files(local, frozenset({".tar"})):
        return hub.any_rows(str(local), name=source.name, split=source.split)
    return open_parquet(local)


def _plain_folder(source: Source, local: Path, max_images: int | None) -> AnySet:
    if source.kind == "classification":
        names = None
        if source.names == "wordnet":
            ids = sorted(
                {path.relative_to(local).parts[0] for path in folder.files(local) if path.parent != local}
            )
            names = dict(zip(ids, wordnet.class_names(ids), strict=True))
        return folder.classification_set(
            local,
            name=source.name,
            templates=source.templates(),
            class_names=names,
            subsets=source.subsets,
            max_images=max_images,
        )
    if source.kind == "bias":
        return _bias_csv(source, local, max_images)
    if source.kind == "images":
        return folder.image_set(local, max_images)
    raise InputError(
        f"{source.name!r} needs parquet files with pictures and captions, not the folder {str(local)!r}."
    )


def _found(source: Source, table: Table, max_images: int | None) -> Scan:
    column = source.image if source.image in table.columns else table.picture_column()
    return folder.table_pictures(table, column, max_images, _where(source))


def _classes(source: Source, table: Table, local: Path | None, max_images: int | None) -> ClassificationSet:
    column = source.label if source.label in table.columns else "label"
    numbers, given = table.labels(column)
    if given is None:
        given = tuple(_class_file(source, local).splitlines())
        if max(numbers) >= len(given):
            raise InputError(
                f"{source.name!r} has class number {max(numbers)} but only {len(given)} class names."
            )
    names = [source.renames.get(name, name) for name in given]
    if source.names == "wordnet":
        names = list(wordnet.class_names(names))
    if source.first_word:
        firsts = [name.replace(" ", "_").split("_")[0] for name in names]
        names = sorted(set(firsts))
        numbers = [names.index(firsts[number]) for number in numbers]
    elif source.names == "column":
        names = [name.replace("_", " ") for name in names]
    found = _found(source, table, max_images)
    labels = np.array(numbers, np.int64)[list(found.kept)]
    return ClassificationSet(
        name=source.name,
        images=found.pictures,
        fingerprint=with_labels(found.fingerprint, labels.tolist(), names),
        source=_where(source),
        skipped=found.skipped,
        labels=labels,
        classes=tuple(names),
        templates=source.templates(),
        subsets={
            key: tuple(names.index(name) for name in members) for key, members in source.subsets.items()
        },
    )


def _class_file(source: Source, local: Path | None) -> str:
    if source.names == "column":
        raise InputError(
            f"The labels of {source.name!r} are bare numbers and nothing says which class each is."
        )
    if local is None:
        return hub.text_file(source, source.names)
    for path in (local / source.names, local.parent / source.names):
        if path.exists():
            return path.read_text(encoding="utf-8").strip("\n")
    raise InputError(f"{source.name!r} needs the file {source.names} of {source.hub!r} beside its data.")


class Singles(Sequence[Sequence[Image.Image]]):
    """Pictures as clips of one frame."""

    def __init__(self, images: Sequence[Image.Image]) -> None:
        self._images = images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]  # int -> one clip, slice -> several
        return Singles(self._images[index]) if isinstance(index, slice) else (self._images[index],)


def _captions(source: Source, table: Table, max_images: int | None) -> RetrievalSet:
    single = next((column for column in ("captions", "caption") if column in table.columns), None)
    found = _found(source, table, max_images)
    if single is not None:
        cells = table.values(single)
        every = [tuple(cell) if isinstance(cell, list) else (cell,) for cell in cells]
    else:
        every = list(zip(*(table.strings(column) for column in source.captions), strict=True))
    captions = tuple(every[row] for row in found.kept)
    return RetrievalSet(
        name=source.name,
        clips=Singles(found.pictures),
        captions=captions,
        fingerprint=with_labels(found.fingerprint, captions),
        source=_where(source),
        skipped=found.skipped,
    )


def _bias(source: Source, table: Table, max_images: int | None) -> BiasSet:
    if "a1_type" in table.columns:
        # SocialCounterfactuals: every row says which two attributes its set varies, in either order.
        wanted = set(source.groups)
        table = table.where(lambda row: {row["a1_type"], row["a2_type"]} == wanted, "a1_type", "a2_type")
        columns = zip(*(table.strings(name) for name in ("a1_type", "a1", "a2_type", "a2")), strict=True)
        rows = [{type1: value1, type2: value2} for type1, value1, type2, value2 in columns]
        if not rows:
            raise InputError(f"No row of {source.name!r} varies {' and '.join(sorted(wanted))}.")
        values = {attribute: [row[attribute] for row in rows] for attribute in source.groups}
    else:
        values = {attribute: table.strings(column) for attribute, column in source.groups.items()}
    found = _found(source, table, max_images)
    return _bias_set(source, found, values, _where(source))


def _bias_csv(source: Source, local: Path, max_images: int | None) -> BiasSet:
    """FairFace as its authors give it: a CSV of labels, a row a picture, and the pictures in folders."""
    labels = sorted(local.rglob("*label_val*.csv")) or sorted(local.rglob("*.csv"))
    if not labels:
        raise InputError(
            f"{source.name!r} needs a CSV file with the groups of its pictures in {str(local)!r}."
        )
    with labels[0].open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    needed = {"file", *source.groups.values()}
    if not rows or not needed <= set(rows[0]):
        raise InputError(f"{str(labels[0])!r} has not the columns {', '.join(sorted(needed))}.")
    # The CSV's paths begin at a folder that need not be there; the end of the path says which picture is
    # meant.
    tails = {"/".join(path.parts[-2:]): path for path in folder.files(local)}

    def read(row: int) -> bytes:
        tail = "/".join(Path(rows[row]["file"]).parts[-2:])
        if tail not in tails:
            raise FileNotFoundError(2, "no such file")
        return tails[tail].read_bytes()

    found = scan(read, spread(len(rows), max_images), lambda row: rows[row]["file"], str(local))
    values = {attribute: [row[column] for row in rows] for attribute, column in source.groups.items()}
    return _bias_set(source, found, values, str(local))


def _bias_set(source: Source, found: Scan, values: dict[str, list[str]], where: str) -> BiasSet:
    groups: dict[str, np.ndarray] = {}
    for attribute, cells in values.items():
        # "race (seven)" keeps the groups as they are.
        merged = merge_groups(cells, source.renames) if source.renames and attribute == "race" else cells
        groups[attribute] = np.array(merged)[list(found.kept)]
    return BiasSet(
        name=source.name,
        images=found.pictures,
        fingerprint=with_labels(found.fingerprint, {key: value.tolist() for key, value in groups.items()}),
        source=where,
        skipped=found.skipped,
        groups=groups,
        k=dict(source.k),
        occupations=paper.occupations(),
        templates=paper.templates(),
    )
