"""The types of evaluation sets, whatever their source (the Hub, a folder, the drawn world).

Images are lazy sequences: `images[i]` decodes image i, `len(images)` costs nothing. The order is fixed, so
labels and groups have the same index as their image. Every set can be pickled, for a run's other processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from PIL import Image

from ccs.errors import InputError

T = TypeVar("T")


class Lazy(Sequence[T]):
    """A sequence whose items are made from their keys on every access and not kept."""

    def __init__(self, make: Callable[[Any], T], keys: Sequence[Any]) -> None:
        self._make, self._keys = make, keys

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Lazy(self._make, self._keys[index])
        return self._make(self._keys[index])


@dataclass(frozen=True, kw_only=True, repr=False)
class ImageSet:
    """Images without labels. `fingerprint` changes with any image and their order; `skipped`: what could not
    be read.

    `digests`: uint8 [images, 32], the SHA-256 of each image's file, by which images are known that two sets
    share; None if there are no files.
    """

    name: str
    images: Sequence[Image.Image]
    fingerprint: str
    source: str
    skipped: tuple[str, ...] = ()
    digests: np.ndarray | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {len(self.images):,} images>"


@dataclass(frozen=True, kw_only=True, repr=False)
class MaskSet(ImageSet):
    """Images of one thing each. `masks`: of the same sizes, white where the thing is and black elsewhere."""

    masks: Sequence[Image.Image]


@dataclass(frozen=True, kw_only=True, repr=False)
class ClassificationSet(ImageSet):
    """Images with one class each. `labels`: int64 [images], index into `classes`. A template holds `{}` where
    the class goes. `subsets`: name -> classes that are also scored among themselves.
    """

    labels: np.ndarray
    classes: tuple[str, ...]
    templates: tuple[str, ...]
    subsets: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, repr=False)
class RetrievalSet:
    """Clips (or images: clips of one frame) with one or more captions each."""

    name: str
    clips: Sequence[Sequence[Image.Image]]
    captions: tuple[tuple[str, ...], ...]
    fingerprint: str
    source: str
    skipped: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {len(self.clips):,} clips>"


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

    def own_pools(self, occupations: Sequence[str]) -> np.ndarray | None:
        """The images that each occupation ranks, bool [occupations, images]; None for all. InputError."""
        if self.pools is None:
            return None
        if absent := sorted(set(occupations) - set(self.pools)):
            raise InputError(
                f"{self.name} has no image of {', '.join(absent)}, and each occupation ranks its own images. "
                "Rank one pool of all images instead."
            )
        return np.array([self.pools == occupation for occupation in occupations])
