"""From a spec to a set: a known name, a folder, a file, an id on the Hub, or the drawn world."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ccs.errors import InputError
from ccs.files import as_text
from ccs.sets import clips, excerpts, fetching, labeled, strangers
from ccs.sets import drawn_sets as world
from ccs.sets.kinds import BiasSet, ClassificationSet, ImageSet, RetrievalSet
from ccs.sets.known_sets import ALIASES, SOURCES, DatasetRecord, source
from ccs.sets.rows import LABELS, Rows, files_of, of_files, of_parquet

WORLD_IMAGES = 5000
"""The default number of scenes of the drawn world."""
DATA_ROOT = "CCS_DATA"
"""The environment variable with a folder of local copies, each under its set's name."""

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")
_FRAMES = 12  # of a clip of one's own


def open_set(
    spec: str,
    *,
    max_images: int | None = None,
    classes: Sequence[str] | None = None,
    template: str | None = None,
) -> ImageSet | RetrievalSet:
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
    class. InputError for anything else.
    """
    _require_an_image(max_images)
    if template is not None and template.count("{}") != 1:
        raise InputError(f"A template holds {{}} once, where the class goes, unlike {template!r}.")
    if spec.startswith("world/"):
        found = _drawn(spec.removeprefix("world/"), max_images)
    elif spec in SOURCES or spec in ALIASES:
        found = _known(source(spec), max_images)
    else:
        found = _own(spec, max_images, "\n".join(classes or ()))
    if isinstance(found, ClassificationSet):
        if classes and len(classes) != len(found.classes):
            raise InputError(f"{spec} has {len(found.classes)} classes, but {len(classes)} names were given.")
        found = replace(
            found,
            classes=tuple(classes or found.classes),
            templates=(template,) if template else found.templates,
        )
    return found


def open_gallery(spec: str, *, attribute: str | Sequence[str] = (), max_images: int | None = None) -> BiasSet:
    """Images of people to be ranked, from any spec of `open_set`.

    A file of one's own has columns of groups, of any names; a folder or zip has a file labels.csv with a
    column `file` and columns of groups, or one folder of images per group. Occupations and templates are
    the study's; K is a tenth of the images. attribute: the columns of groups to use; by default all with a
    usual name (gender, race, ...), or else all with 2 to 50 groups. Raises InputError for anything else.
    """
    _require_an_image(max_images)
    wanted = [attribute] if isinstance(attribute, str) else attribute
    if spec.startswith("world/") or spec in SOURCES or spec in ALIASES:
        found = open_set(spec, max_images=max_images)
        if not isinstance(found, BiasSet):
            raise InputError(f"{spec} is not a set of people with labeled groups.")
        if unknown := [name for name in wanted if name not in found.groups]:
            known = ", ".join(found.groups)
            raise InputError(f"{spec} has no attribute {unknown[0]!r}; it has {known}.")
        return replace(found, groups={name: found.groups[name] for name in wanted or found.groups})
    return labeled.people(_rows(spec, max_images, _group), max_images, wanted)


def open_upload(data: bytes, name: str) -> BiasSet:
    """A stranger's gallery: a zip file or a parquet file, as for `open_gallery`, within narrow bounds.

    All of it stays in memory. `name`: the set's name. Raises InputError.
    """
    return labeled.people(strangers.upload_rows(data, name))


def open_images(spec: str, max_images: int | None = None, *, seed: int = 0) -> ImageSet:
    """Images without labels, for the moments, from any spec of `open_set`; folders may have any depth.

    "world" are scenes drawn from `seed`.
    """
    _require_an_image(max_images)
    if spec in ("world", "world/images"):
        return world.image_set(max_images or WORLD_IMAGES, seed)
    if spec in SOURCES or spec in ALIASES:
        if source(spec).kind == "videos":
            raise InputError(f"{spec!r} is a set of clips; images are needed here.")
        found = open_set(spec, max_images=max_images)
        assert isinstance(found, ImageSet)
        return found
    return labeled.images(_rows(spec, max_images), max_images)


def _require_an_image(most: int | None) -> None:
    if most is not None and most < 1:
        raise InputError(f"At least one image is needed, not {most}.")


def _drawn(name: str, most: int | None) -> ImageSet | RetrievalSet:
    if name not in world.names():
        raise InputError(f"There is no drawn set 'world/{name}'; there are {', '.join(world.names())}.")
    if name == "clips":
        return world.retrieval_set() if most is None else world.retrieval_set(most)
    if name in ("faces", "counterfactuals"):
        return world.bias_set(name)
    return world.classification_set(name, n=most)


# Sets known by name -----------------------------------------------------------------------------------------


def _known(record: DatasetRecord, most: int | None) -> ImageSet | RetrievalSet:
    root = Path(os.environ.get(DATA_ROOT) or "/nowhere").expanduser()
    candidates = (root / file for file in (record.name, f"{record.name}.parquet"))
    local = next((path for path in candidates if path.exists()), None)
    if record.kind == "videos":
        folders = [local] if local else fetching.video_folders(record)
        about = {"annotations": record.annotations, "source": "" if local else record.address}
        return clips.retrieval_set(folders, name=record.name, count=record.frames, max_clips=most, **about)
    if local:
        rows = _local_copy(record, local)
    elif record.hub is None:
        where = f"put a local copy in ${DATA_ROOT}/{record.name} ({record.verified})"
        raise InputError(f"{record.name!r} is not on the Hub; {where}.")
    elif record.excerpt:
        rows = excerpts.rows(record)
    else:
        rows = fetching.rows_at(record, record.hub, most if record.large else None)
    if record.kind == "bias":
        return labeled.known_people(record, rows, most)
    if record.kind == "images":
        return replace(labeled.images(rows, most), name=record.name)
    return labeled.classes(record, rows, most, _class_names(record, local))


def _local_copy(record: DatasetRecord, local: Path) -> Rows:
    """A clone of the repository, whose card assigns files to splits; parquet files; or a plain folder."""
    if local.is_file():
        return of_parquet(local, record.name, record.image)
    if (local / "README.md").exists():
        return fetching.rows_at(record, str(local))
    if any(local.rglob("*.parquet")):
        return of_parquet(local, record.name, record.image)
    if record.kind == "bias":
        files = files_of(local)
        table = next((path for path in files if path.endswith(("label_val.csv", LABELS))), None)
        if table is None:
            raise InputError(f"{str(local)!r} has no {LABELS} with the groups of its images.")
        return of_files(files, record.name, str(local), table=table)
    if record.first_word:
        inner = local / "images" if (local / "images").is_dir() else local
        return of_files(
            files_of(inner), record.name, str(local), lambda path: path.split("/")[-1].split("_")[0]
        )
    return _folders(local, record.name, _class if record.kind == "classification" else None)


def _class_names(record: DatasetRecord, local: Path | None) -> str:
    """The file with the names of the record's classes, "" if it has none."""
    if record.names in ("column", "wordnet"):
        return ""
    if local is None:
        return fetching.text_file(record, record.names)
    for path in (local / record.names, local.parent / record.names):
        if path.exists():
            return path.read_text(encoding="utf-8").strip("\n")
    raise InputError(f"{record.name!r} needs the file {record.names} of {record.hub!r} beside its data.")


