"""Datasets and galleries from any source, and the records of the known datasets (known_sets.toml).

Images are lazy sequences: `images[i]` decodes image i, and `len(images)` decodes nothing. Their order is
fixed, so an image, its label, and its groups have the same index. Sets can be pickled, for other processes.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, ClassVar, TypeVar

import numpy as np
from PIL import Image

from ccs.errors import InputError

MOST_SKIPPED = 0.01
"""The share of images that may be unreadable unless the caller allows more."""
T = TypeVar("T")


@dataclass(frozen=True, eq=False, repr=False)
class Lazy(Sequence[T]):
    """A sequence that makes each item from its key at every access, without a cache."""

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
    """Fields of all sets.

    `fingerprint` changes with any image or clip, and with their order. `skipped`: unusable images, each with
    the reason. `notes`: remarks on how the source was read, such as ignored files or merged names.
    """

    name: str
    fingerprint: str
    source: str
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    _items: ClassVar[str] = "images"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {len(getattr(self, self._items)):,} {self._items}>"

    def require_readable(self, skip_unreadable: bool) -> None:
        """Raise InputError if more than 1% of the images can't be read, unless they are to be skipped."""
        skipped, whole = self.skipped, len(getattr(self, self._items)) + len(self.skipped)
        if len(skipped) > MOST_SKIPPED * whole and not skip_unreadable:
            problem = (
                f"{len(skipped)} of the {whole} {self._items} of {self.name} cannot be used ({skipped[0]})"
            )
            advice = "fix or remove them, or leave them out with --skip-unreadable (skip_unreadable=True)"
            raise InputError(f"{problem}: {advice}.")


@dataclass(frozen=True, kw_only=True, repr=False)
class ImageSet(BaseSet):
    """Images without labels.

    `digests`: uint8 [images, 32], the SHA-256 of each image's file, which identifies images that two sets
    share; None if the images have no files.
    """

    images: Sequence[Image.Image]
    digests: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class ClassificationSet(ImageSet):
    """Images with one class each.

    `labels`: int64 [images], index into `classes`. `{}` in a template stands for the class. `subsets`: name
    -> numbers of classes that are also scored among themselves. `groups`: column -> str array [images],
    groups of images other than their class, such as the place in Waterbirds.
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
    _items: ClassVar[str] = "clips"


AnySet = ImageSet | RetrievalSet


@dataclass(frozen=True, kw_only=True, repr=False)
class BiasSet(ImageSet):
    """Images of people, each with its group in one or more attributes, and the prompts that rank them.

    `groups`: attribute -> str array [images]. `k`: attribute -> cut-off of the ranking. `{}` in a template
    stands for the occupation. `pools`: str array [images], the only occupation whose prompt ranks the image;
    None if every prompt ranks all images. `units`: int64 array [images], equal numbers for images that differ
    only in their group and are therefore resampled together; None if each image is resampled alone.
    """

    groups: Mapping[str, np.ndarray]
    k: Mapping[str, int]
    occupations: tuple[str, ...]
    templates: tuple[str, ...]
    pools: np.ndarray | None = None
    units: np.ndarray | None = None

    @property
    def main(self) -> str:
        """The default attribute: gender, or else the first."""
        return "gender" if "gender" in self.groups else next(iter(self.groups))


# Known datasets -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DatasetRecord:
    """The description of a dataset, available before the dataset is opened.

    Attributes:
        kind: "classification", "videos", "bias", or "images".
        hub, config, split, revision: Its address on the Hub; without `hub`, a local copy is needed. A run
            pins the commit of the revision when it begins.
        image, label: Its columns.
        names: The source of class names: "column" (the labels themselves), "wordnet", or "file".
        names_file: A file in the repository with one class name per line.
        first_word: Whether a class is the first word of its label.
        joined: Whether the words of a class are joined by underscores in prompts.
        renames: Class or group -> its name here.
        templates: The name of its templates.
        subsets: Name -> classes that are also scored among themselves.
        annotations, frames: The file with captions of videos, and frames per video.
        groups, k: Attribute -> column, and attribute -> cut-off.
        rows, class_count: The expected numbers of rows and classes; 0 if unknown.
        approximate: Whether `rows` is rounded.
        listed: The authors' file that lists the images of the split.
        label_in_name: Whether the class is in the file name, as in the authors' archive.
        gigabytes: The approximate size of the download.
        large: Whether only a part is fetched if only a part is needed.
        untrusted: Whether it is read in the sandbox.
        sample: The number of images drawn by default; 0 for all.
        verified: The way in which the id and the columns were checked.
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
        """Whether this is the record of a known dataset."""
        return SOURCES.get(self.name) is self

    def require_recorded(self, source: str, count: int, recorded: int, unit: str = "images") -> None:
        """Check that a copy of a known dataset is complete.

        Args:
            source: The copy, in messages.
            count: The number of images, classes, or clips in the copy.
            recorded: The number in the record; 0 if it isn't known.
            unit: A noun for what is counted.

        Raises:
            InputError: If the numbers differ.
        """
        if self.known and not self.approximate and count and recorded and count != recorded:
            known = f"{self.title} {recorded:,}: it is another set or layout (docs/datasets.md)"
            raise InputError(f"{source!r} has {count:,} {unit}, but {known}.")

    @property
    def address(self) -> str:
        """Its address on the Hub: id, configuration, and split."""
        return " ".join(filter(None, (self.hub or "local copy", self.config, self.split)))


_FIELDS: dict[str, Any] = tomllib.loads(files("ccs.data").joinpath("known_sets.toml").read_text("utf-8"))
_TEMPLATES = _FIELDS.pop("templates")
SOURCES: dict[str, DatasetRecord] = {
    name: DatasetRecord(name=name, **{**_FIELDS.get(fields.pop("like", ""), {}), **fields})
    for name, fields in _FIELDS.items()
}
ALIASES = {"imagenet": "imagenet-val", "fairface": "fairface-1.25"}


def templates(name: str) -> tuple[str, ...]:
    """Return the templates with this name in known_sets.toml."""
    if name == "imagenet":
        import open_clip

        return tuple(template("{}") for template in open_clip.OPENAI_IMAGENET_TEMPLATES)
    return tuple(_TEMPLATES[name])
