"""Heads by the change of MaxSkew when each is ablated alone, as a total or as a direct effect.

A total effect is measured in the forward pass, in which later layers react; a direct effect by a change of
the embedding alone. The head's output becomes zero, or its mean over the people, position by position. Zero
may lie far from anything that later layers have seen; the mean takes away only what differs between people
(Wang et al. 2022, arXiv 2211.00593; Zhang and Nanda 2024, arXiv 2309.16042).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray

from ccs.locate.base import Evidence, Scores, by_head, in_batches, replaced, values_of
from ccs.measures.ranking import subtracted


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
