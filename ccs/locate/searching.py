"""Our own search (`ccs.search`) as a ranking: sets of heads, measured anew with each further head off."""

from __future__ import annotations

from itertools import pairwise

from ccs.locate.base import Evidence, Scores
from ccs.search import Limits, greedy

STEPS = 8


def search(evidence: Evidence) -> Scores:
    """The heads of the search's path in its order, then all others by the share of the lean each takes."""
    singles, path = greedy(evidence.model, evidence.task, Limits(max_heads=STEPS))
    start = path[0].lean
    found = {next(iter(point.off)): (1 - point.lean / start) if start else 0.0 for point in singles}
    for step, (before, after) in enumerate(pairwise(path)):
        found[next(iter(after.off - before.off))] = 1.0 + STEPS - step
    return found
