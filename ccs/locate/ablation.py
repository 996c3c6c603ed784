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

MaxSkew looks at the top of each ranking, the lean (`ccs.metrics.ranking`) and the logit gap at the groups'
means over all people. The signed lean counts a change along the direction in which each ranking leans before
anything is changed. `resample` turns a head's part in a lean around rather than taking it away, which the
three others, without a sign, may not see at all.

Heads can also be chosen together. Optimized masks were among the best in the Mechanistic Interpretability
Benchmark (Mueller et al. 2025, arXiv 2504.13151): each head's output is multiplied by a gate, the sigmoid of
one parameter per head, as in Cao et al. 2021 (arXiv 2104.03514) without their noise. All gates are trained at
once, so that the lean, or the gap, falls and few heads close. Our search (`ccs.analysis.search`) adds a head
at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccs.analysis.search import Limits, Point, greedy
from ccs.heads import Head, HeadSet
from ccs.locate.base import Evidence, Scores, by_head, in_batches, pairs, replaced, values_of
from ccs.metrics import bias
from ccs.metrics.ranking import subtracted

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
    kept = (values_of(model, one) for one in batches)
    sums = [{layer: own.sum(0, keepdim=True) for layer, own in one.items()} for one in kept]
    means = {layer: torch.stack([one[layer] for one in sums]).sum(0) / len(people) for layer in sums[0]}
    return np.concatenate([replaced(model, one, means) for one in batches], axis=1)


def resample(evidence: Evidence) -> Iterable[Embeddings]:
    """Each head's output for somebody of another group in the forward pass."""
    model = evidence.model
    found = [replaced(model, own, values_of(model, other)) for own, other, _ in pairs(evidence)]
    return np.concatenate(found, axis=1)


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
    figure, changed = STATISTICS[statistic], INTERVENTIONS[intervention](evidence)
    before = figure(evidence, evidence.seen[0])
    return by_head(evidence, [before - figure(evidence, one) for one in changed])


# Heads chosen together --------------------------------------------------------------------------------------

STEPS, RATE, BATCH = 30, 0.3, 100
OPEN = 2.0
"""The parameters' first value; its sigmoid is 0.88."""
SPARSITY = 1.0
"""Weight of the mean gate's distance from 1, in shares of the square with all gates open."""


SQUARES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "lean": lambda means: (means - means.mean(dim=1, keepdim=True)).square().mean(),
    "logit gap": lambda means: (means.amax(dim=1) - means.amin(dim=1)).square().mean(),
}
"""What gates are trained to lower, from the groups' mean cosines [prompts, groups]."""


def learned(evidence: Evidence, statistic: str = "lean") -> Scores:
    """How far the head's gate has closed at the end of training, 0 to 1."""
    rng = np.random.default_rng([evidence.seed, 7])
    every = np.arange(len(evidence.people))
    rows = np.concatenate([rng.permutation(every) for _ in range(STEPS)])
    size, lowered = min(BATCH, len(every)), SQUARES[statistic]

    def square(gates: Tensor, step: int | None) -> Tensor:
        batch = every if step is None else np.sort(rows[step * size : (step + 1) * size])
        return lowered(_means(evidence, batch, gates))

    return mask(evidence.model.heads, square)


def mask(heads: HeadSet, square: Callable[[Tensor, int | None], Tensor]) -> dict[Head, float]:
    """How far each head's gate has closed, 0 to 1, when gates have been trained to lower a square.

    square: computes it in a step of the training, or of everything (None), from the heads' gates [heads].
    """
    parameters = torch.full((len(heads),), OPEN, requires_grad=True)
    optimizer = torch.optim.Adam([parameters], RATE)
    with torch.no_grad():
        start = float(square(torch.ones(len(heads)), None))
    for step in range(STEPS):
        gates = torch.sigmoid(parameters)
        loss = square(gates, step) / max(start, 1e-12) + SPARSITY * (1 - gates).mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    return dict(zip(heads, (1 - torch.sigmoid(parameters)).tolist(), strict=True))


def _means(evidence: Evidence, rows: np.ndarray, gates: Tensor) -> Tensor:
    """The groups' mean cosines [prompts, groups] of some people [rows], with gates [heads] on the outputs."""
    task, tower = evidence.task, evidence.model.tower
    place = {head: number for number, head in enumerate(evidence.model.heads)}

    def gated(layer: int, passed: Tensor) -> Tensor:
        every = (place.get(Head(layer, number)) for number in range(tower.layers[layer].n_heads))
        factors = torch.stack([torch.ones(()) if one is None else gates[one] for one in every])
        return passed * factors.repeat_interleave(tower.layers[layer].head_dim).to(passed.device)

    codes = evidence.codes[rows]
    shares = (codes == np.arange(codes.max() + 1)[:, None])[None] * np.ones((len(evidence.prompts), 1, 1))
    if task.pools is not None:
        shares = shares * task.pools[:, None, rows]
    shares = shares / np.maximum(shares.sum(axis=2, keepdims=True), 1)
    units = tower.with_values(evidence.people[rows], gated)
    cosines = units @ torch.from_numpy(evidence.prompts).to(units.device).T
    return torch.einsum("pgn,np->pg", torch.from_numpy(shares).to(cosines), cosines)


LIMITS = Limits(max_loss=1.0, screen=8, least=0.05)
"""No bound on accuracy: the question is which heads carry the bias, not which can be spared."""


def search(evidence: Evidence) -> Scores:
    """The heads on the search's path in its order, then all others by the share of the lean each removes."""
    heads = [HeadSet([head]) for head in evidence.model.heads]
    leans = [evidence.task.lean(one) for one in evidence.singles]
    alone = [Point(off, math.nan, math.nan, value) for off, value in zip(heads, leans, strict=True)]
    path = greedy(evidence.model, evidence.task, alone, LIMITS)
    start = path[0].lean
    found = by_head(evidence, [1 - value / start if start else 0.0 for value in leans])
    for step, (before, after) in enumerate(pairwise(path)):
        found[next(iter(after.off - before.off))] = 1.0 + LIMITS.max_heads - step
    return found
