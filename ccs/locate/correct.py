"""Locate-Then-Correct (arXiv 2505.17425): heads that lead to biased answers more often than to others.

The source contrasts occupations with a counterpart and splits the pictures of the disadvantaged group into
those answered wrongly and rightly. Faces without an occupation have no right answer. So here, for each of the
ten pairs of prompts whose answers differ most between groups, the pictures of the group that gets one answer
most often are split into those that get it (the biased answer) and those that do not. As in the source, only
the head counts that contributes most to the given answer over the other one.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from ccs.locate.base import Evidence, Scores, by_head

PAIRS = 10


def locate_then_correct(evidence: Evidence) -> Scores:
    """The head's share of first places for biased answers less that for others; mean over pairs."""
    embedded, direct = evidence.seen
    cosines, codes = embedded @ evidence.prompts.T, evidence.codes
    pairs = []
    for one, other in combinations(range(len(evidence.prompts)), 2):
        chosen = cosines[:, one] > cosines[:, other]
        shares = np.array([chosen[codes == group].mean() for group in range(codes.max() + 1)])
        pairs.append((float(np.ptp(shares)), one, other, int(shares.argmax())))
    found = []
    for gap, one, other, group in sorted(pairs, reverse=True)[:PAIRS]:
        own = codes == group
        biased = cosines[own, one] > cosines[own, other]
        toward = direct[own] @ (evidence.prompts[one] - evidence.prompts[other])
        first = np.where(biased[:, None], toward, -toward).argmax(axis=1)
        counts = [np.bincount(first[side], minlength=direct.shape[1]) for side in (biased, ~biased)]
        wrong, right = (count / max(1, count.sum()) for count in counts)
        if gap > 0:
            found.append(wrong - right)
    return by_head(evidence, np.mean(found, axis=0) if found else np.zeros(direct.shape[1]))
