"""Open a set by its name, folder, file, or id on the Hub, or make it from synthetic images.

Remarks on how a set was read are in its `notes`. They are also logged as warnings, which commands and
notebooks print.
"""

import io
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ccs import sandbox
from ccs.data import ALIASES, SOURCES, AnySet, BiasSet, ClassificationSet, DatasetRecord, ImageSet, synthetic
from ccs.data.files import SPLITS, list_files
from ccs.data.hub import OnHub
from ccs.data.labeled import make_people, make_set
from ccs.data.layouts import Local, read_files
from ccs.data.rows import Sample, of_plain
from ccs.errors import InputError
from ccs.files import as_text

log = logging.getLogger(__name__)
T = TypeVar("T", bound=AnySet)

MOST_FILES, MOST_BYTES = 2000, 64 * 2**20
"""Maximum number of images in an upload, and of bytes after unpacking."""
_HUB_ID = re.compile(
    r"(hf://datasets/)?([\w.-]{1,96}/[\w.-]{1,96})(?::(?:([\w./-]{1,96})/)?([\w.-]{1,96}))?", re.ASCII
)


def open_dataset(
    spec: str | os.PathLike[str],
    *,
    max_images: int | None = None,
    classes: Sequence[str] | None = None,
    template: str | None = None,
    split: str = "",
    seed: int | None = None,
) -> AnySet:
    """Open images with classes, or clips with captions.

    Args:
        spec: A known name ("cifar10"), "world/..." of the synthetic world, a folder, zip, tar, or Parquet
            file in a layout of docs/datasets.md, or an id on the Hub ("owner/name:split" or
            "owner/name:config/split", after "hf://datasets/" for an owner who isn't trusted).
        max_images: Maximum number of images, drawn at random from each class; of clips, the first. Synthetic
            people are never sampled, because the cut-off of their ranking depends on their number.
        classes: The names of the classes in prompts, in the order of their numbers. Folders and texts are
            numbered in alphabetical order, or by value if all are whole numbers.
        template: The prompt; `{}` is the class.
        split: The split of a folder or of Parquet files; "FOLDER:train" is another way to choose it. By
            default the first of test, validation, and train.
        seed: Random seed for the sample; for "world/..." it gives fresh images.

    Returns:
        A `ClassificationSet`, a `RetrievalSet`, or for "imagenet-val" an `ImageSet`.

    Raises:
        InputError: If there is no such dataset, or its labels are ambiguous.

    Examples:
        >>> subjects = open_dataset("world/subjects", max_images=10)
        >>> len(subjects.images), subjects.labels.dtype.kind    # images, and whole numbers: their classes
        (10, 'i')
    """
    if template is not None and template.count("{}") != 1:
        raise InputError(f"Expected one {{}}, for the class, in the template; got {template!r}.")
    sample = Sample(max_images, seed or 0)
    opened = _open(_as_text(spec), "classification", sample, split, seed, tuple(classes or ()))
    if isinstance(opened, ClassificationSet) and template:
        opened = replace(opened, templates=(template,))
    return opened


def open_gallery(
    spec: str | os.PathLike[str],
    *,
    attribute: str | Sequence[str] = (),
    max_images: int | None = None,
    split: str = "",
    seed: int | None = None,
) -> BiasSet:
    """Open images of people with groups, to be ranked.

    A user's Parquet file has columns of groups; a folder, zip, or tar has a table labels.csv with a column
    `file` and columns of groups, or one folder of images per group. Occupations and templates are the
    paper's; K is a tenth of the images.

    Args:
        spec: As for `open_dataset`.
        attribute: The columns of groups, of any names. By default all with a usual name (gender, race, ...),
            or else all with 2 to 50 groups.
        max_images: Maximum number of images, drawn at random from each group.
        split: As for `open_dataset`.
        seed: Random seed for the sample. For "world/faces" and "world/counterfactuals" it gives fresh people
            that no bundled model was trained or measured on.

    Raises:
        InputError: If there is no such dataset, or it has no such groups.

    Examples:
        >>> people = open_gallery("world/faces")
        >>> len(people.images), sorted(people.groups)
        (600, ['gender', 'skin tone'])
    """
    spec, wanted = _as_text(spec), (attribute,) if isinstance(attribute, str) else tuple(attribute)
    sample = Sample(max_images, seed or 0)
    if spec.startswith("world/"):
        opened = synthetic.bias_set(spec.removeprefix("world/"), seed)
    else:
        place = _find(spec, "bias", split)
        if place.record.kind != "bias":
            raise InputError(f"{spec} is not a gallery: it has no labeled groups of people.")
        sample = replace(sample, max_rows=sample.max_rows or place.record.sample or None)
        opened = _with_warnings(make_people(place.record, place.open_rows(sample.max_rows), sample, wanted))
    if unknown := [name for name in wanted if name not in opened.groups]:
        raise InputError(f"{spec} has no attribute {unknown[0]!r}; it has {', '.join(opened.groups)}.")
    return replace(opened, groups={name: opened.groups[name] for name in wanted or opened.groups})


