"""Heads by the effect of changing them: an intervention on a head, and the statistic that should fall.

A method is a pair of the two, and any intervention goes with any statistic:

    >>> sorted(INTERVENTIONS)
    ['direct', 'direct mean', 'mean', 'resample', 'zero']
    >>> sorted(STATISTICS)
    ['MaxSkew', 'logit gap', 'score gap', 'signed score gap']

In the forward pass, in which later layers react, a head's output becomes zero, its mean over the people
position by position, or its output for a person of another group (`resample`, known as activation patching:
Vig et al. 2020). Zero may lie far from anything that later layers have seen; the mean removes only what
differs between people (Wang et al. 2022, arXiv 2211.00593; Zhang and Nanda 2024, arXiv 2309.16042). The two
direct interventions subtract the head's contribution, or what of it differs from its mean, from the embedding
alone.

MaxSkew looks at the top of each ranking, the group score gap (`ccs.metrics.ranking`) and the logit gap at the
groups' means over all people. The signed score gap counts a change along each ranking's direction before
anything is changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ccs.analysis.carriers import (
    Embeddings,
    Statistic,
    between_groups,
    drop,
    head_outputs,
    in_batches,
    learned_mask,
    mean_max_skew,
    replace_outputs,
    resample,
    signed_score_gap,
)
from ccs.analysis.evidence import Evidence, Scores, by_head
from ccs.analysis.search import Limits, MeasuredSet, search_greedily
from ccs.heads import HeadSet
from ccs.metrics import bias
from ccs.metrics.ranking import unit

Intervention = Callable[[Evidence], Iterable[Embeddings]]
"""The embeddings with each head changed in turn."""


def zero(evidence: Evidence) -> Iterable[Embeddings]:
    """Return the people's embeddings with each head ablated in the forward pass."""
    return evidence.singles


def mean(evidence: Evidence) -> Iterable[Embeddings]:
    """Return them with each head's output at its mean over the people in the forward pass."""
    model, people = evidence.model, evidence.people
    batches = [people[rows] for rows in in_batches(people)]
    with torch.no_grad():
        outputs = (head_outputs(model, batch)[0] for batch in batches)
        sums = [
            {layer: values.sum(0, keepdim=True) for layer, values in by_layer.items()} for by_layer in outputs
        ]
    means = {layer: torch.stack([part[layer] for part in sums]).sum(0) / len(people) for layer in sums[0]}
    return np.concatenate([replace_outputs(model, batch, means) for batch in batches], axis=1)


def direct(evidence: Evidence) -> Iterable[Embeddings]:
    """Return them with each head's contribution subtracted from the embedding."""
    return _subtract(*evidence.seen)


def direct_mean(evidence: Evidence) -> Iterable[Embeddings]:
    """Return them with each head's contribution at its mean in the embedding."""
    whole, parts = evidence.seen
    return _subtract(whole, parts - parts.mean(axis=0))


def _subtract(whole: Embeddings, parts: Embeddings) -> Iterable[Embeddings]:
    """Return unit embeddings [n, d] without each head's part [n, heads, d] in turn."""
    remainders = (whole.astype(np.float64) - parts[:, row] for row in range(parts.shape[1]))
    return (unit(embedded, "embeddings without a head").astype(np.float32) for embedded in remainders)


def score_gap(evidence: Evidence, embedded: Embeddings) -> float:
    """Return the rankings' group score gap.

    Args:
        evidence: the half that the method sees.
        embedded: the people's embeddings [n, d].
    """
    return evidence.task.score_gap(embedded)


def logit_gap(evidence: Evidence, embedded: Embeddings) -> float:
    """Return the mean logit gap.

    Args:
        evidence: the half that the method sees.
        embedded: the people's embeddings [n, d].
    """
    return bias.means(embedded, evidence.task, ("logit gap",))["logit gap"]


INTERVENTIONS: Mapping[str, Intervention] = {
    "zero": zero,
    "mean": mean,
    "resample": resample,
    "direct": direct,
    "direct mean": direct_mean,
}
STATISTICS: Mapping[str, Statistic] = {
    "MaxSkew": mean_max_skew,
    "score gap": score_gap,
    "signed score gap": signed_score_gap,
    "logit gap": logit_gap,
}


def fallen(evidence: Evidence, intervention: str, statistic: str) -> Scores:
    """Score heads by how far a statistic falls under an intervention on each.

    Args:
        evidence: the half that the method sees.
        intervention: a name in INTERVENTIONS.
        statistic: a name in STATISTICS.
    """
    return drop(evidence, INTERVENTIONS[intervention](evidence), STATISTICS[statistic])


def between_extremes(means: Tensor) -> Tensor:
    """Return the squared gap between the most and the least preferred group [prompts, groups]."""
    return (means.amax(dim=1) - means.amin(dim=1)).square().mean()


SQUARES = {"score gap": between_groups, "logit gap": between_extremes}
"""What gates can be trained to lower."""


def gates(evidence: Evidence, statistic: str) -> Scores:
    """Score heads by how far the learned mask closes their gates to lower a statistic.

    Args:
        evidence: the half that the method sees.
        statistic: a name in SQUARES.
    """
    return learned_mask(evidence, SQUARES[statistic])


LIMITS = Limits(max_loss=1.0, max_candidates=8, min_reduction=0.05)
"""No bound on accuracy: the question is which heads carry the bias, not which can be spared."""


def search(evidence: Evidence) -> Scores:
    """Return the heads on the search's path in its order, then all others by their share of the gap."""
    heads = [HeadSet([head]) for head in evidence.model.heads]
    gaps = [evidence.task.score_gap(embeddings) for embeddings in evidence.singles]
    alone = [MeasuredSet(off, math.nan, math.nan, value) for off, value in zip(heads, gaps, strict=True)]
    path = search_greedily(evidence.model, evidence.task, alone, LIMITS)
    start = path[0].score_gap
    scores = by_head(evidence, [1 - value / start if start else 0.0 for value in gaps])
    for step, (before, after) in enumerate(pairwise(path)):
        scores[next(iter(after.heads - before.heads))] = 1.0 + LIMITS.max_heads - step
    return scores
