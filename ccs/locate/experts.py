"""Expert heads ("Debiasing CLIP with neural interventions", ECIR 2026): those that distinguish groups.

A linear probe is fitted to each head's output at the CLS token of each picture.
"""

from __future__ import annotations

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import balanced_accuracy_score, log_loss
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from ccs.locate.base import Evidence, Scores

FOLDS = 5


def experts(evidence: Evidence) -> Scores:
    """Cross-validated balanced accuracy of each head's probe; ties are broken by its log loss."""
    codes = evidence.codes
    folds = StratifiedKFold(
        min(FOLDS, int(np.bincount(codes).min())), shuffle=True, random_state=evidence.seed
    )
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
