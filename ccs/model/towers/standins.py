"""Activations as they enter the upper layers, and substitutes for a head's output there."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccs.errors import InputError

STAND_INS = 8
"""Images whose outputs are kept, any of which may stand in for another image."""


@dataclass(frozen=True)
class Trunk:
    """Activations [n, T, W] as they enter `layer`, shared by all plans that touch no earlier layer."""

    tokens: Tensor
    layer: int
    marks: Tensor | None = None
    """[n], the images' `marks`, which decide what stands in for each."""

    @classmethod
    def joined(cls, parts: Sequence[Trunk]) -> Trunk:
        """One trunk from those of one or more batches."""
        known = [part.marks for part in parts if part.marks is not None]
        whole = torch.cat(known) if len(known) == len(parts) else None
        return cls(torch.cat([part.tokens for part in parts]), parts[0].layer, whole)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Trunk:
        return Trunk(self.tokens[rows], self.layer, None if self.marks is None else self.marks[rows])


@dataclass(frozen=True)
class StandIns:
    """Substitutes for heads' outputs, recorded for some images with no head off.

    mean: layer -> [H d], over images and the tokens that the layer computes. kept: layer -> [m, T, H d], of
    some of the images.
    """

    mean: Mapping[int, Tensor]
    kept: Mapping[int, Tensor]

    def of(self, layer: int, ablation: str, others: Tensor | None, values: Tensor) -> Tensor:
        """The substitutes for a layer's values [n, T, H d]."""
        if layer not in self.mean:
            raise InputError(f"No outputs that could replace those of heads in layer {layer} are recorded.")
        found = self.mean[layer] if ablation == "mean" else self.kept[layer][others]
        return found.to(values.device, values.dtype)

    def pick(self, images: Tensor | Trunk) -> Tensor:
        """The kept image that stands in for each: chosen by the image's own mark, so always the same."""
        size = len(next(iter(self.kept.values())))
        return marks(images) % size


def marks(images: Tensor | Trunk) -> Tensor:
    """A number for each image that depends on its pixels alone: [n] int64."""
    if isinstance(images, Trunk):
        return marks(images.tokens) if images.marks is None else images.marks
    return torch.tensor([zlib.crc32(image.numpy().tobytes()) for image in images.cpu()], dtype=torch.long)
