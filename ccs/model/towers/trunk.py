"""Activations as they enter the upper layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Trunk:
    """Activations [n, T, W] as they enter `layer`, shared by all plans that touch no earlier layer."""

    tokens: Tensor
    layer: int

    @classmethod
    def joined(cls, parts: Sequence[Trunk]) -> Trunk:
        """One trunk from those of one or more batches."""
        return cls(torch.cat([part.tokens for part in parts]), parts[0].layer)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Trunk:
        return Trunk(self.tokens[rows], self.layer)
