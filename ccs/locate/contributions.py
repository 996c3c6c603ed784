"""Heads by what their contributions tell apart: biased answers from others, or one group from another.

Locate-Then-Correct (arXiv 2505.17425) looks for heads that lead to biased answers more often than to others.
The source contrasts occupations with a counterpart and splits the pictures of the disadvantaged group into
those answered wrongly and rightly. Faces without an occupation have no right answer. So here, for each of the
ten pairs of prompts whose answers differ most between groups, the pictures of the group that gets one answer
most often are split into those that get it (the biased answer) and those that do not. As in the source, only
the head counts that contributes most to the given answer over the other one.

Expert heads ("Debiasing CLIP with neural interventions", ECIR 2026) are those by which a linear probe, fitted
to each head's output at the CLS token of each picture, tells the groups apart.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import balanced_accuracy_score, log_loss
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from ccs.errors import InputError
from ccs.locate.base import Evidence, Scores, by_head

PAIRS, FOLDS = 10, 5


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


def experts(evidence: Evidence) -> Scores:
    """Cross-validated balanced accuracy of each head's probe; ties are broken by its log loss."""
    codes = evidence.codes
    sizes = np.bincount(codes)
    if len(sizes) < 2 or sizes.min() < 2:
        raise InputError("A probe of groups needs two of them or more, with two people each in either half.")
    folds = StratifiedKFold(min(FOLDS, int(sizes.min())), shuffle=True, random_state=evidence.seed)
    found = {}
    for row, head in enumerate(evidence.model.heads):
        # A head's contribution lies in a few dimensions of its own; only in these is a probe well posed.
        parts = evidence.seen[1][:, row].astype(np.float64)
        _, _, directions = np.linalg.svd(parts - parts.mean(axis=0), full_matrices=False)
        inside = parts @ directions[: evidence.model.tower.rank(head)].T
        probe = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        odds = cross_val_predict(probe, inside, codes, cv=folds, method="predict_proba")
        right = balanced_accuracy_score(codes, odds.argmax(axis=1))
        found[head] = float(right - 1e-4 * min(log_loss(codes, odds), 10.0))
    return found
