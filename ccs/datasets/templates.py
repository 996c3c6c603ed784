"""Prompt templates of zero-shot classification, as published with CLIP; `{}` is the class.

Source: data/prompts.md of openai/CLIP for CIFAR, Food-101, Country-211 and Oxford-Pets; the 80 of ImageNet
are those open_clip ships. The study uses these, but CIFAR's for Oxford-Pets (`oxford-pets-first-word`).
"""

from __future__ import annotations

_KINDS = ("", "blurry ", "black and white ", "low contrast ", "high contrast ", "bad ", "good ")

_CIFAR: tuple[str, ...] = tuple(
    template
    for article, sizes in (("a", ("a small", "a big")), ("the", ("the small", "the big")))
    for template in (
        *(f"a {kind}photo of {article} {{}}." for kind in _KINDS),
        *(f"a photo of {size} {{}}." for size in sizes),
    )
)
_NAMED: dict[str, tuple[str, ...]] = {
    "plain": ("a photo of a {}.",),
    "cifar": _CIFAR,
    "food": ("a photo of {}, a type of food.",),
    "pets": ("a photo of a {}, a type of pet.",),
    "country": (
        "a photo i took in {}.",
        "a photo i took while visiting {}.",
        "a photo from my home country of {}.",
        "a photo from my visit to {}.",
        "a photo showing the country of {}.",
    ),
}


def templates(name: str) -> tuple[str, ...]:
    """The templates of that name in sets.toml."""
    if name == "imagenet":
        import open_clip

        return tuple(template("{}") for template in open_clip.OPENAI_IMAGENET_TEMPLATES)
    return _NAMED[name]
