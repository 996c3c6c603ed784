"""Heads by what changes without them: what is done to a head, and the statistic that says what changed.

A method is a pair of the two, and any intervention goes with any statistic:

    >>> sorted(INTERVENTIONS), sorted(STATISTICS)
    (['direct', 'direct mean', 'mean', 'resample', 'zero'], ['MaxSkew', 'lean', 'logit gap', 'signed lean'])

In the forward pass, in which later layers react, a head's output becomes zero, its mean over the people
position by position, or its output for somebody of another group (`resample`, known as activation patching:
Vig et al. 2020). Zero may lie far from anything that later layers have seen; the mean takes away only what
differs between people (Wang et al. 2022, arXiv 2211.00593; Zhang and Nanda 2024, arXiv 2309.16042). The two
direct interventions subtract the head's contribution, or what of it differs from its mean, from the embedding
alone.

MaxSkew looks at the top of each ranking, the lean (`ccs.measures.ranking`) and the logit gap at the groups'
means over all people. The signed lean counts a change along the direction in which each ranking leans before
anything is changed. `resample` turns a head's part in a lean around rather than taking it away, which the
three others, without a sign, may not see at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from ccs.locate.base import Evidence, Scores, by_head, in_batches, replaced, values_of
from ccs.measures import bias
from ccs.measures.ranking import subtracted
from ccs.model.tower import Trunk

Embeddings = NDArray[np.float32]
"""Unit embeddings of the people [n, d]."""
Intervention = Callable[[Evidence], Iterable[Embeddings]]
"""The embeddings with each head changed in turn."""
Statistic = Callable[[Evidence, Embeddings], float]


def zero(evidence: Evidence) -> Iterable[Embeddings]:
    """Each head's output at zero in the forward pass."""
    return evidence.singles


def mean(evidence: Evidence) -> Iterable[Embeddings]:
    """Each head's output at its mean over the people in the forward pass."""
    model, people = evidence.model, evidence.people
    batches = [people[rows] for rows in in_batches(people)]
    sums = [
        {layer: own.sum(0, keepdim=True) for layer, own in values_of(model, one).items()} for one in batches
    ]
    means = {layer: torch.stack([one[layer] for one in sums]).sum(0) / len(people) for layer in sums[0]}
    return np.concatenate([replaced(model, one, means) for one in batches], axis=1)


def resample(evidence: Evidence) -> Iterable[Embeddings]:
    """Each head's output for somebody of another group in the forward pass."""
    model, people = evidence.model, evidence.people
    other = torch.from_numpy(counterparts(evidence))
    return np.concatenate(
        [
            replaced(model, people[rows], values_of(model, Trunk(people.tokens[other[rows]], people.layer)))
            for rows in in_batches(people)
        ],
        axis=1,
    )


def direct(evidence: Evidence) -> Iterable[Embeddings]:
    """Each head's contribution subtracted from the embedding."""
    whole, parts = evidence.seen
    return (subtracted(whole, [parts[:, row]]) for row in range(parts.shape[1]))


def direct_mean(evidence: Evidence) -> Iterable[Embeddings]:
    """Each head's contribution at its mean in the embedding."""
    whole, parts = evidence.seen
    apart = parts - parts.mean(axis=0)
    return (subtracted(whole, [apart[:, row]]) for row in range(parts.shape[1]))


INTERVENTIONS: Mapping[str, Intervention] = {
    "zero": zero,
    "mean": mean,
    "resample": resample,
    "direct": direct,
    "direct mean": direct_mean,
}
STATISTICS: Mapping[str, Statistic] = {
    "MaxSkew": lambda evidence, embedded: evidence.task.max_skew(embedded),
    "lean": lambda evidence, embedded: evidence.task.lean(embedded),
    "signed lean": lambda evidence, embedded: float((embedded * evidence.toward).sum(dtype=np.float64)),
    "logit gap": lambda evidence, embedded: bias.means(embedded, evidence.task, ("logit gap",))["logit gap"],
}


def fallen(evidence: Evidence, intervention: str, statistic: str) -> Scores:
    """How far a statistic falls under an intervention on each head."""
    figure = STATISTICS[statistic]
    before = figure(evidence, evidence.seen[0])
    return by_head(
        evidence, [before - figure(evidence, one) for one in INTERVENTIONS[intervention](evidence)]
    )


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
