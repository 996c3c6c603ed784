"""From a spec to a set: a known name, a folder, a file, an id on the Hub, or the drawn world."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ccs.data import (
    ALIASES,
    SOURCES,
    BiasSet,
    ClassificationSet,
    DatasetRecord,
    ImageSet,
    RetrievalSet,
    clips,
    hub,
    labeled,
    source,
    untrusted,
)
from ccs.data import synthetic as world
from ccs.data.rows import LABELS, Rows, files_of, of_files, of_parquet
from ccs.errors import InputError
from ccs.files import as_text

AnySet = ImageSet | RetrievalSet

WORLD_IMAGES = 5000
"""The default number of scenes of the drawn world."""
DATA_ROOT = "CCS_DATA"
"""The environment variable with a folder of local copies, each under its set's name."""

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")
SPLITS = ("test", "val", "validation")
"""Parts of a set that are read in place of all of it, where a folder holds nothing but these and `train`."""
_FRAMES = 12  # of a clip of one's own


def open_dataset(
    spec: str,
    *,
    max_images: int | None = None,
    classes: Sequence[str] | None = None,
    template: str | None = None,
    seed: int | None = None,
) -> AnySet:
    """An evaluation set, from any of these:

    - a known name ("cifar10"), from the folder in the environment variable CCS_DATA or else from the Hub;
      an ImageSet for "imagenet-val", otherwise the set's own kind;
    - "world/..." of the drawn world;
    - a folder or a zip with one folder of images per class, or with a file labels.csv that has the columns
      `file` and `label`; a folder of videos and a JSON file of captions;
    - a parquet file (or a folder of them) with a column of images and one called `label`;
    - an id on the Hub ("owner/name:split"; the split is `train` by default), or a stranger's set there
      ("hf://datasets/owner/name:split": nothing is read but parquet files, within bounds).

    max_images: the most images or clips, evenly spaced; drawn people are never reduced, because the cut-off
    of their ranking depends on their number. classes: the names of the classes in prompts, in the order of
    their numbers (folders and texts are numbered in alphabetical order). template: the prompt, `{}` is the
    class. seed: fresh synthetic images, for "world/...". InputError for anything else.

        >>> found = open_dataset("world/subjects", max_images=10)
        >>> len(found.images), found.labels.dtype.kind    # images, and whole numbers: their classes
        (10, 'i')
    """
    if template is not None and template.count("{}") != 1:
        raise InputError(f"A template holds {{}} once, where the class goes, unlike {template!r}.")
    found = _open(spec, "classification", max_images, classes or (), seed)
    if isinstance(found, ClassificationSet):
        if classes and len(classes) != len(found.classes):
            raise InputError(f"{spec} has {len(found.classes)} classes, but {len(classes)} names were given.")
        found = replace(
            found,
            classes=tuple(classes or found.classes),
            templates=(template,) if template else found.templates,
        )
    return found


def open_gallery(
    spec: str,
    *,
    attribute: str | Sequence[str] = (),
    max_images: int | None = None,
    seed: int | None = None,
) -> BiasSet:
    """Images of people to be ranked, from any spec of `open_dataset`.

    A file of one's own has columns of groups, of any names; a folder or zip has a file labels.csv with a
    column `file` and columns of groups, or one folder of images per group. Occupations and templates are
    the study's; K is a tenth of the images. attribute: the columns of groups to use; by default all with a
    usual name (gender, race, ...), or else all with 2 to 50 groups. seed: fresh synthetic people that no
    bundled model was trained or measured on ("world/faces", "world/counterfactuals"). Raises InputError for
    anything else.

        >>> people = open_gallery("world/faces")
        >>> len(people.images), sorted(people.groups)
        (600, ['gender', 'skin tone'])
    """
    wanted = [attribute] if isinstance(attribute, str) else attribute
    found = _open(spec, "bias", max_images, wanted, seed)
    if not isinstance(found, BiasSet):
        raise InputError(f"{spec} is not a set of people with labeled groups.")
    if unknown := [name for name in wanted if name not in found.groups]:
        raise InputError(f"{spec} has no attribute {unknown[0]!r}; it has {', '.join(found.groups)}.")
    return replace(found, groups={name: found.groups[name] for name in wanted or found.groups})


