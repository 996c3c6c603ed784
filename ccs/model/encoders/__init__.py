"""Families of encoders whose heads are known, recognized by their parts and not by their names.

The `decompose` of each family returns the `Parts` of a module, or None for a module of another family. A
module of no family, or with an unsupported part, is refused with the reason. `ccs.register_encoder` adds a
family.
"""

from collections.abc import Callable
from typing import Any

from ccs.errors import InputError
from ccs.model.encoders import openclip, timm_vit
from ccs.model.encoders.parts import UnsupportedPart
from ccs.model.encoders.readouts import Parts
from ccs.model.structure import unwrapped

REGISTERED: list[tuple[Callable[[Any], bool], Callable[[Any], Parts]]] = []
"""The families of `ccs.register_encoder`, the newest first: `matches` and `decompose`."""


def decompose_registered(module: Any) -> Parts | None:
    """Return the parts of an image encoder of a registered family; None for other modules."""
    decompose = next((decompose for matches, decompose in REGISTERED if matches(module)), None)
    return None if decompose is None else decompose(module)


def decompose_image_encoder(visual: Any) -> Parts:
    """Return the parts of an image encoder.

    Raises:
        InputError: If it can't be decomposed by head, with the reason.
    """
    try:
        for family in (decompose_registered, openclip.decompose, timm_vit.decompose):
            parts: Parts | None = family(unwrapped(visual))
            if parts is not None:
                return parts
        raise UnsupportedPart("it isn't built of known layers of attention heads")
    except UnsupportedPart as reason:
        raise _refusal("image", getattr(visual, "trunk", visual), reason) from None


def decompose_text_encoder(clip: Any) -> tuple[Parts, openclip.ReadAt]:
    """Return the parts of a model's text encoder, and the function that finds the token that is read.

    Raises:
        InputError: If it can't be decomposed by head, with the reason.
    """
    try:
        return openclip.decompose_texts(clip)
    except UnsupportedPart as reason:
        raise _refusal("text", getattr(clip, "text", clip), reason) from None


def _refusal(encoder: str, module: Any, reason: UnsupportedPart) -> InputError:
    return InputError(
        f"The {encoder} encoder {type(module).__name__} can't be decomposed by head because {reason}."
    )
