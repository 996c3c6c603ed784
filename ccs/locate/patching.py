"""Heads by the change when what each writes is replaced: by zero, by its mean, or by what it writes for
others.

Ablation: the fall of MaxSkew as a total effect, measured in the forward pass, in which later layers react, or
as a direct effect, a change of the embedding alone. The head's output becomes zero, or its mean over the
people, position by position. Zero may lie far from anything that later layers have seen; the mean takes away
only what differs between people (Wang et al. 2022, arXiv 2211.00593; Zhang and Nanda 2024, arXiv 2309.16042).

Activation patching: the fall of the lean (`ccs.measures.ranking`) when a head sees somebody of another group.
Each person is paired with one of another group. A head's output for the person, at every token, is replaced
by its output for the other one in the forward pass (Vig et al. 2020; Zhang and Nanda 2024). Two
approximations score all heads together. The gradient (attribution patching: Nanda 2023; Syed et al. 2023,
arXiv 2310.10348) takes one forward and one backward pass: the difference of both outputs times the gradient
of the lean. Integrated gradients (EAP-IG: Hanna et al. 2024, arXiv 2403.17806) take the mean of the gradients
at inputs between both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccs.heads import Head
from ccs.locate.base import Evidence, Scores, by_head, in_batches, replaced, values_of
from ccs.measures.ranking import subtracted
from ccs.model.tower import Trunk

STEPS = 5
"""Inputs on the way from the other person to the own one, as in EAP-IG."""


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
    lost = np.zeros(len(evidence.model.heads))
    for own, other, toward, rows in _pairs(evidence):
        patched = replaced(evidence.model, own, values_of(evidence.model, other))
        changes = evidence.seen[0][rows] - patched
        lost += [(change * toward).sum(dtype=np.float64) for change in changes]
    return by_head(evidence, lost)


def gradient(evidence: Evidence) -> Scores:
    """`patching` to first order, with one forward and one backward pass for all heads together."""
    return _by_gradient(evidence, (1.0,))


def integrated(evidence: Evidence) -> Scores:
    """`gradient`, averaged over STEPS inputs from the other person's to the own."""
    return _by_gradient(evidence, [step / STEPS for step in range(1, STEPS + 1)])


def _by_gradient(evidence: Evidence, steps: Sequence[float]) -> Scores:
    """Both outputs' difference times the lean's mean gradient; a step is the own share of the input."""
    model, lost = evidence.model, dict.fromkeys(evidence.model.heads, 0.0)
    for own, other, toward, _ in _pairs(evidence):
        ours, theirs = values_of(model, own), values_of(model, other)
        for step in steps:
            tokens = own.tokens if step == 1 else torch.lerp(other.tokens, own.tokens, step)
            for layer, slope in _slopes(evidence, Trunk(tokens, own.layer), toward).items():
                along = ((ours[layer] - theirs[layer]) * slope).sum(dim=(0, 1)) / len(steps)
                by_number = along.reshape(model.tower.layers[layer].n_heads, -1).sum(dim=1).tolist()
                for number, value in enumerate(by_number):
                    if (head := Head(layer, number)) in lost:
                        lost[head] += value
    return lost


def _slopes(evidence: Evidence, people: Trunk, toward: NDArray[np.float32]) -> dict[int, Tensor]:
    """Layer -> the gradient of the lean by the heads' outputs [n, T, H d]."""
    values: dict[int, Tensor] = {}

    def keep(layer: int, passed: Tensor) -> Tensor:
        values[layer] = passed if passed.requires_grad else passed.requires_grad_()
        return values[layer]

    with torch.enable_grad():
        embedded = evidence.model.tower.with_values(people, keep)
        lean = (embedded * torch.from_numpy(toward).to(embedded.device)).sum()
        return dict(zip(values, torch.autograd.grad(lean, list(values.values())), strict=True))


def _pairs(evidence: Evidence) -> Iterator[tuple[Trunk, Trunk, NDArray[np.float32], slice]]:
    """The people in batches: themselves, their counterparts, the lean's vectors [n, d], and their rows."""
    people, other = evidence.people, counterparts(evidence)
    for rows in in_batches(people):
        theirs = Trunk(people.tokens[torch.from_numpy(other[rows])], people.layer)
        yield people[rows], theirs, evidence.toward[rows], rows


def total(evidence: Evidence) -> Scores:
    """The fall of the mean MaxSkew when the head's output is zero in the forward pass."""
    return _fall(evidence, evidence.singles)


def total_mean(evidence: Evidence) -> Scores:
    """The fall of the mean MaxSkew when the head's output is its mean in the forward pass."""
    model, people = evidence.model, evidence.people
    batches = [people[rows] for rows in in_batches(people)]
    sums = [
        {layer: own.sum(0, keepdim=True) for layer, own in values_of(model, one).items()} for one in batches
    ]
    means = {layer: torch.stack([one[layer] for one in sums]).sum(0) / len(people) for layer in sums[0]}
    return _fall(evidence, np.concatenate([replaced(model, one, means) for one in batches], axis=1))


def direct(evidence: Evidence) -> Scores:
    """The fall of the mean MaxSkew when the head's contribution is subtracted from the embedding."""
    whole, parts = evidence.seen
    return _fall(evidence, (subtracted(whole, [parts[:, row]]) for row in range(parts.shape[1])))


def direct_mean(evidence: Evidence) -> Scores:
    """The fall of the mean MaxSkew when the head's contribution is its mean in the embedding."""
    whole, parts = evidence.seen
    apart = parts - parts.mean(axis=0)
    return _fall(evidence, (subtracted(whole, [apart[:, row]]) for row in range(parts.shape[1])))


def _fall(evidence: Evidence, ablated: Iterable[NDArray[np.float32]]) -> Scores:
    """MaxSkew less that of the embeddings [n, d] with each head ablated in turn."""
    before = evidence.task.max_skew(evidence.seen[0])
    return by_head(evidence, [before - evidence.task.max_skew(one) for one in ablated])
