"""Mean and second moment of every head's contribution, over any number of images in fixed memory.

A head that is read at the CLS token writes to at most d + 3 directions of the embedding space (its d values,
and its shares of a bias and of ln_post's mean and bias; see Decomposition.basis), so a (d + 3) x (d + 3)
matrix per head is all that TEXTSPAN needs from the images x D matrix of its contributions. Through a pool of
P heads there are P (d + 1) directions, but never more than D. Sums are float64 and add up: batches, processes
and machines merge by `+`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ccs.errors import InputError
from ccs.heads import HeadSet

if TYPE_CHECKING:
    from ccs.model.side import Side

Arrays = Sequence[np.ndarray] | np.ndarray
"""One array for each head."""


@dataclass(frozen=True, eq=False, repr=False)
class Moments:
    """Sums over `count` images, for each head in its own r coordinates, in the order of `heads`.

    total: [r] and products: [r, r] of each head, float64. basis: [r, D] float32; coordinates @ basis is a
    head's contribution to the unit image embedding. head_dim: the number of directions that a head's values
    can reach, the largest of all heads (Decomposition.rank). model: the weights' hash. `+` adds the
    moments of other images; InputError where they are another model's.

        >>> from ccs import load
        >>> Moments.empty(load("organism")).count
        0
    """

    model: str
    heads: HeadSet
    head_dim: int
    count: int
    total: Arrays
    products: Arrays
    basis: Arrays

    def __repr__(self) -> str:
        return f"<Moments of {self.count} images, {len(self.heads)} heads of the model {self.model[:12]}>"

    @classmethod
    def empty(cls, model: Side, heads: HeadSet | None = None) -> Moments:
        """Moments of no image, for `model.heads` or the heads given; an empty shard adds these."""
        heads = model.heads if heads is None else heads
        model.encoder.require(heads)
        basis = [model.encoder.basis(head).cpu().numpy() for head in heads]
        return cls(
            model=model.weights_hash,
            heads=heads,
            head_dim=max((model.encoder.rank(head) for head in heads), default=0),
            count=0,
            total=[np.zeros(len(rows)) for rows in basis],
            products=[np.zeros((len(rows), len(rows))) for rows in basis],
            basis=basis,
        )

    def __add__(self, other: Moments) -> Moments:
        """The moments of both sets of images. Raises InputError for another model or other heads."""
        if not isinstance(other, Moments):
            return NotImplemented
        if (self.model, self.heads) != (other.model, other.heads):
            raise InputError("Moments of different models or heads cannot be added.")
        return replace(
            self,
            count=self.count + other.count,
            total=[a + b for a, b in zip(self.total, other.total, strict=True)],
            products=[a + b for a, b in zip(self.products, other.products, strict=True)],
        )

    def sums(self) -> dict[str, np.ndarray]:
        """`total` [r] and `products` [r, r] by head, and the number of images [1], for `plus_sums`."""
        named = {"total": self.total, "products": self.products}
        arrays = {f"{name}.{row}": one for name, rows in named.items() for row, one in enumerate(rows)}
        return {**arrays, "count": np.array([self.count])}

    def plus_sums(self, arrays: Mapping[str, np.ndarray]) -> Moments:
        """The moments with the `sums` of other images added, whose shapes are those of `sums`."""
        total, products = (
            [arrays[f"{name}.{row}"] for row in range(len(self.heads))] for name in ("total", "products")
        )
        return self + replace(self, count=int(arrays["count"][0]), total=total, products=products)

    def second(self, row: int) -> np.ndarray:
        """Second moment, not centered, of the coordinates of the head in that row, float64 [r, r]."""
        return np.asarray(self.products[row] / self.count)

    def covariance(self, row: int) -> np.ndarray:
        """Covariance (divided by n) of the coordinates of the head in that row, float64 [r, r]."""
        self.require(2)
        mean = self.total[row] / self.count
        return self.second(row) - np.outer(mean, mean)

    def variance(self) -> np.ndarray:
        """Total variance of each head's contribution, the trace of its covariance: float64 [heads]."""
        found = np.empty(len(self.heads))
        for row, rows in enumerate(self.basis):
            basis = rows.astype(np.float64)
            found[row] = (self.covariance(row) * (basis @ basis.T)).sum()
        return np.maximum(found, 0)

    def require(self, images: int) -> None:
        """Raise InputError if fewer images than this have been seen."""
        if self.count < images:
            raise InputError(f"At least {images} images are needed for a head's moments, not {self.count}.")


def collect_moments(model: Side, batches: Iterable[Any], heads: HeadSet | None = None) -> Moments:
    """The moments of batches of images (lists of images, or pixels [n, 3, s, s]), in one pass in float32.

    model: what `ccs.load` returns; its `texts`, with lists of texts, for the heads of the text encoder.
    heads: those to collect, `model.heads` by default. Memory grows neither with the number of images nor with
    the size of a batch, which is split if necessary. Wrap `batches` in tqdm to see how far it is. Raises
    InputError for a head that the model lacks.

        >>> from ccs import load, open_images
        >>> model = load("organism")
        >>> moments = collect_moments(model, [list(open_images("world", 20).images)])
        >>> moments.count, len(moments.heads)
        (20, 24)
    """
    moments = Moments.empty(model, heads)
    count = 0
    for batch in batches:
        for _, part in model.batches(batch):
            readout = model.encoder.embed_and_read(part, heads=moments.heads)[1]
            for row, head in enumerate(moments.heads):
                z = model.encoder.coordinates(readout, head).cpu().numpy().astype(np.float64)
                moments.total[row][...] += z.sum(0)
                moments.products[row][...] += z.T @ z
            count += len(part)
    return replace(moments, count=count)
