"""Methods of finding the heads that carry a bias, each a function of the same evidence (`base.Evidence`)."""

from collections.abc import Mapping

from ccs.locate import (
    ablation,
    audit,
    chance,
    correct,
    experts,
    mask,
    patching,
    pursuit,
    searching,
    text,
    weights,
)
from ccs.locate.base import Evidence as Evidence
from ccs.locate.base import Method

SEARCH = "search"
RANDOM = "random"
DEFAULT = "learned mask"
"""The method that ranks first on the benchmark, which `clip-ccs localize` uses unless told otherwise."""

METHODS: Mapping[str, Method] = {
    "CCS high first": text.ccs_high,
    "CCS low first": text.ccs_low,
    "label People": text.label,
    "TEXTSPAN, texts of the groups": audit.group_texts,
    "concept activation vectors": audit.concept_vectors,
    "mechanistic audit": audit.audit,
    "Head Pursuit": pursuit.pursuit,
    "SITH": weights.weights,
    "Locate-Then-Correct": correct.locate_then_correct,
    "expert heads": experts.experts,
    "direct effect": ablation.direct,
    "direct effect, mean": ablation.direct_mean,
    "total effect": ablation.total,
    "total effect, mean": ablation.total_mean,
    "activation patching": patching.patching,
    "patching by gradient": patching.gradient,
    "patching by integrated gradients": patching.integrated,
    DEFAULT: mask.learned,
    SEARCH: searching.search,
    RANDOM: chance.random,
}
