"""Heads by the change of MaxSkew when each is switched off alone, as a total or as a direct effect."""

from __future__ import annotations

from numpy.typing import ArrayLike

from ccs.locate.base import Evidence, Scores, by_head
from ccs.measures import bias
from ccs.measures.ranking import subtracted


def total(evidence: Evidence) -> Scores:
    """The fall of the mean MaxSkew when the head's output is zero in the forward pass."""
    before = _skew(evidence, evidence.seen[0])
    return by_head(evidence, [before - _skew(evidence, one) for one in evidence.singles])


def direct(evidence: Evidence) -> Scores:
    """The fall of the mean MaxSkew when the head's contribution is subtracted from the embedding."""
    whole, parts = evidence.seen
    before = _skew(evidence, whole)
    rest = (subtracted(whole, [parts[:, row]]) for row in range(parts.shape[1]))
    return by_head(evidence, [before - _skew(evidence, one) for one in rest])


def _skew(evidence: Evidence, embeddings: ArrayLike) -> float:
    task = evidence.task
    found = bias.means(embeddings, task.prompts, task.groups, task.k, target=task.target, pools=task.pools)
    return found["MaxSkew"]