def open_upload(data: bytes, name: str) -> BiasSet:
    """A stranger's zip or parquet file, as for `open_gallery`, within narrow bounds, with all columns of 2 to
    50 groups that `labeled.people` takes, those of usual names first. Raises InputError.
    """
    record, rows = DatasetRecord(name=name, kind="bias"), untrusted.upload_rows(data, name)
    return labeled.people(record, rows, every=True)


def open_images(spec: str, max_images: int | None = None, *, seed: int = 0) -> ImageSet:
    """Images without labels, for the moments, from any spec of `open_dataset`; folders may have any depth.

    "world" are scenes drawn from `seed`. A column `mask`, as of "imagenet-segmentation", gives their masks.
    Raises InputError for a set of clips.

        >>> open_images("world", 3).images[0].size
        (72, 72)
    """
    if spec in ("world", "world/images"):
        _require_an_image(max_images)
        return world.image_set(max_images or WORLD_IMAGES, seed)
    clips_alone = _is_known(spec) and source(spec).kind == "videos"
    found = None if clips_alone else _open(spec, "images", max_images)
    if not isinstance(found, ImageSet):
        raise InputError(f"{spec!r} is a set of clips; images are needed here.")
    return found


def _open(
    spec: str, kind: str, most: int | None, names: Sequence[str] = (), seed: int | None = None
) -> AnySet:
    """The set that a spec names. kind: of one's own set. names: of classes, or columns of groups."""
    _require_an_image(most)
    if spec.startswith("world/"):
        return _drawn(spec.removeprefix("world/"), most, seed)
    if _is_known(spec):
        record = source(spec)
        place = local_copy(record)
    else:
        record, place = _described(spec, kind)
    if record.kind == "videos":
        folders = [place] if place else hub.video_folders(record)
        about = {"annotations": record.annotations}
        about["source"] = "" if place else f"{record.address} {folders[0].name}"
        return clips.retrieval_set(folders, name=record.name, count=record.frames, max_clips=most, **about)
    rows = _rows(record, place, most)
    return READERS[record.kind](record, rows, most, names or _class_names(record, place))


def _is_known(spec: str) -> bool:
    return spec in SOURCES or spec in ALIASES


def _require_an_image(most: int | None) -> None:
    if most is not None and most < 1:
        raise InputError(f"At least one image is needed, not {most}.")


def _drawn(name: str, most: int | None, seed: int | None) -> AnySet:
    if name not in world.names():
        raise InputError(f"There is no drawn set 'world/{name}'; there are {', '.join(world.names())}.")
    if name == "clips":
        return world.retrieval_set(300 if most is None else most, seed)
    if name in ("faces", "counterfactuals"):
        return world.bias_set(name, seed)
    return world.classification_set(name, most, seed)


def local_copy(record: DatasetRecord) -> Path | None:
    """The known set's folder or file in CCS_DATA; None where it is on the Hub. InputError for neither."""
    root = Path(os.environ.get(DATA_ROOT) or "/nowhere").expanduser()
    for ending in ("", ".parquet", ".mat"):
        if (path := root / f"{record.name}{ending}").exists():
            return path
    if record.hub is None:
        where = f"put a local copy in ${DATA_ROOT}/{record.name} ({record.verified})"
        raise InputError(f"{record.name!r} is not on the Hub; {where}.")
    return None


def _described(spec: str, kind: str) -> tuple[DatasetRecord, Path | None]:
    """A record of a set of one's own, and its file or folder; None for one on the Hub."""
    path = Path(spec).expanduser()
    if spec.startswith(untrusted.PREFIX):
        return DatasetRecord(name=spec, kind=kind, hub=spec), None
    if path.suffix.lower() in (".csv", ".tsv", ".txt") and path.is_file():
        raise InputError(f"{spec!r} is no set; give the folder with the images, and {LABELS} in it.")
    if path.is_file():
        return DatasetRecord(name=as_text(path.stem), kind=kind), path
    if path.is_dir():
        if kind == "classification" and any(one.suffix.lower() in clips.SUFFIXES for one in path.rglob("*")):
            kind = "videos"
        return DatasetRecord(name=as_text(path.resolve().name), kind=kind, frames=_FRAMES), path
    if _HUB_ID.fullmatch(spec) and not spec.startswith("."):
        repository, _, split = spec.partition(":")
        return DatasetRecord(
            name=repository, kind=kind, hub=repository, split=split or "train", large=True
        ), None
    if "/" in spec or path.suffix:
        raise InputError(f"{spec!r} does not exist; give a folder of images, a zip or a parquet file.")
    raise InputError(
        f"{spec!r} is neither a folder, a zip nor a parquet file, a known set ({', '.join(SOURCES)}), "
        "'world', a drawn set (world/...) nor an id on the Hub (owner/name)."
    )


