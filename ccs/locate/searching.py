"""Our own search (`ccs.search`) as a ranking of heads."""

from __future__ import annotations

import math
from itertools import pairwise

from ccs.heads import HeadSet
from ccs.locate.base import Evidence, Scores, by_head
from ccs.search import Limits, Point, greedy

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
