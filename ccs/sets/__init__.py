"""Evaluation sets from the Hub and from disk; here those known by name (known_sets.toml)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from ccs.errors import InputError


@dataclass(frozen=True, kw_only=True)
class DatasetRecord:
    """The description of an evaluation set, available before it is opened.

    kind: "classification", "videos", "bias", "images", or "masks" (images with masks of what they show).
    hub, config, split, revision: its place on the Hub; without `hub` a local copy is needed. A run reads the
    commit that the revision is when it begins, and its manifest names it.
    image, label: its columns. names: the source of class names: "column" (the table's own), "wordnet", or a
    file in the repository with one name per line. first_word: classes are the first words of these names.
    joined: the words of a class are joined by underscores.
    renames: class or group -> its name here. templates: the name of the templates.
    annotations, frames: the file with captions of videos, frames per video.
    groups: attribute -> column. k: attribute -> cut-off. rows: the expected number of rows. gigabytes:
    roughly how much is downloaded, for the split alone if it has files of its own.
    excerpt: the number of its rows that are fetched, if not all (`strangers`).
    large: streamed if only part of it is needed. gated: its terms must be accepted on the Hub.
    verified: how the id and the columns were checked.
    """

    name: str
    title: str = ""
    kind: str
    hub: str | None = None
    config: str | None = None
    split: str = "train"
    revision: str = "main"
    image: str = "image"
    label: str = "label"
    names: str = "column"
    first_word: bool = False
    joined: bool = False
    renames: Mapping[str, str] = field(default_factory=dict)
    templates: str = "plain"
    subsets: Mapping[str, Sequence[str]] = field(default_factory=dict)
    annotations: str = ""
    frames: int = 0
    groups: Mapping[str, str] = field(default_factory=dict)
    k: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    gigabytes: float = 0.0
    large: bool = False
    excerpt: int = 0
    licence: str = ""
    gated: bool = False
    verified: str = ""

    @property
    def measured(self) -> bool:
        """True for a whole set that models are measured on, as the study does."""
        return self.kind not in ("images", "masks") and not self.excerpt

    @property
    def address(self) -> str:
        """Its place on the Hub: id, configuration and split."""
        return " ".join(filter(None, (self.hub or "local copy", self.config, self.split)))


_FIELDS: dict[str, Any] = tomllib.loads(files("ccs.sets").joinpath("known_sets.toml").read_text("utf-8"))
_TEMPLATES = _FIELDS.pop("templates")
SOURCES: dict[str, DatasetRecord] = {
    name: DatasetRecord(name=name, **{**_FIELDS.get(fields.pop("like", ""), {}), **fields})
    for name, fields in _FIELDS.items()
}
ALIASES = {"imagenet": "imagenet-val", "fairface": "fairface-1.25"}


def source(name: str) -> DatasetRecord:
    """The record of the set of that name or alias; InputError, with the known names, for any other."""
    if ALIASES.get(name, name) not in SOURCES:
        raise InputError(f"There is no set {name!r}, but {', '.join(SOURCES)} and the drawn world/... ones.")
    return SOURCES[ALIASES.get(name, name)]


def templates(name: str) -> tuple[str, ...]:
    """The templates of that name in known_sets.toml."""
    if name == "imagenet":
        import open_clip

        return tuple(template("{}") for template in open_clip.OPENAI_IMAGENET_TEMPLATES)
    return tuple(_TEMPLATES[name])
