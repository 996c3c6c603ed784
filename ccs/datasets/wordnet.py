"""Names of ImageNet's classes for data sets that give WordNet ids, from the lists timm and open_clip ship."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from ccs.errors import InputError


@cache
def _names() -> dict[str, str]:
    import open_clip

    ids = files("timm.data").joinpath("_info/imagenet_synsets.txt").read_text(encoding="utf-8").split()
    return dict(zip(ids, open_clip.IMAGENET_CLASSNAMES, strict=True))


def class_names(ids: Sequence[str]) -> tuple[str, ...]:
    """open_clip's name of each class ("n01440764" -> "tench"); InputError for an id that is not among the
    1,000.
    """
    unknown = [wnid for wnid in ids if wnid not in _names()]
    if unknown:
        raise InputError(f"{unknown[0]!r} is not the WordNet id of one of ImageNet's 1,000 classes.")
    return tuple(_names()[wnid] for wnid in ids)
