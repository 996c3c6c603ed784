"""What an evaluation set is, wherever it comes from (the Hub, a folder, the drawn world).

Images are lazy sequences: `images[i]` decodes image i, `len(images)` costs nothing. Order is fixed, so labels
and groups stand at the same index as their image.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

import numpy as np
from PIL import Image

from ccs.errors import InputError

T = TypeVar("T")


class Lazy(Sequence[T]):
    """A sequence whose items are made from their keys when they are asked for; none is kept."""

    def __init__(self, make: Callable[[Any], T], keys: Sequence[Any]) -> None:
        self._make, self._keys = make, keys

    def __len__(self) -> int:
        return len(self._keys)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Lazy[T]: ...
    def __getitem__(self, index: int | slice) -> T | Lazy[T]:
        if isinstance(index, slice):
            return Lazy(self._make, self._keys[index])
        return self._make(self._keys[index])


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """Images without labels: what moments are collected from.

    `fingerprint` changes when any image or their order changes; `source` says where they come from;
    `skipped` names what could not be read.
    """

    name: str
    images: Sequence[Image.Image]
    fingerprint: str
    source: str
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ClassificationSet(ImageSet):
    """Images with one class each. `labels`: int64 [images], index into `classes`.

    A template holds `{}` where the class goes. `subsets` names groups of classes that are also scored alone,
    among themselves (CIFAR-10's animals and objects).
    """

    labels: np.ndarray
    classes: tuple[str, ...]
    templates: tuple[str, ...]
    subsets: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RetrievalSet:
    """Clips (or images: clips of one frame) with one or more captions each."""

    name: str
    clips: Sequence[Sequence[Image.Image]]
    captions: tuple[tuple[str, ...], ...]
    fingerprint: str
    source: str
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BiasSet(ImageSet):
    """Images of people, each with its group in one or more attributes, and the prompts that rank them.

    `groups`: attribute -> str array [images]. `k`: attribute -> cut-off of the ranking.
    A template holds `{}` where the occupation goes.
    `pools`: str array [images], the occupation whose prompt alone ranks the image; None where every prompt
    ranks them all. `units`: int64 array [images], the same number for images that differ in nothing but
    their group and are therefore resampled together; None where each image stands for itself.
    """

    groups: Mapping[str, np.ndarray]
    k: Mapping[str, int]
    occupations: tuple[str, ...]
    templates: tuple[str, ...]
    pools: np.ndarray | None = None
    units: np.ndarray | None = None

    def own_pools(self, occupations: Sequence[str]) -> np.ndarray | None:
        """Which images each occupation ranks, bool [occupations, images]; None where each ranks all of them.

        Raises InputError for an occupation that no image shows, where occupations have pools of their own.
        """
        if self.pools is None:
            return None
        if absent := sorted(set(occupations) - set(self.pools)):
            raise InputError(
                f"{self.name} has no image of {', '.join(absent)}, and each occupation ranks its own images. "
                "Rank one pool of all images instead."
            )
        return np.array([self.pools == occupation for occupation in occupations])
