"""Head statistics: mean and second moment of each head's contribution, over any number of images.

A head that is read at the CLS token writes to at most d + 3 directions of the embedding space (its d values,
and its shares of a bias and of the last norm's mean and bias; see `Decomposition.basis`). So TEXTSPAN needs
only a (d + 3) x (d + 3) matrix per head from the images x D matrix of its contributions. Through a pool of P
heads there are P (d + 1) directions, but at most D. Sums are float64 and add up over batches, processes, and
machines.
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
    """Head statistics: sums over `count` images, in r coordinates for each head.

    `+` adds the statistics of other images.

    Attributes:
        model: The hash of the model's weights.
        heads: The heads, in the order of the arrays.
        head_dim: The largest number of directions that a head's values can reach (`Decomposition.rank`).
        count: The number of images.
        total: The sum of each head's coordinates, [r], float64.
        products: The sum of their products, [r, r], float64.
        basis: The directions of the coordinates, [r, D], float32. `coordinates @ basis` is a head's
            contribution to the unit embedding.

    Examples:
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
        """Return the statistics before any image is added.

        Args:
            model: The model.
            heads: The heads, by default `model.heads`.
        """
        heads = model.heads if heads is None else heads
        model.encoder.require_heads(heads)
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
        """Add the statistics of other images; InputError if they are of another model or other heads."""
        if not isinstance(other, Moments):
            return NotImplemented
        if (self.model, self.heads) != (other.model, other.heads):
            raise InputError("Statistics of different models or heads can't be added.")
        return self.plus_sums(other.sums())

    def sums(self) -> dict[str, np.ndarray]:
        """Return `total` [r] and `products` [r, r] by head, and the number of images [1], for `plus_sums`."""
        by_name = {"total": self.total, "products": self.products}
        arrays = {f"{name}.{row}": part for name in by_name for row, part in enumerate(by_name[name])}
        return {**arrays, "count": np.array([self.count])}

    def plus_sums(self, arrays: Mapping[str, np.ndarray]) -> Moments:
        """Return the statistics with the `sums` of other images added."""
        total = [part + arrays[f"total.{row}"] for row, part in enumerate(self.total)]
        products = [part + arrays[f"products.{row}"] for row, part in enumerate(self.products)]
        return replace(self, count=self.count + int(arrays["count"][0]), total=total, products=products)

    def second(self, row: int) -> np.ndarray:
        """Return the second moment, not centered, of the coordinates of the head in a row: float64 [r, r]."""
        return np.asarray(self.products[row] / self.count)

    def covariance(self, row: int) -> np.ndarray:
        """Return the covariance (divided by n) of the coordinates of the head in a row: float64 [r, r]."""
        self.require(2)
        mean = self.total[row] / self.count
        return self.second(row) - np.outer(mean, mean)

    def variance(self) -> np.ndarray:
        """Return the total variance of each head's contribution, the trace of its covariance: [heads]."""
        exact = [basis.astype(np.float64) for basis in self.basis]
        traces = [(self.covariance(row) * (basis @ basis.T)).sum() for row, basis in enumerate(exact)]
        return np.maximum(traces, 0)

    def require(self, images: int) -> None:
        """Raise InputError if there are statistics of fewer images."""
        if self.count < images:
            raise InputError(f"At least {images} images are needed for head statistics, not {self.count}.")


def collect_moments(model: Side, batches: Iterable[Any], heads: HeadSet | None = None) -> Moments:
    """Collect head statistics over batches of images, in one pass in float32.

    Memory grows neither with the number of images nor with the size of a batch, which is split if necessary.

    Args:
        model: A model from `ccs.load`, or its `texts` for the heads of the text encoder.
        batches: Lists of images, or pixels [n, 3, s, s]; lists of texts for `texts`. Wrap them in tqdm for a
            progress bar.
        heads: The heads, by default `model.heads`.

    Returns:
        The statistics, for `textspan`.

    Raises:
        InputError: If the model lacks a head.

    Examples:
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