# Rows, and what is made of them ---------------------------------------------------------------------------


def _class(path: str) -> str:
    """The class of an image, that of the folder it lies in: its name with spaces."""
    return path.split("/")[0].replace("-", " ") if "/" in path else ""


def _first_word(path: str) -> str:
    return path.split("/")[-1].split("_")[0]


def _group(path: str) -> str:
    return path.split("/")[0] if "/" in path else ""


READERS: Mapping[str, Callable[[DatasetRecord, Rows, int | None, Sequence[str]], ImageSet]] = {
    "classification": labeled.classes,
    "bias": labeled.people,
    "images": labeled.images,
}
"""What makes a set of rows, by its kind."""
_LABEL = {"classification": _class, "bias": _group}
"""What labels an image by its path, by the kind of set; others have no labels."""


def _class_names(record: DatasetRecord, local: Path | None) -> Sequence[str]:
    """The names of the record's classes where a file has them, else none."""
    if record.names in ("column", "wordnet"):
        return ()
    if local is None:
        return hub.text_file(record, record.names).splitlines()
    for path in (local / record.names, local.parent / record.names):
        if path.exists():
            return path.read_text(encoding="utf-8-sig").strip("\n").splitlines()
    raise InputError(f"{record.name!r} needs the file {record.names} of {record.hub!r} beside its data.")


def _rows(record: DatasetRecord, place: Path | None, most: int | None) -> Rows:
    """The rows of a set on the Hub, in a file or in a folder. A local copy of a known set is a clone of its
    repository, whose card assigns files to splits, parquet files, or a plain folder.
    """
    if place is None:
        return _fetched(record, most)
    label, name, known = _LABEL.get(record.kind), record.name, SOURCES.get(record.name) is record
    if place.suffix.lower() == ".mat":
        return labeled.matlab_rows(place, name)
    if place.is_file():
        zipped = place.suffix.lower() == ".zip"
        return _folders(place, name, label) if zipped else of_parquet(place, name, record.image)
    if known and (place / "README.md").exists():
        return hub.rows_at(record, str(place))
    if any(place.rglob("*.parquet")) and (known or not files_of(place)):
        return of_parquet(place, name, record.image)
    if known and record.kind == "bias":
        files = files_of(place)
        table = next((path for path in files if path.endswith(("label_val.csv", LABELS))), None)
        if table is None:
            raise InputError(f"{str(place)!r} has no {LABELS} with the groups of its images.")
        return of_files(files, name, str(place), table=table, place=place)
    if record.first_word:
        inner = place / "images" if (place / "images").is_dir() else place
        return of_files(files_of(inner), name, str(place), _first_word, place=inner)
    return _folders(place, name, label)


def _fetched(record: DatasetRecord, most: int | None) -> Rows:
    assert record.hub is not None
    if record.hub.startswith(untrusted.PREFIX):
        return untrusted.hub_rows(record.hub, most, labels=record.kind in _LABEL)
    if record.excerpt:
        return untrusted.excerpt_rows(record)
    return hub.rows_at(record, record.hub, most if record.large else None)


def _folders(path: Path, name: str, label: Callable[[str], str] | None) -> Rows:
    """The images in a folder or zip, with their labels: those of a table, or of the folders they lie in."""
    inside = {one.name for one in path.iterdir() if one.is_dir()} if path.is_dir() else set()
    splits = [path / one for one in SPLITS if one in inside <= {"train", *SPLITS} and label is _class]
    place = next(iter(splits), path)
    files = files_of(place)
    return of_files(files, name, str(place), label, LABELS if label and LABELS in files else "", place)
