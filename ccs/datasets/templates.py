"""Prompt templates of zero-shot classification, as published with CLIP; `{}` is the class.

Source: data/prompts.md of openai/CLIP for CIFAR, Food-101, Country-211 and Oxford-Pets; the 80 of ImageNet
are those open_clip ships. The study uses these, with one difference: see
`photographs.OXFORD_PETS_FIRST_WORD`.
"""

from __future__ import annotations

from functools import cache

_KINDS = ("", "blurry ", "black and white ", "low contrast ", "high contrast ", "bad ", "good ")

CIFAR: tuple[str, ...] = tuple(
    template
    for article, sizes in (("a", ("a small", "a big")), ("the", ("the small", "the big")))
    for template in (
        *(f"a {kind}photo of {article} {{}}." for kind in _KINDS),
        *(f"a photo of {size} {{}}." for size in sizes),
    )
)
FOOD: tuple[str, ...] = ("a photo of {}, a type of food.",)
PETS: tuple[str, ...] = ("a photo of a {}, a type of pet.",)
COUNTRY: tuple[str, ...] = (
    "a photo i took in {}.",
    "a photo i took while visiting {}.",
    "a photo from my home country of {}.",
    "a photo from my visit to {}.",
    "a photo showing the country of {}.",
)
PLAIN: tuple[str, ...] = ("a photo of a {}.",)


@cache
def imagenet() -> tuple[str, ...]:
    """The 80 templates of ImageNet, from open_clip."""
    import open_clip

    return tuple(template("{}") for template in open_clip.OPENAI_IMAGENET_TEMPLATES)
