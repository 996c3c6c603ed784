"""The interface of mitigations: evidence in, what was fitted out.

>>> away = Affine.without(np.array([[1.0, 0.0]]))
>>> away(np.array([[0.6, 0.8]]))    # what lies along the direction is gone, the rest is of unit length
array([[0., 1.]], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccs.heads import HeadSet
from ccs.locate.base import Evidence
from ccs.metrics.stats import Floats

Units = NDArray[np.float32]
Map = Callable[[Units], Units]
"""From unit embeddings [n, d] to unit embeddings [n, d]."""


@dataclass(frozen=True, eq=False)
class Affine:
    """An affine map of unit embeddings, whose results are made unit again. matrix [d, d], shift [d] or 0."""

    matrix: Floats
    shift: Floats | float = 0.0

    def __call__(self, units: Units) -> Units:
        moved = units @ self.matrix.T + self.shift
        lengths = np.linalg.norm(moved, axis=1, keepdims=True)
        return np.asarray(moved / np.maximum(lengths, 1e-12), np.float32)

    @property
    def linear(self) -> bool:
        """True where nothing is added, so that an embedding's length does not matter."""
        return not np.any(self.shift)

    @classmethod
    def without(cls, directions: Floats) -> Affine:
        """The orthogonal projection that takes away the span of these directions [k, d]."""
        basis = span(directions)
        return cls(np.eye(basis.shape[1]) - basis.T @ basis)


@dataclass(frozen=True, eq=False)
class Fitted:
    """What is done to a model. heads: off, or what becomes of them. images, texts: maps of the embeddings of
    all images and of all texts; None leaves them.
    """

    heads: HeadSet = field(default_factory=HeadSet)
    images: Map | None = None
    texts: Map | None = None

    @property
    def where(self) -> str:
        """Where it acts, in words."""
        names = {"heads": self.heads, "image embeddings": self.images, "text embeddings": self.texts}
        return ", ".join(name for name, part in names.items() if part) or "nowhere"

    def on_images(self, units: Any) -> Units:
        """Image embeddings [n, d] mapped."""
        return np.asarray(units, np.float32) if self.images is None else self.images(units)

    def on_texts(self, units: Any) -> Units:
        """Text embeddings [n, d] mapped."""
        return np.asarray(units, np.float32) if self.texts is None else self.texts(units)


Mitigation = Callable[[Evidence], Fitted]


def span(directions: Floats) -> Floats:
    """An orthonormal basis [k, d] of what these directions [n, d] span, without what is rounding."""
    _, sizes, basis = np.linalg.svd(np.asarray(directions, np.float64), full_matrices=False)
    return np.asarray(basis[sizes > 1e-6 * max(float(sizes.max(initial=0)), 1e-12)])


def name_embeddings(evidence: Evidence) -> Floats:
    """Each group's texts, their mean made unit [groups, d], in the order of the groups' codes."""
    every = [evidence.model.embed_texts(list(evidence.names[group])).mean(axis=0) for group in evidence.names]
    return np.stack([one / np.linalg.norm(one) for one in every]).astype(np.float64)
