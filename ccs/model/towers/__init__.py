"""The families of image towers that can be taken apart, recognized by what they are built of.

`take_apart` of each family makes `Parts` of open_clip's module, or None of a module of another family.
A module of no family, or with a part that is not supported, is refused with the reason.
"""

from __future__ import annotations

from typing import Any

from ccs.errors import InputError
from ccs.model.towers import eva, openclip, timm_vit
from ccs.model.towers.parts import Unknown
from ccs.model.towers.readouts import Parts


def take_apart(visual: Any) -> Parts:
    """The parts of a tower. Raises InputError for one that cannot be taken apart by head, with the reason."""
    inner = getattr(visual, "trunk", visual)
    try:
        for family in (openclip, timm_vit, eva):
            parts: Parts | None = family.take_apart(visual)
            if parts is not None:
                return parts
        raise Unknown("it is built of no layers of attention heads that are known here")
    except Unknown as reason:
        raise InputError(
            f"The image tower {type(inner).__name__} cannot be taken apart by head because {reason}."
        ) from None
