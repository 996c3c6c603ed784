"""The evaluation sets known by name (known_sets.toml), with their sources and the meaning of their columns.

Prompt templates for zero-shot classification are those published with CLIP; `{}` is the class. Their source
is data/prompts.md of openai/CLIP for CIFAR, Food-101, Country-211 and Oxford-Pets; the 80 of ImageNet are
those in open_clip. The study uses these too, except that it uses CIFAR's for Oxford-Pets
(`oxford-pets-first-word`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from ccs.errors import InputError


@dataclass(frozen=True, kw_only=True)
class DatasetRecord:
    """The description of an evaluation set, available before it is opened.

    kind: "classification", "captions" (images with captions), "videos", "bias" or "images".
    hub, config, split, revision: its place on the Hub; without `hub` a local copy is needed.
    image, label: its columns. names: the source of class names: "column" (the table's own), "wordnet", or a
    file in the repository with one name per line. first_word: classes are the first words of these names.
    joined: the words of a class are joined by underscores.
    renames: class or group -> its name here. templates: the name of the templates.
    captions: columns of captions. annotations, frames: the file with captions of videos, frames per video.
    groups: attribute -> column. k: attribute -> cut-off. rows: the expected number of rows. gigabytes:
    roughly how much is downloaded, for the split alone if it has files of its own.
    large: streamed if only part of it is needed. gated: its terms must be accepted on the Hub.
    verified: how the id and the columns were checked.
    study: what the reference study did differently.
    """

    name: str
    title: str
    kind: str
    hub: str | None = None
    config: str | None = None
    split: str
    revision: str | None = None
    image: str = "image"
    label: str = "label"
    names: str = "column"
    first_word: bool = False
    joined: bool = False
    renames: Mapping[str, str] = field(default_factory=dict)
    templates: str = "plain"
    subsets: Mapping[str, Sequence[str]] = field(default_factory=dict)
    captions: Sequence[str] = ()
    annotations: str = ""
    frames: int = 0
    groups: Mapping[str, str] = field(default_factory=dict)
    k: Mapping[str, int] = field(default_factory=dict)
    rows: int
    gigabytes: float = 0.0
    large: bool = False
    licence: str
    gated: bool = False
    study: str = ""
    verified: str

    @property
    def address(self) -> str:
        """Its place on the Hub: id, configuration, split and revision."""
        return " ".join(filter(None, (self.hub or "local copy", self.config, self.split, self.revision)))


_FIELDS = tomllib.loads(files("ccs.datasets").joinpath("known_sets.toml").read_text("utf-8"))
SOURCES: dict[str, DatasetRecord] = {
    name: DatasetRecord(name=name, **{**_FIELDS.get(fields.pop("like", ""), {}), **fields})
    for name, fields in _FIELDS.items()
}
ALIASES = {"imagenet": "imagenet-val", "fairface": "fairface-1.25"}


def source(name: str) -> DatasetRecord:
    """The record of the set of that name or alias; InputError, with the known names, for any other."""
    if ALIASES.get(name, name) not in SOURCES:
        raise InputError(
            f"There is no set {name!r}; there are {', '.join(SOURCES)} and the drawn world/... ones."
        )
    return SOURCES[ALIASES.get(name, name)]


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
    """The templates of that name in known_sets.toml."""
    if name == "imagenet":
        import open_clip

        return tuple(template("{}") for template in open_clip.OPENAI_IMAGENET_TEMPLATES)
    return _NAMED[name]


def as_markdown() -> str:
    """The table of docs/datasets.md (`python -m ccs.datasets`)."""
    lines = [
        "| name | set | on the Hub | split | rows | licence | how it was verified |",
        "|---|---|---|---|---|---|---|",
    ]
    for record in SOURCES.values():
        where = " ".join(filter(None, (record.hub or "local only", record.config)))
        cells = (record.name, record.title, where, record.split, f"{record.rows:,}")
        lines.append("| " + " | ".join((*cells, record.licence, record.verified)) + " |")
    return "\n".join(lines) + "\n"
