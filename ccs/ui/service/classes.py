"""Classes to ask about photographs: the names of well-known sets, so that nobody has to type them."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

IMAGENET = "ImageNet-1k"


def set_names() -> tuple[str, ...]:
    """The sets whose classes can be asked about."""
    return (*_read(), IMAGENET)


@cache
def named(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The classes of a set and its template; ImageNet's are those that open_clip uses."""
    if name == IMAGENET:
        from open_clip import IMAGENET_CLASSNAMES

        return tuple(dict.fromkeys(IMAGENET_CLASSNAMES)), ("a photo of a {}",)
    about = _read()[name]
    return tuple(about["classes"].split(", ")), (about["template"],)


@cache
def _read() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(
        files(__package__).joinpath("classes.json").read_text("utf-8")
    )
    return found
