"""What one visitor has: the screen, the way back, their pictures, and work that need not be repeated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ccs.ui.service.cache import Memory
from ccs.ui.service.uploads import Picture
from ccs.ui.state import History, State


@dataclass
class Annotation:
    """The blind task: items in a random order, and what has been answered so far."""

    seed: int = 0
    items: tuple[Any, ...] = ()
    answers: list[bool | None] = field(default_factory=list)


@dataclass
class Session:
    """One visitor. Never shared; `state` is the only part that a link holds.

    click: what a click on a head does. uploads: pictures of the visitor's own, shown instead of the example.
    notices: sentences to show once. memory: bounded. task: the annotation, if begun.
    """

    state: State = field(default_factory=State)
    history: History = field(default_factory=History)
    click: str = "inspect"
    uploads: tuple[Picture, ...] = ()
    notices: list[str] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    task: Annotation | None = None
    turn: int = 0
    shown: dict[str, str] = field(default_factory=dict)
