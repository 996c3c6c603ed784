"""Names of classes and groups: their spelling, their order, and those of WordNet's ids."""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from ccs.errors import InputError


def tidy(cell: object) -> str:
    """Return a cell as text: entities resolved, Unicode composed, single spaces, whole floats as whole."""
    text = repr(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)
    return " ".join(unicodedata.normalize("NFC", html.unescape(text)).split())


def merge_spellings(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Replace names that are one text to a model by their most frequent spelling.

    Case, spaces, underscores, and hyphens make no difference.

    Returns:
        The spellings, and a note for each name that is merged into another.
    """
    counts = Counter(names)
    spellings: dict[str, str] = {}
    merged: dict[str, str] = {}
    for name in sorted(counts, key=lambda name: (-counts[name], name)):
        text = re.sub(r"_|(?<=\w)-(?=\w)", " ", tidy(name)).casefold()
        merged[name] = spellings.setdefault(" ".join(text.split()), name)
    notes = [f"{name!r} is read as {merged[name]!r}" for name in merged if name and name != merged[name]]
    return [merged[name] for name in names], notes


def are_numbers(names: Iterable[str]) -> bool:
    """Return True if all names are whole numbers."""
    return all(re.fullmatch(r"\d{1,9}", name, re.ASCII) for name in names)


def in_order(names: Iterable[str]) -> list[str]:
    """Sort names: whole numbers by value, others as text."""
    names = list(names)
    return sorted(names, key=lambda name: (int(name), name)) if are_numbers(names) else sorted(names)


def wordnet_names(ids: Sequence[str]) -> list[str]:
    """Return open_clip's class names of WordNet ids ("n01440764": "tench"); InputError for an unknown id."""
    import open_clip
    from timm.data.imagenet_info import ImageNetInfo

    listed = ImageNetInfo().label_names()  # type: ignore[no-untyped-call]
    known = dict(zip(listed, open_clip.IMAGENET_CLASSNAMES, strict=True))
    if unknown := [wordnet_id for wordnet_id in ids if wordnet_id not in known]:
        raise InputError(f"{unknown[0]!r} is not the WordNet id of one of ImageNet's 1,000 classes.")
    return [known[wordnet_id] for wordnet_id in ids]
