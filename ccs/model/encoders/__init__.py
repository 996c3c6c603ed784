"""The families of encoders that can be taken apart, recognized by what they are built of.

`take_apart` of each family makes `Parts` of open_clip's module, or None of a module of another family.
A module of no family, or with a part that is not supported, is refused with the reason.
"""

from __future__ import annotations

from typing import Any

from ccs.errors import InputError
from ccs.model.encoders import openclip, timm_vit
from ccs.model.encoders.parts import Unknown
from ccs.model.encoders.readouts import Parts


def take_apart(visual: Any) -> Parts:
    """Return the parts of an encoder.

    Raises:
        InputError: If it can't be decomposed by head, with the reason.
    """
    inner = getattr(visual, "trunk", visual)
    try:
        for family in (openclip, timm_vit):
            parts: Parts | None = family.take_apart(visual)
            if parts is not None:
                return parts
        raise Unknown("it is built of no layers of attention heads that are known here")
    except Unknown as reason:
        raise _refused("image", inner, reason) from None


def take_texts_apart(clip: Any) -> tuple[Parts, openclip.ReadAt]:
    """The parts of a model's text encoder, and where its texts are read; InputError as from `take_apart`."""
    try:
        return openclip.take_texts_apart(clip)
    except Unknown as reason:
        raise _refused("text", getattr(clip, "text", clip), reason) from None


def _refused(encoder: str, module: Any, reason: Unknown) -> InputError:
    return InputError(
        f"The {encoder} encoder {type(module).__name__} cannot be taken apart by head because {reason}."
    )
