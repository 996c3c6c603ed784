"""Single dimensions of the embedding that tell groups: dropped, or set to a constant."""

from __future__ import annotations

import numpy as np

from ccs.locate.base import Evidence
from ccs.mitigate.base import Affine, Fitted

DROPPED = 0.2
"""The share of dimensions that CLIP-clip drops; its authors try several."""
IMPUTED = 0.1
"""The share of dimensions that SFID replaces: about its 50 of 512, from memory."""
UNSURE = 0.7
"""Images whose most likely group the forest gives less than this are unsure; SFID's value from memory."""
TREES = 100


def clip_clip(evidence: Evidence) -> Fitted:
    """CLIP-clip (Wang et al. 2021, arXiv 2109.05433): images and texts lose the dimensions of highest mutual
    information with the groups.
    """
    from sklearn.feature_selection import mutual_info_classif

    told = mutual_info_classif(evidence.units, evidence.codes, random_state=evidence.seed)
    kept = np.ones(len(told))
    kept[np.argsort(-told)[: round(DROPPED * len(told))]] = 0
    both = Affine(np.diag(kept))
    return Fitted(images=both, texts=both)


def sfid(evidence: Evidence) -> Fitted:
    """SFID (Jung et al. 2024, arXiv 2410.07593): the dimensions by which a random forest tells groups are set
    to their mean over images of which it is unsure. On images alone: its text side needs texts with groups.
    """
    from sklearn.ensemble import RandomForestClassifier

    units, codes = evidence.units, evidence.codes
    half = np.random.default_rng([evidence.seed, 12]).permutation(len(units)) % 2 == 0
    forest = RandomForestClassifier(TREES, random_state=evidence.seed).fit(units[half], codes[half])
    sure = forest.predict_proba(units[~half]).max(axis=1)
    unsure = units[~half][sure < max(UNSURE, np.quantile(sure, 0.1))]  # the least sure, where all are sure
    replaced = np.argsort(-forest.feature_importances_)[: round(IMPUTED * units.shape[1])]
    kept, shift = np.ones(units.shape[1]), np.zeros(units.shape[1])
    kept[replaced] = 0
    shift[replaced] = unsure.mean(axis=0)[replaced]
    return Fitted(images=Affine(np.diag(kept), shift))