def open_images(
    spec: str | os.PathLike[str], max_images: int | None = None, *, split: str = "", seed: int = 0
) -> ImageSet:
    """Open images without labels, from which head statistics are collected.

    Args:
        spec: As for `open_dataset`; folders may have any depth. "world" are synthetic scenes.
        max_images: Maximum number of images, drawn at random.
        split: As for `open_dataset`; by default folders of images are read whole.
        seed: Random seed for the sample, and for the scenes of "world".

    Returns:
        The images.

    Raises:
        InputError: If there is no such dataset, or it holds clips.

    Examples:
        >>> open_images("world", 3).images[0].size
        (72, 72)
    """
    spec, sample = _as_text(spec), Sample(max_images, seed)
    if spec in ("world", "world/images"):
        return synthetic.image_set(max_images or 5000, seed)
    opened = _open(spec, "images", sample, split)
    if not isinstance(opened, ImageSet):
        raise InputError(f"{spec!r} is a set of clips; images are needed here.")
    return opened


def open_upload(data: bytes, name: str) -> BiasSet:
    """Open an uploaded zip or Parquet file in the sandbox, as `open_gallery` does.

    Args:
        data: The file.
        name: The set's name.

    Returns:
        People with the groups that `open_gallery` takes by default.

    Raises:
        InputError: If it isn't such a file, or holds more than `MOST_FILES` images or, after unpacking,
            `MOST_BYTES`.
    """
    fields = sandbox.run(_read_upload, data, title="The file", seconds=8, answer=MOST_BYTES + 2**22)
    return make_people(DatasetRecord(name=name, kind="bias"), of_plain(fields, name, "the file"))


def _read_upload(data: bytes) -> dict[str, Any]:
    files = list_files(partial(io.BytesIO, data), "The file")
    rows = read_files(files, DatasetRecord(name="The file", kind="bias"))
    if rows.count > MOST_FILES:
        raise InputError(f"The file holds {rows.count} images; at most {MOST_FILES} are accepted.")
    return rows.load(MOST_BYTES)


def _open(
    spec: str, kind: str, sample: Sample, split: str, seed: int | None = None, classes: Sequence[str] = ()
) -> AnySet:
    """Open any set. `kind` is the kind of a set that isn't known by name."""
    if spec.startswith("world/"):
        return synthetic.open_set(spec.removeprefix("world/"), sample.max_rows, seed, classes)
    place = _find(spec, kind, split)
    if (record := place.record).kind == "videos" and kind == "images":
        raise InputError(f"{spec!r} is a set of clips; images are needed here.")
    sample = replace(sample, max_rows=sample.max_rows or record.sample or None)
    return _with_warnings(make_set(record, place.open_rows(sample.max_rows), sample, classes))


def _as_text(spec: str | os.PathLike[str]) -> str:
    """Return the name or path as text. Raises InputError for anything else."""
    if not isinstance(spec, str | os.PathLike):
        raise InputError(
            f"Expected a dataset's name or path, or an opened dataset, not {type(spec).__name__}."
        )
    return os.fspath(spec)


def _with_warnings(opened: T) -> T:
    for note in opened.notes:
        log.warning("%s: %s", opened.name, note)
    return opened


def _find(spec: str, kind: str, split: str) -> Local | OnHub:
    """Find a set. `kind` is the kind of a set that isn't known by name."""
    path, _, word = spec.rpartition(":")
    if word.casefold() in SPLITS and (path in ALIASES | SOURCES or Path(path).expanduser().exists()):
        spec, split = path, split or word
    split = SPLITS.get(split.casefold(), split)
    if known := SOURCES.get(ALIASES.get(spec, spec)):
        root = Path(os.environ.get("CCS_DATA") or "/nowhere").expanduser()
        copies = [root / f"{known.name}{suffix}" for suffix in ("", ".parquet", ".zip", ".tar")]
        if local := next(filter(Path.exists, copies), None):
            return Local(known, split, local)
        if known.hub is None:
            instruction = f"put a local copy in $CCS_DATA/{known.name} ({known.verified})"
            raise InputError(f"{known.name!r} is not on the Hub; {instruction}.")
        return OnHub(known, split)
    if (local := Path(spec).expanduser()).exists():
        name = local.resolve().name if local.is_dir() else local.stem
        return Local(DatasetRecord(name=as_text(name), kind=kind), split, local)
    address = _HUB_ID.fullmatch(spec)
    if not address or ".." in spec or spec.startswith("."):
        known_names = "" if "/" in spec or local.suffix else f" ({', '.join(SOURCES)})"
        sources = f"a folder, a zip, tar, or Parquet file, a known dataset{known_names}, world/..."
        raise InputError(f"{spec[:300]!r} does not exist. Give {sources}, or a Hub id (owner/name:split).")
    prefix, hub, config, word = address.groups("")
    name, usual = spec if prefix else hub, "train" if kind == "images" else ""
    record = DatasetRecord(name=name, kind=kind, hub=hub, config=config or None, split=usual, large=True)
    record = replace(record, untrusted=bool(prefix))
    return OnHub(record, split or SPLITS.get(word.casefold(), word))
