"""Methods that find the heads that carry a bias, each a function of an `Evidence`.

`METHODS` has them by name, including those of `ccs.localize`:

    >>> DEFAULT in METHODS, len(METHODS)
    (True, 22)

`GRID` has every pair of an intervention on a head and a statistic of the bias. Nine of them are published
methods, and have their published names in `METHODS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import numpy as np

from ccs.analysis import carriers
from ccs.analysis.carriers import DEFAULT as DEFAULT
from ccs.analysis.evidence import Evidence, Method, Scores, by_head, rank_heads
from ccs_benchmark import contributions, interventions, modified_gradients
from ccs_benchmark.interventions import INTERVENTIONS, STATISTICS, fallen

SEARCH = "search"
RANDOM = "random"


def random(evidence: Evidence) -> Scores:
    """Score heads at random, seeded by the seed and the model's weights."""
    weights = int(evidence.model.weights_hash[:8], 16)
    rng = np.random.default_rng([evidence.seed, weights])
    return by_head(evidence, rng.random(len(evidence.model.heads)))


def ensemble(evidence: Evidence) -> Scores:
    """Rank heads by their mean rank in three methods, which were chosen before the ensemble was scored.

    Ensembles did well in the shared task of the Mechanistic Interpretability Benchmark (arXiv 2510.06811).
    """
    three = ("patching by integrated gradients", "activation patching", DEFAULT)
    places = [
        {head: place for place, head in enumerate(rank_heads(METHODS[name](evidence), evidence.seed))}
        for name in three
    ]
    return {head: -float(np.mean([place_of[head] for place_of in places])) for head in evidence.model.heads}


PUBLISHED: Mapping[str, str] = {
    "direct/MaxSkew": "direct effect",
    "direct mean/MaxSkew": "direct effect, mean",
    "zero/MaxSkew": "total effect",
    "mean/MaxSkew": "total effect, mean",
    "resample/signed score gap": "activation patching",
    "gradient/signed score gap": "patching by gradient",
    "integrated gradients/signed score gap": "patching by integrated gradients",
    "GIM/signed score gap": "GIM",
    "gates/score gap": "learned mask",
}
"""Pairs of the grid that are published methods, and their names."""
_BY_STATISTIC: Mapping[str, tuple[Callable[..., Scores], Iterable[str]]] = {
    **{name: (partial(fallen, intervention=name), STATISTICS) for name in INTERVENTIONS},
    "gradient": (modified_gradients.plain, modified_gradients.DIRECTIONS),
    "integrated gradients": (modified_gradients.integrated, modified_gradients.DIRECTIONS),
    "GIM": (modified_gradients.modified, modified_gradients.DIRECTIONS),
    "gates": (interventions.gates, interventions.SQUARES),
}
"""Intervention -> its method, and the statistics that it supports."""
GRID: Mapping[str, Method] = {
    f"{intervention}/{statistic}": partial(method, statistic=statistic)
    for intervention, (method, statistics) in _BY_STATISTIC.items()
    for statistic in statistics
}
METHODS: Mapping[str, Method] = {
    "CCS high first": contributions.ccs_high,
    "CCS low first": contributions.ccs_low,
    "label People": contributions.label,
    "TEXTSPAN, texts of the groups": contributions.group_texts,
    "concept activation vectors": contributions.concept_vectors,
    "mechanistic audit": contributions.audit,
    "Head Pursuit": contributions.pursuit,
    "SITH": contributions.singular_vectors,
    "Locate-Then-Correct": contributions.locate_then_correct,
    "expert heads": contributions.experts,
    **{name: GRID[pair] for pair, name in PUBLISHED.items()},
    **carriers.METHODS,
    "ensemble of three": ensemble,
    SEARCH: interventions.search,
    RANDOM: random,
}
