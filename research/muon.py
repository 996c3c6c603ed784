"""Muon (Jordan et al. 2024): orthogonalized momentum for matrices and convolutions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class Muon(torch.optim.Optimizer):
    """Muon for matrices and convolutions.

    `torch.optim.Muon` takes only matrices. This version treats a convolution as a matrix [out, rest], and
    each third of a weight with three times as many rows as columns (queries, keys, values) as one matrix.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float, momentum: float, weight_decay: float) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take one step of orthogonalized momentum."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
                update = parameter.grad.lerp(state["momentum"], group["momentum"]).flatten(1)
                rows, columns = update.shape
                update = orthogonal(update.view(3, columns, columns) if rows == 3 * columns else update[None])
                scale = max(1.0, update.shape[1] / columns) ** 0.5
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(update.reshape(parameter.shape), alpha=-group["lr"] * scale)


def orthogonal(matrices: Tensor, steps: int = 5) -> Tensor:
    """Bring all singular values of matrices near one, by Newton-Schulz steps.

    Args:
        matrices: Matrices [g, rows, columns].
        steps: Number of steps.
    """
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    orthogonalized: Tensor = x.mT if tall else x
    return orthogonalized
