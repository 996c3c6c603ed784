"""Mean and second moment of what every head contributes, collected over any number of images in fixed memory.

A head writes to at most d + 3 directions of the embedding space (its d values, and its shares of a bias and
of ln_post's mean and bias; see ImageTower.basis), so a (d + 3) x (d + 3) matrix per head holds everything
that TEXTSPAN asks of the images x D matrix of its contributions. Sums are float64 and add up: batches,
processes and machines merge by `+`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ccs.errors import InputError
from ccs.files import atomic_write
from ccs.heads import HeadSet

if TYPE_CHECKING:
    from ccs.model.model import Images, Model

_FORMAT = "clip-ccs moments 1"


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over `count` images, for each head in its own coordinates, r = head_dim + 3 of them.

    total: [heads, r] and products: [heads, r, r], float64, in the order of `heads`. basis: [heads, r, D]
    float32; coordinates @ basis is a head's contribution to the unit image embedding. model: the weights'
    hash.
    """

    model: str
    heads: HeadSet
    head_dim: int
    count: int
    total: np.ndarray
    products: np.ndarray
    basis: np.ndarray

    @classmethod
    def empty(cls, model: Model, heads: HeadSet | None = None) -> Moments:
        """No image yet, for the heads of `model.heads` or those given. What an empty shard adds."""
        heads = model.heads if heads is None else heads
        model.tower.require(heads)
        basis = [model.tower.basis(head).cpu().numpy() for head in heads]
        r = model.head_dim + 3
        return cls(
            model=model.weights_hash,
            heads=heads,
            head_dim=model.head_dim,
            count=0,
            total=np.zeros((len(heads), r)),
            products=np.zeros((len(heads), r, r)),
            basis=np.stack(basis) if basis else np.zeros((0, r, model.dim), np.float32),
        )

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of both sets of images. Raises InputError for another model or other heads."""
        if not isinstance(other, Moments):
            return NotImplemented
        if (self.model, self.heads) != (other.model, other.heads):
            raise InputError("Moments of different models or heads cannot be added.")
        total, products = self.total + other.total, self.products + other.products
        return replace(self, count=self.count + other.count, total=total, products=products)

    def mean(self) -> np.ndarray:
        """Mean contribution of each head, float64 [heads, D]."""
        self.require(1)
        mean: np.ndarray = np.einsum("hr,hrd->hd", self.total / self.count, self.basis.astype(np.float64))
        return mean

    def covariance(self) -> np.ndarray:
        """Covariance (divided by n) of each head's coordinates, float64 [heads, r, r]."""
        self.require(2)
        mean = self.total / self.count
        covariance: np.ndarray = self.products / self.count - mean[:, :, None] * mean[:, None, :]
        return covariance

    def variance(self) -> np.ndarray:
        """Total variance of each head's contribution, the trace of its covariance: float64 [heads]."""
        basis = self.basis.astype(np.float64)
        gram = basis @ basis.transpose(0, 2, 1)
        variance: np.ndarray = np.maximum((self.covariance() * gram).sum((1, 2)), 0)
        return variance

    def require(self, images: int) -> None:
        """Raise InputError if fewer images than this have been seen."""
        if self.count < images:
            raise InputError(f"At least {images} images are needed for a head's moments, not {self.count}.")

    def save(self, path: str | Path) -> None:
        """Write a safetensors file atomically."""
        from safetensors.numpy import save_file

        about = {
            "format": _FORMAT,
            "model": self.model,
            "heads": str(self.heads),
            "settings": json.dumps({"head_dim": self.head_dim, "count": self.count}),
        }
        arrays = {"total": self.total, "products": self.products, "basis": self.basis}
        with atomic_write(Path(path)) as temporary:
            save_file(arrays, temporary, about)

    @classmethod
    def load(cls, path: str | Path) -> Moments:
        """Read what `save` wrote. Raises InputError for any other file."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "np") as file:
                about = file.metadata() or {}
                if about.get("format") != _FORMAT:
                    raise InputError(f"{path} does not hold moments of heads ({_FORMAT}).")
                arrays = {name: file.get_tensor(name) for name in ("total", "products", "basis")}
        except FileNotFoundError:
            raise InputError(f"There is no file {path} to read moments from.") from None
        except (SafetensorError, OSError) as error:
            raise InputError(f"{path} cannot be read as moments of heads: {error}") from None
        return cls(
            model=about["model"],
            heads=HeadSet.parse(about["heads"]),
            **json.loads(about["settings"]),
            **arrays,
        )


def collect_moments(model: Model, batches: Iterable[Images], heads: HeadSet | None = None) -> Moments:
    """One pass over batches of images (lists of images, or pixels [n, 3, s, s]), always in float32.

    heads: those to collect, `model.heads` by default. Memory does not grow with the number of images, nor
    with the size of a batch, which is cut up if need be.
    """
    moments = Moments.empty(model, heads)
    total, products, count = moments.total, moments.products, 0
    for batch in batches:
        for _, part in model.batches(batch):
            readout = model.tower.embed_and_read(part)[1]
            z = model.tower.coordinates(readout, moments.heads).cpu().numpy().astype(np.float64)
            z = z.transpose(1, 0, 2)  # [heads, n, r]
            total += z.sum(1)
            products += z.transpose(0, 2, 1) @ z
            count += z.shape[1]
    return replace(moments, total=total, products=products, count=count)
