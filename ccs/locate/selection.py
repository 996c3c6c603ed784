"""Heads chosen together: a learned mask, and our own search.

Optimized masks were among the best in the Mechanistic Interpretability Benchmark (Mueller et al. 2025, arXiv
2504.13151). Here each head's output is multiplied by a gate in the forward pass, the sigmoid of one parameter
per head, as in Cao et al. 2021 (arXiv 2104.03514) without their noise. All gates are trained at once, so that
the lean, or the gap, falls and few heads close. The search (`ccs.pruning.search`) adds one head at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ccs.heads import Head, HeadSet
from ccs.locate.base import Evidence, Scores, by_head
from ccs.pruning.search import Limits, Point, greedy

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
    heads = list(evidence.model.heads)
    rng = np.random.default_rng([evidence.seed, 7])
    parameters = torch.full((len(heads),), OPEN, requires_grad=True)
    optimizer = torch.optim.Adam([parameters], RATE)
    lowered = SQUARES[statistic]
    with torch.no_grad():
        every = np.arange(len(evidence.people))
        start = float(lowered(_means(evidence, every, torch.ones(len(heads)))))
    rows = np.concatenate([rng.permutation(len(evidence.people)) for _ in range(STEPS)])
    size = min(BATCH, len(evidence.people))
    for step in range(STEPS):
        batch = np.sort(rows[step * size : (step + 1) * size])
        gates = torch.sigmoid(parameters)
        loss = lowered(_means(evidence, batch, gates)) / max(start, 1e-12) + SPARSITY * (1 - gates).mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    return by_head(evidence, (1 - torch.sigmoid(parameters)).tolist())


def _means(evidence: Evidence, rows: np.ndarray, gates: Tensor) -> Tensor:
    """The groups' mean cosines [prompts, groups] of some people [rows], with gates [heads] on the outputs."""
    task, tower = evidence.task, evidence.model.tower
    place = {head: number for number, head in enumerate(evidence.model.heads)}

    def gated(layer: int, passed: Tensor) -> Tensor:
        every = (place.get(Head(layer, number)) for number in range(tower.layers[layer].n_heads))
        factors = torch.stack([torch.ones(()) if own is None else gates[own] for own in every])
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
