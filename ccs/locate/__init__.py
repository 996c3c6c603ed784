"""Methods of finding the heads that carry a bias, each a function of the same evidence (`base.Evidence`).

`METHODS` has them by name:

    >>> DEFAULT in METHODS, len(METHODS)
    (True, 20)

`GRID` has every pair of what is done to a head and the statistic that says what changed (`ablation`); five of
them are published methods, and stand in `METHODS` under their names.
"""

from collections.abc import Mapping

import numpy as np

from ccs.locate import contributions, patching, selection, text
from ccs.locate.ablation import INTERVENTIONS, STATISTICS, fall
from ccs.locate.base import Evidence as Evidence
from ccs.locate.base import Method, Scores, by_head

SEARCH = "search"
RANDOM = "random"
DEFAULT = "learned mask"
"""The method that ranks first on the benchmark, which `clip-ccs localize` uses unless told otherwise."""


def random(evidence: Evidence) -> Scores:
    """A random number per head, seeded by the seed and the model's weights, so that models differ."""
    weights = int(evidence.model.weights_hash[:8], 16)
    rng = np.random.default_rng([evidence.seed, weights])
    return by_head(evidence, rng.random(len(evidence.model.heads)))


PUBLISHED: Mapping[str, str] = {
    "direct/MaxSkew": "direct effect",
    "direct mean/MaxSkew": "direct effect, mean",
    "zero/MaxSkew": "total effect",
    "mean/MaxSkew": "total effect, mean",
    "resample/signed lean": "activation patching",
}
"""Pairs of the grid that have a name of their own."""
METHODS: Mapping[str, Method] = {
    "CCS high first": text.ccs_high,
    "CCS low first": text.ccs_low,
    "label People": text.label,
    "TEXTSPAN, texts of the groups": text.group_texts,
    "concept activation vectors": text.concept_vectors,
    "mechanistic audit": text.audit,
    "Head Pursuit": text.pursuit,
    "SITH": text.singular_vectors,
    "Locate-Then-Correct": contributions.locate_then_correct,
    "expert heads": contributions.experts,
    **{name: fall(*pair.split("/")) for pair, name in PUBLISHED.items()},
    "patching by gradient": patching.gradient,
    "patching by integrated gradients": patching.integrated,
    DEFAULT: selection.learned,
    SEARCH: selection.search,
    RANDOM: random,
}

GRID: Mapping[str, Method] = {
    f"{intervention}/{statistic}": fall(intervention, statistic)
    for intervention in INTERVENTIONS
    for statistic in STATISTICS
}
