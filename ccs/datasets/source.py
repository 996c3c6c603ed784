"""What is known of an evaluation set before it is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ccs.datasets import templates

CARD = "repository card"


@dataclass(frozen=True, kw_only=True)
class Source:
    """One evaluation set.

    `kind`: "classification", "captions" (pictures with captions), "videos", "bias" or "images".
    `hub`, `config`, `split`, `revision`: where it is on the Hub; no `hub` means a local copy is needed.
    `image`, `label`: its columns. `names`: how a class gets its name ("column": the table's own names,
    "wordnet", "classnames.txt": a file of the repository, one name a line).
    `captions`: columns of captions. `groups`: attribute -> column. `rows`: how many there should be.
    `large`: streamed when only part of it is asked for.
    """

    name: str
    title: str
    kind: str
    hub: str | None
    config: str | None = None
    split: str
    revision: str | None = None
    image: str = "image"
    label: str = "label"
    names: str = "column"
    first_word: bool = False
    renames: Mapping[str, str] = field(default_factory=dict)
    templates: Callable[[], tuple[str, ...]] = lambda: templates.PLAIN
    subsets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    captions: tuple[str, ...] = ()
    annotations: str = ""
    frames: int = 0
    groups: Mapping[str, str] = field(default_factory=dict)
    k: Mapping[str, int] = field(default_factory=dict)
    rows: int
    large: bool = False
    gated: bool = False
    licence: str
    study: str = ""
    verified: str