# Sets of one's own ------------------------------------------------------------------------------------------


def _class(path: str) -> str:
    """The class of an image, that of the folder it lies in: its name with spaces."""
    return path.split("/")[0].replace("-", " ") if "/" in path else ""


def _group(path: str) -> str:
    return path.split("/")[0] if "/" in path else ""


def _own(spec: str, most: int | None, classes: str) -> ImageSet | RetrievalSet:
    path = Path(spec).expanduser()
    if path.is_dir() and any(one.suffix.lower() in clips.SUFFIXES for one in path.rglob("*")):
        return clips.retrieval_set([path], name=as_text(path.resolve().name), count=_FRAMES, max_clips=most)
    rows = _rows(spec, most, _class)
    if not rows.count:
        raise InputError(f"{spec!r} has no class folders with images in them.")
    record = DatasetRecord(name=rows.name, kind="classification")
    return labeled.classes(record, rows, most, classes)


def _rows(spec: str, most: int | None, label: Callable[[str], str] | None = None) -> Rows:
    """The rows of a file, a folder or an id on the Hub. label: labels an image by its path, if asked for."""
    path = Path(spec).expanduser()
    if spec.startswith(strangers.PREFIX):
        return strangers.hub_rows(spec, most, labels=label is not None)
    if path.is_file():
        name = as_text(path.stem)
        return _folders(path, name, label) if path.suffix.lower() == ".zip" else of_parquet(path, name)
    if path.is_dir():
        name = as_text(path.resolve().name)
        if any(path.rglob("*.parquet")) and not files_of(path):
            return of_parquet(path, name)
        return _folders(path, name, label)
    if _HUB_ID.fullmatch(spec) and not spec.startswith("."):
        hub_id, _, split = spec.partition(":")
        record = DatasetRecord(name=hub_id, kind="images", hub=hub_id, split=split or "train")
        return fetching.rows_at(record, hub_id, most)
    if "/" in spec or path.suffix:
        raise InputError(f"{spec!r} does not exist; give a folder of images, a zip or a parquet file.")
    raise InputError(
        f"{spec!r} is neither a folder, a zip nor a parquet file, a known set ({', '.join(SOURCES)}), "
        "'world', a drawn set (world/...) nor an id on the Hub (owner/name)."
    )


def _folders(path: Path, name: str, label: Callable[[str], str] | None) -> Rows:
    """The images in a folder or zip, with their labels: those of a table, or of the folders they lie in."""
    if label is _class:
        splits = (path / one for one in ("test", "val", "validation"))
        files = files_of(next((one for one in splits if one.is_dir()), path))
    else:
        files = files_of(path)
    return of_files(files, name, str(path), label, LABELS if label and LABELS in files else "")
