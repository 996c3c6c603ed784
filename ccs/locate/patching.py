"""Activation patching to first order: what a lean or gap loses when a head sees somebody of another group.

Each person is paired with one of another group. In place of a forward pass for each head (`ablation`'s
`resample`), two approximations score all heads together. The gradient (attribution patching: Nanda 2023;
Syed et al. 2023, arXiv 2310.10348) takes one forward and one backward pass: the difference of both outputs
times the gradient of the statistic. Integrated gradients (EAP-IG: Hanna et al. 2024, arXiv 2403.17806) take
the mean of the gradients at inputs between both. GIM (`ccs.locate.gim`) changes the rules of the gradient.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccs.heads import Head
from ccs.locate import gim
from ccs.locate.ablation import counterparts
from ccs.locate.base import Evidence, Scores, in_batches, values_of
from ccs.model.tower import Trunk

STEPS = 5
"""Inputs on the way from the other person to the own one, as in EAP-IG."""


DIRECTIONS: Mapping[str, Callable[[Evidence], NDArray[np.float32]]] = {
    "signed lean": lambda evidence: evidence.toward,
    "logit gap": lambda evidence: evidence.apart,
}
"""What has a gradient: vectors [n, d] whose products with embeddings, summed, are the statistic. To first
order the lean is the signed lean; MaxSkew has none."""


def gradient(evidence: Evidence, statistic: str = "signed lean") -> Scores:
    """The statistic under `resample` to first order: one forward and one backward pass for all heads."""
    return _by_gradient(evidence, statistic, (1.0,))


def integrated(evidence: Evidence, statistic: str = "signed lean") -> Scores:
    """`gradient`, averaged over STEPS inputs from the other person's to the own."""
    return _by_gradient(evidence, statistic, [step / STEPS for step in range(1, STEPS + 1)])


def modified(evidence: Evidence, statistic: str = "signed lean") -> Scores:
    """`gradient` by the rules of GIM."""
    return _by_gradient(evidence, statistic, (1.0,), by_gim=True)


def _by_gradient(evidence: Evidence, statistic: str, steps: Sequence[float], by_gim: bool = False) -> Scores:
    """Both outputs' difference times the mean gradient; a step is the own share of the input."""
    model, lost = evidence.model, dict.fromkeys(evidence.model.heads, 0.0)
    along_which = DIRECTIONS[statistic](evidence)
    for own, other, rows in _pairs(evidence):
        ours, theirs = values_of(model, own), values_of(model, other)
        for step in steps:
            tokens = own.tokens if step == 1 else torch.lerp(other.tokens, own.tokens, step)
            slopes = _slopes(evidence, Trunk(tokens, own.layer), along_which[rows], by_gim)
            for layer, slope in slopes.items():
                along = ((ours[layer] - theirs[layer]) * slope).sum(dim=(0, 1)) / len(steps)
                by_number = along.reshape(model.tower.layers[layer].n_heads, -1).sum(dim=1).tolist()
                for number, value in enumerate(by_number):
                    if (head := Head(layer, number)) in lost:
                        lost[head] += value
    return lost


def _slopes(
    evidence: Evidence, people: Trunk, toward: NDArray[np.float32], by_gim: bool
) -> dict[int, Tensor]:
    """Layer -> the gradient by the heads' outputs [n, T, H d] of what goes along `toward`."""
    values: dict[int, Tensor] = {}

    def keep(layer: int, passed: Tensor) -> Tensor:
        values[layer] = passed if passed.requires_grad else passed.requires_grad_()
        return values[layer]

    rules = gim.Modified() if by_gim else contextlib.nullcontext()
    with torch.enable_grad(), rules:
        embedded = evidence.model.tower.with_values(people, keep, gim.values if by_gim else None)
        along = (embedded * torch.from_numpy(toward).to(embedded.device)).sum()
        return dict(zip(values, torch.autograd.grad(along, list(values.values())), strict=True))


def _pairs(evidence: Evidence) -> Iterator[tuple[Trunk, Trunk, slice]]:
    """The people in batches: themselves, their counterparts, and their rows."""
    people, other = evidence.people, counterparts(evidence)
    for rows in in_batches(people):
        theirs = Trunk(people.tokens[torch.from_numpy(other[rows])], people.layer)
        yield people[rows], theirs, rows
