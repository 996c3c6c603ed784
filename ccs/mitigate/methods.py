"""The mitigations by name."""

from __future__ import annotations

from collections.abc import Mapping

from ccs.locate.base import Evidence
from ccs.mitigate import dimensions, directions, heads, residual
from ccs.mitigate.base import Fitted, Mitigation

NOTHING = "nothing"


def nothing(evidence: Evidence) -> Fitted:
    """The model as it is."""
    return Fitted()


METHODS: Mapping[str, Mitigation] = {
    NOTHING: nothing,
    "heads off": heads.located,
    "heads of high CCS off": heads.consistent,
    "as many at random off": heads.random,
    "learned gates": heads.gates,
    "heads at their mean": heads.at_mean,
    "heads at prototypes": heads.at_prototype,
    "projection of group means": directions.means,
    "LEACE": directions.leace,
    "groups' texts from texts": directions.names_from_texts,
    "groups' texts from images": directions.names_from_images,
    "closed form": directions.closed_form,
    "CLIP-clip": dimensions.clip_clip,
    "SFID": dimensions.sfid,
    "DeAR's residual": residual.dear,
}

UNLABELED = frozenset(
    {NOTHING, "heads of high CCS off", "groups' texts from texts", "groups' texts from images", "closed form"}
)
"""Those that need nobody's group."""
SHARED = frozenset(
    {"heads off", "as many at random off", "learned gates", "heads at their mean", "heads at prototypes"}
)
"""Those that begin with one ranking of heads, which is made once."""
