"""Heads by the change of MaxSkew when each is switched off alone, as a total or as a direct effect."""

from __future__ import annotations

from ccs.locate.base import Evidence, Scores, by_head
from ccs.measures.ranking import subtracted


def total(evidence: Evidence) -> Scores:
    """The fall of the mean MaxSkew when the head's output is zero in the forward pass."""
    before = evidence.task.max_skew(evidence.seen[0])
    return by_head(evidence, [before - evidence.task.max_skew(one) for one in evidence.singles])


def direct(evidence: Evidence) -> Scores:
    """The fall of the mean MaxSkew when the head's contribution is subtracted from the embedding."""
    whole, parts = evidence.seen
    before = evidence.task.max_skew(whole)
    rest = (subtracted(whole, [parts[:, row]]) for row in range(parts.shape[1]))
    return by_head(evidence, [before - evidence.task.max_skew(one) for one in rest])
