"""Datasets and galleries, whatever their source, and the records of those known by name (known_sets.toml).

Images are lazy sequences: `images[i]` decodes image i, `len(images)` costs nothing. The order is fixed, so
labels and groups have the same index as their image. Every set can be pickled, for a run's other processes.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, TypeVar

import numpy as np
from PIL import Image

from ccs.errors import InputError

MOST_SKIPPED = 0.01
"""The share of images that may be unreadable unless the caller allows more."""
T = TypeVar("T")


@dataclass(frozen=True, eq=False, repr=False)
class Lazy(Sequence[T]):
    """A sequence whose items are made from their keys on every access and not kept."""

    make: Callable[[Any], T]
    keys: Sequence[Any]

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Lazy(self.make, self.keys[index])
        return self.make(self.keys[index])


@dataclass(frozen=True, kw_only=True, repr=False)
class BaseSet:
    """What all sets have.

    `fingerprint` changes with any image or clip and their order. `skipped`: images that cannot be used, each
    with the reason. `notes`: how the source was read, such as files that are no images, or merged names.
    """

    name: str
    fingerprint: str
    source: str
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {len(getattr(self, self._items)):,} {self._items}>"

    @property
    def _items(self) -> str:
        return "images" if hasattr(self, "images") else "clips"

    def require_readable(self, skip_unreadable: bool) -> None:
        """Raise InputError if more than 1% of the images can't be read, unless they are to be skipped."""
        skipped, whole = self.skipped, len(getattr(self, self._items)) + len(self.skipped)
        if len(skipped) > MOST_SKIPPED * whole and not skip_unreadable:
            raise InputError(
                f"{len(skipped)} of the {whole} images of {self.name} cannot be used (for example "
                f"{skipped[0]}); fix or remove them, or leave them out with --skip-unreadable (in Python, "
                "skip_unreadable=True)."
            )


@dataclass(frozen=True, kw_only=True, repr=False)
class ImageSet(BaseSet):
    """Images without labels.

    `digests`: uint8 [images, 32], the SHA-256 of each image's file, by which images are known that two sets
    share; None if there are no files.
    """

    images: Sequence[Image.Image]
    digests: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class ClassificationSet(ImageSet):
    """Images with one class each.

    `labels`: int64 [images], index into `classes`. A template holds `{}` where the class goes. `subsets`:
    name -> classes that are also scored among themselves. `groups`: column -> str array [images], groups of
    images next to their class, such as the place of Waterbirds.
    """

    labels: np.ndarray
    classes: tuple[str, ...]
    templates: tuple[str, ...]
    subsets: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    groups: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, repr=False)
class RetrievalSet(BaseSet):
    """Clips (or images: clips of one frame) with one or more captions each."""

    clips: Sequence[Sequence[Image.Image]]
    captions: tuple[tuple[str, ...], ...]


AnySet = ImageSet | RetrievalSet


@dataclass(frozen=True, kw_only=True, repr=False)
class BiasSet(ImageSet):
    """Images of people, each with its group in one or more attributes, and the prompts that rank them.

    `groups`: attribute -> str array [images]. `k`: attribute -> cut-off of the ranking. A template holds `{}`
    where the occupation goes. `pools`: str array [images], the only occupation whose prompt ranks the image;
    None if every prompt ranks all images. `units`: int64 array [images], the same number for images that
    differ only in their group and are therefore resampled together; None if each image is its own unit.
    """

    groups: Mapping[str, np.ndarray]
    k: Mapping[str, int]
    occupations: tuple[str, ...]
    templates: tuple[str, ...]
    pools: np.ndarray | None = None
    units: np.ndarray | None = None

    @property
    def main(self) -> str:
        """The attribute that is meant where none is named: gender, or else the first."""
        return "gender" if "gender" in self.groups else next(iter(self.groups))


# Those known by name --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DatasetRecord:
    """The description of an evaluation set, available before it is opened.

    kind: "classification", "videos", "bias" or "images".
    hub, config, split, revision: its place on the Hub; without `hub` a local copy is needed. A run reads the
    commit that the revision is when it begins, and its manifest names it.
    image, label: its columns. names: the source of class names: "column" (the table's own), "wordnet", or
    "file". names_file: a file in the repository with one name per line.
    first_word: classes are the first words of these names.
    joined: the words of a class are joined by underscores.
    renames: class or group -> its name here. templates: the name of the templates.
    annotations, frames: the file with captions of videos, frames per video.
    groups: attribute -> column. k: attribute -> cut-off. rows: the expected number of rows. gigabytes:
    roughly how much is downloaded, for the split alone if it has its own files.
    sample: the number of its images that are drawn by default, if not all.
    large: streamed if only part of it is needed. untrusted: read in the sandbox.
    verified: how the id and the columns were checked.
    """

    name: str
    title: str = ""
    kind: str
    hub: str | None = None
    config: str | None = None
    split: str = ""
    revision: str = "main"
    image: str = "image"
    label: str = "label"
    names: str = "column"
    names_file: str = ""
    first_word: bool = False
    joined: bool = False
    renames: Mapping[str, str] = field(default_factory=dict)
    templates: str = "plain"
    subsets: Mapping[str, Sequence[str]] = field(default_factory=dict)
    annotations: str = ""
    frames: int = 12
    groups: Mapping[str, str] = field(default_factory=dict)
    k: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    approximate: bool = False
    class_count: int = 0
    listed: str = ""
    label_in_name: bool = False
    gigabytes: float = 0.0
    large: bool = False
    untrusted: bool = False
    sample: int = 0
    license: str = ""
    verified: str = ""

    @property
    def known(self) -> bool:
        """True for a set that is known by name."""
        return SOURCES.get(self.name) is self

    def require_recorded(self, source: str, count: int, recorded: int, unit: str = "images") -> None:
        """Check that a copy of a known set has as many images, classes, or clips as the set.

        Args:
            source: The copy, in messages.
            count: The number in the copy.
            recorded: The number in the record; 0 if it isn't known.
            unit: Of what.

        Raises:
            InputError: If the numbers differ.
        """
        if self.known and not self.approximate and count and recorded and count != recorded:
            known = f"{self.title} {recorded:,}: it is another set or layout (docs/datasets.md)"
            raise InputError(f"{source!r} has {count:,} {unit}, but {known}.")

    @property
    def address(self) -> str:
        """Its place on the Hub: id, configuration and split."""
        return " ".join(filter(None, (self.hub or "local copy", self.config, self.split)))


_FIELDS: dict[str, Any] = tomllib.loads(files("ccs.data").joinpath("known_sets.toml").read_text("utf-8"))
_TEMPLATES = _FIELDS.pop("templates")
SOURCES: dict[str, DatasetRecord] = {
    name: DatasetRecord(name=name, **{**_FIELDS.get(fields.pop("like", ""), {}), **fields})
    for name, fields in _FIELDS.items()
}
ALIASES = {"imagenet": "imagenet-val", "fairface": "fairface-1.25"}


def templates(name: str) -> tuple[str, ...]:
    """Return the templates of that name in known_sets.toml."""
    if name == "imagenet":
        import open_clip

        return tuple(template("{}") for template in open_clip.OPENAI_IMAGENET_TEMPLATES)
    return tuple(_TEMPLATES[name])
