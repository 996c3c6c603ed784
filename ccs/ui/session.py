"""One visitor's session: the screen, the way back, their images, and work that need not be repeated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ccs.heads import Head, HeadSet
from ccs.model.loading.footprint import Footprint
from ccs.ui.service.cache import Memory
from ccs.ui.service.uploads import InputImage
from ccs.ui.state import State


@dataclass
class Session:
    """One visitor. Never shared; `state` is the only part that a link holds.

    past: the sets of heads that were off before, the last one last; undone: those that Undo took back.
    uploads: images of the visitor's own, shown instead of the example. notices: sentences to show once.
    wanted: the points of accuracy that may be lost, where something fairer was asked for; found: the last
    answer (`views.bias.fairer.Fairer`). code: a program that was asked for, sent once. revealed: the heads
    that something was planted in, or that were taught something, are shown. guesses: (model, head) -> what
    the visitor takes it to have been taught. naming, offer: a model that the visitor names, and what it would
    cost. turn: answers sent so far. shown: a digest of the HTML that the page has, by region: the HTML itself
    would be half a megabyte for every visitor. view: the tab that its main region shows.
    """

    state: State
    memory: Memory
    undone: tuple[HeadSet, ...] = ()
    past: tuple[HeadSet, ...] = ()
    uploads: tuple[InputImage, ...] = ()
    notices: list[str] = field(default_factory=list)
    wanted: int | None = None
    found: Any = None
    code: str = ""
    revealed: bool = False
    guesses: Mapping[tuple[str, Head], str] = field(default_factory=dict)
    turn: int = 0
    naming: bool = False
    offer: Footprint | None = None
    shown: dict[str, bytes] = field(default_factory=dict)
    view: str = ""

    def tell(self, *words: str) -> None:
        """More sentences to show once."""
        self.notices = [*self.notices, *words]  # a new list: an action that fails takes its own back
