"""Methods of finding the heads that carry a bias, each a function of the same evidence (`base.Evidence`)."""

from collections.abc import Mapping

from ccs.locate import ablation, chance, correct, experts, patching, searching, text, vectors
from ccs.locate.base import Evidence as Evidence
from ccs.locate.base import Method

SEARCH = "search"

METHODS: Mapping[str, Method] = {
    "CCS high first": text.ccs_high,
    "CCS low first": text.ccs_low,
    "label People": text.label,
    "TEXTSPAN, texts of the groups": text.group_texts,
    "concept activation vectors": vectors.concept_vectors,
    "Locate-Then-Correct": correct.locate_then_correct,
    "expert heads": experts.experts,
    "direct effect": ablation.direct,
    "total effect": ablation.total,
    "activation patching": patching.patching,
    "patching by gradient": patching.gradient,
    SEARCH: searching.search,
    "random": chance.random,
}
