"""Texts that name the groups of an attribute, for the methods that start from texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_TEMPLATES = {
    "gender": ("a {}", "a photo of a {}"),
    "skin tone": ("a woman with {} skin", "a man with {} skin"),
}
_OTHERS = ("a {} person", "a photo of a {} person")
_WORDS = {"male": "man", "female": "woman"}


def group_names(attribute: str, groups: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Group -> texts that name it, such as "a woman with dark skin"."""
    templates = _TEMPLATES.get(attribute, _OTHERS)
    words = {group: _WORDS.get(group.lower(), group.lower()) for group in groups}
    return {group: tuple(one.replace("{}", word) for one in templates) for group, word in words.items()}
