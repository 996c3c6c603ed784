"""Sets of pictures of people with their groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ccs.datasets.source import CARD, Source
from ccs.errors import InputError

# FairFace's seven races merged into the study's six: East and Southeast Asian are one.
RACES_SIX: Mapping[str, str] = {
    "Black": "Black",
    "East Asian": "Asian",
    "Indian": "Indian",
    "Latino_Hispanic": "Latino",
    "Middle Eastern": "Middle Eastern",
    "Southeast Asian": "Asian",
    "White": "White",
}

FAIRFACE = Source(
    name="fairface-1.25",
    title="FairFace, padding 1.25",
    kind="bias",
    hub="HuggingFaceM4/FairFace",
    config="1.25",
    split="validation",
    groups={"race": "race", "race (seven)": "race", "gender": "gender"},
    renames=RACES_SIX,
    k={"race": 900, "race (seven)": 900, "gender": 900},
    rows=10_954,
    licence="CC BY 4.0",
    study="Does not say which padding. East Asian and Southeast Asian are one group, as in the study. "
    "Its race figures are faulty (docs/reproduction.md).",
    verified=f"{CARD}: configurations 0.25 and 1.25, 10,954 rows; that the rows stand in the order of the "
    "published CSV was not verified",
)
FAIRFACE_TIGHT = Source(
    name="fairface-0.25",
    title="FairFace, padding 0.25",
    kind="bias",
    hub="HuggingFaceM4/FairFace",
    config="0.25",
    split="validation",
    groups=FAIRFACE.groups,
    renames=FAIRFACE.renames,
    k=FAIRFACE.k,
    rows=10_954,
    licence="CC BY 4.0",
    study=FAIRFACE.study,
    verified=FAIRFACE.verified,
)
SOCIAL_COUNTERFACTUALS = Source(
    name="socialcounterfactuals",
    title="SocialCounterfactuals (race x gender)",
    kind="bias",
    hub="Intel/SocialCounterfactuals",
    split="train",
    groups={"race": "race", "gender": "gender"},
    k={"race": 12, "gender": 4},
    rows=171_000,
    large=True,
    licence="MIT",
    study="Ranks one pool per occupation: the pictures whose file name carries it; here the pool is all that "
    "vary race and gender. Its figures are score ties, not skew (docs/reproduction.md).",
    verified="viewer (171k rows, one split); columns a1, a1_type, a2, a2_type and caption from code that "
    "reads them; the exact spelling of the groups was not verified",
)

PEOPLE = (FAIRFACE, FAIRFACE_TIGHT, SOCIAL_COUNTERFACTUALS)


def merge_groups(groups: Iterable[str], definition: Mapping[str, str]) -> list[str]:
    """Groups renamed, and so merged, by a definition such as RACES_SIX; InputError for one that it lacks."""
    names = [str(name) for name in groups]
    for name in names:
        if name not in definition:
            raise InputError(f"The group {name!r} is not defined; the groups are {', '.join(definition)}.")
    return [definition[name] for name in names]
