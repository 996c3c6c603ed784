"""Activation patching: the change of the lean when a head sees somebody of another group.

Each person is paired with one of another group. A head's output for the person, at every token, is replaced
by its output for the other one in the forward pass (Vig et al. 2020; Zhang and Nanda 2024, arXiv 2309.16042),
and the head's score is the resulting fall of the lean (`ccs.measures.ranking`). The gradient approximation
(attribution patching: Nanda 2023; Syed et al. 2023, arXiv 2310.10348) needs one forward and one backward pass
for all heads: the difference of both outputs times the gradient of the lean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccs.heads import Head
from ccs.locate.base import Evidence, Scores, by_head
from ccs.model.tower import Trunk

BATCH = 64
Change = Callable[[int, Tensor], Tensor]


def counterparts(evidence: Evidence) -> NDArray[np.intp]:
    """For each person [n] the index of somebody of another group: all groups in turn, in seeded order."""
    codes, rng = evidence.codes, np.random.default_rng([evidence.seed, 6])
    groups = int(codes.max()) + 1
    members = [rng.permutation(np.flatnonzero(codes == group)) for group in range(groups)]
    place = np.zeros(len(codes), np.intp)
    for own in members:
        place[own] = np.arange(len(own))
    other = (codes + 1 + place % (groups - 1)) % groups
    return np.array([members[o][p % len(members[o])] for o, p in zip(other, place, strict=True)])


def patching(evidence: Evidence) -> Scores:
    """The fall of the lean when the head alone has its output for somebody of another group."""
    tower, heads = evidence.model.tower, list(evidence.model.heads)
    lost = np.zeros(len(heads))
    with torch.no_grad():
        for own, other, toward, rows in _pairs(evidence):
            theirs = _values(evidence, other)
            for layer in sorted({head.layer for head in heads}):
                start = tower.trunk(own, layer)
                for place, head in enumerate(heads):
                    if head.layer != layer:
                        continue
                    d = tower.layers[layer].head_dim
                    columns = slice(head.head * d, (head.head + 1) * d)
                    patched = tower.with_values(start, _swap(layer, columns, theirs[layer]))
                    change = evidence.seen[0][rows] - patched.cpu().numpy()
                    lost[place] += float((change * toward).sum(dtype=np.float64))
    return by_head(evidence, lost)


def gradient(evidence: Evidence) -> Scores:
    """`patching` to first order, with one forward and one backward pass for all heads together."""
    tower, lost = evidence.model.tower, dict.fromkeys(evidence.model.heads, 0.0)
    for own, other, toward, _ in _pairs(evidence):
        with torch.no_grad():
            theirs = _values(evidence, other)
        values: dict[int, Tensor] = {}

        def keep(layer: int, passed: Tensor, values: dict[int, Tensor] = values) -> Tensor:
            values[layer] = passed if passed.requires_grad else passed.requires_grad_()
            return values[layer]

        with torch.enable_grad():
            embedded = tower.with_values(own, keep)
            lean = (embedded * torch.from_numpy(toward).to(embedded.device)).sum()
            slopes = torch.autograd.grad(lean, list(values.values()))
        for (layer, passed), slope in zip(values.items(), slopes, strict=True):
            along = ((passed.detach() - theirs[layer]) * slope).sum(dim=(0, 1))
            by_number = along.reshape(tower.layers[layer].n_heads, -1).sum(dim=1).tolist()
            for number, value in enumerate(by_number):
                lost[Head(layer, number)] += value
    return lost


def _pairs(evidence: Evidence) -> Iterator[tuple[Trunk, Trunk, NDArray[np.float32], slice]]:
    """The people in batches: themselves, their counterparts, the lean's vectors [n, d], and their rows."""
    people, other = evidence.people, counterparts(evidence)
    for start in range(0, len(people), BATCH):
        rows = slice(start, start + BATCH)
        theirs = Trunk(people.tokens[torch.from_numpy(other[rows])], people.layer)
        yield people[rows], theirs, evidence.toward[rows], rows


def _values(evidence: Evidence, images: Trunk) -> dict[int, Tensor]:
    """The heads' outputs for these images by layer: [n, T, W]."""
    found: dict[int, Tensor] = {}

    def keep(layer: int, passed: Tensor) -> Tensor:
        found[layer] = passed
        return passed

    evidence.model.tower.with_values(images, keep)
    return found


def _swap(layer: int, columns: slice, theirs: Tensor) -> Change:
    def change(at: int, passed: Tensor) -> Tensor:
        if at != layer:
            return passed
        passed = passed.clone()
        passed[..., columns] = theirs[..., columns]
        return passed

    return change
