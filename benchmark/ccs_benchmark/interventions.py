"""Rank heads by the effect of an intervention on a statistic of the bias.

A method is a pair of an intervention and a statistic. All pairs are possible:

    >>> sorted(INTERVENTIONS)
    ['direct', 'direct mean', 'mean', 'resample', 'zero']
    >>> sorted(STATISTICS)
    ['MaxSkew', 'logit gap', 'score gap', 'signed score gap']

Three interventions replace a head's output in the forward pass, so that later layers react: by zero, by its
mean over the people at each position, or by its output for a person of another group (`resample`, known as
activation patching: Vig et al. 2020). Zero can be far from typical outputs; the mean removes only differences
between people (Wang et al. 2022, arXiv 2211.00593; Zhang and Nanda 2024, arXiv 2309.16042). The two direct
interventions subtract the head's contribution, or its difference from the mean, only from the embedding.

MaxSkew depends on the top of each ranking. The group score gap (`ccs.metrics.ranking`) and the logit gap
depend on group means over all people. The signed score gap measures a change along each ranking's original
direction.
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
    """Embed the people with each head ablated in the forward pass."""
    return evidence.singles


def mean(evidence: Evidence) -> Iterable[Embeddings]:
    """Embed the people with each head's output replaced by its mean over them in the forward pass."""
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
    """Subtract each head's contribution from the embeddings."""
    return _subtract(*evidence.seen)


def direct_mean(evidence: Evidence) -> Iterable[Embeddings]:
    """Replace each head's contribution to the embeddings by its mean."""
    whole, parts = evidence.seen
    return _subtract(whole, parts - parts.mean(axis=0))


def _subtract(whole: Embeddings, parts: Embeddings) -> Iterable[Embeddings]:
    """Return unit embeddings [n, d] without each head's part [n, heads, d] in turn."""
    remainders = (whole.astype(np.float64) - parts[:, row] for row in range(parts.shape[1]))
    return (unit(embedded, "embeddings without a head").astype(np.float32) for embedded in remainders)


def score_gap(evidence: Evidence, embedded: Embeddings) -> float:
    """Return the rankings' group score gap.

    Args:
        evidence: The half that the method sees.
        embedded: The people's embeddings [n, d].
    """
    return evidence.task.score_gap(embedded)


def logit_gap(evidence: Evidence, embedded: Embeddings) -> float:
    """Return the mean logit gap.

    Args:
        evidence: The half that the method sees.
        embedded: The people's embeddings [n, d].
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
    """Score heads by the reduction of a statistic under an intervention on each.

    Args:
        evidence: The half that the method sees.
        intervention: A name in INTERVENTIONS.
        statistic: A name in STATISTICS.
    """
    return drop(evidence, INTERVENTIONS[intervention](evidence), STATISTICS[statistic])


def between_extremes(means: Tensor) -> Tensor:
    """Return the squared gap between the most and the least preferred group [prompts, groups]."""
    return (means.amax(dim=1) - means.amin(dim=1)).square().mean()


SQUARES = {"score gap": between_groups, "logit gap": between_extremes}
"""Statistics that gates can be trained to lower."""


def gates(evidence: Evidence, statistic: str) -> Scores:
    """Score heads by how far the learned mask closes their gates when it lowers a statistic.

    Args:
        evidence: The half that the method sees.
        statistic: A name in SQUARES.
    """
    return learned_mask(evidence, SQUARES[statistic])


LIMITS = Limits(max_loss=1.0, max_candidates=8, min_reduction=0.05)
"""No limit on accuracy: the search looks for carriers, not for heads that can be spared."""


def search(evidence: Evidence) -> Scores:
    """Rank the heads of the search's path first, then all others by their reduction of the gap."""
    singles = [HeadSet([head]) for head in evidence.model.heads]
    gaps = [evidence.task.score_gap(embeddings) for embeddings in evidence.singles]
    alone = [MeasuredSet(s, math.nan, math.nan, value) for s, value in zip(singles, gaps, strict=True)]
    path = search_greedily(evidence.model, evidence.task, alone, LIMITS)
    start = path[0].score_gap
    scores = by_head(evidence, [1 - value / start if start else 0.0 for value in gaps])
    for step, (before, after) in enumerate(pairwise(path)):
        scores[next(iter(after.heads - before.heads))] = 1.0 + LIMITS.max_heads - step
    return scores
