"""Opening a set by name, folder, file or id on the Hub."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ccs.datasets import folder, gallery, hub, photographs, readers
from ccs.datasets.known_sets import ALIASES, SOURCES, source
from ccs.errors import InputError
from ccs.image_sets import BiasSet, ImageSet, RetrievalSet

WORLD_IMAGES = 5000
"""The default number of scenes of the drawn world."""

WORLD_SETS = (
    "subjects",
    "colors",
    "places",
    "letters",
    "digits",
    "occupations",
    "subjects-ood",
    "clips",
    "captions",
    "faces",
    "counterfactuals",
)
DATA_ROOT = "CCS_DATA"
"""The environment variable with a folder of local copies, each under its set's name."""

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")


def open_images(spec: str, max_images: int | None = None, *, seed: int = 0) -> ImageSet:
    """Images without labels, for the moments.

    `spec`: a folder of images, a parquet file (or a folder of them), "world" (scenes drawn from `seed`), a
    registered name ("imagenet-val", or "imagenet" for short), a Hub id, with its split if it is not `train`
    ("owner/name:validation"), or a stranger's set after "hf://datasets/" (see `photographs`). InputError,
    with these choices, for anything else.
    """
    if spec in ("world", "world/images"):
        from ccs.world import drawn_sets as world

        return world.image_set(max_images or WORLD_IMAGES, seed)
    if spec.startswith(photographs.PREFIX):
        return photographs.stream(spec, max_images)
    if Path(spec).expanduser().exists():
        return folder.image_set(spec, max_images)
    if spec in SOURCES or spec in ALIASES:
        if source(spec).kind in ("captions", "videos"):
            raise InputError(f"{spec!r} is a set of clips; images are needed here.")
        found = open_set(spec, max_images=max_images)
        assert isinstance(found, ImageSet)
        return found
    if _HUB_ID.fullmatch(spec) and not spec.startswith("."):
        hub_id, _, split = spec.partition(":")
        table = hub.any_rows(hub_id, name=hub_id, split=split or "train", max_streamed=max_images)
        return folder.table_images(table, max_images, source=spec)
    raise InputError(
        f"{spec!r} is neither a folder nor a parquet file, a known set ({', '.join(SOURCES)}), 'world' nor "
        "an id on the Hub (owner/name)."
    )


def open_set(name: str, *, max_images: int | None = None) -> ImageSet | RetrievalSet:
    """An evaluation set: a ClassificationSet, RetrievalSet or BiasSet (an ImageSet for "imagenet-val").

    It comes from the folder in the environment variable CCS_DATA, if it is there, or else from the Hub. Names
    that begin with "world/" are drawn. `max_images`: the most images or clips, evenly spaced for a set
    on disk; drawn people are never reduced, because the cut-off of their ranking depends on their number.
    """
    if max_images is not None and max_images < 1:
        raise InputError(f"At least one image is needed, not {max_images}.")
    if name.startswith("world/"):
        return _world(name.removeprefix("world/"), max_images)
    found = source(name)
    return readers.open_source(found, _own_copy(found.name), max_images)


def open_gallery(spec: str) -> BiasSet:
    """Open a parquet file, a folder of labeled faces, or a set that is known by name, as people to be ranked.

    A file has a column of images and one or more of `gallery.ATTRIBUTES`. A folder has a file labels.csv with
    a column `file` and one column per attribute, or one folder of images per group. Occupations and templates
    are the study's; K is a tenth of the images. Raises InputError for anything else.
    """
    path = Path(spec).expanduser()
    if path.is_dir() or path.suffix == ".parquet":
        return gallery.open_path(path)
    named = open_set(spec)
    if not isinstance(named, BiasSet):
        raise InputError(f"{spec} is not a set of people with labeled groups.")
    return named


def _own_copy(name: str) -> Path | None:
    """The copy of a set in the folder that the environment names, if there is one."""
    if not (root := os.environ.get(DATA_ROOT)):
        return None
    candidates = (Path(root).expanduser() / found for found in (name, f"{name}.parquet"))
    return next((path for path in candidates if path.exists()), None)


def _world(name: str, max_images: int | None) -> ImageSet | RetrievalSet:
    if name not in WORLD_SETS:
        raise InputError(f"There is no drawn set 'world/{name}'; there are {', '.join(WORLD_SETS)}.")
    from ccs.world import drawn_sets as world

    if name in ("clips", "captions"):
        return world.retrieval_set(name) if max_images is None else world.retrieval_set(name, n=max_images)
    if name in ("faces", "counterfactuals"):
        return world.bias_set(name)
    return world.classification_set(name, n=max_images)
