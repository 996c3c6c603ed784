"""What one visitor has: the screen, the way back, their pictures, and work that need not be repeated."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ccs.ui.state import History, State
from ccs.ui.uploads import Picture

T = TypeVar("T")
KEPT = 12


class Memory:
    """Results of slow calls by key; the least recently used go when there are more than `kept`."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._items: OrderedDict[Hashable, Any] = OrderedDict()

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._items

    def find(self, key: Hashable) -> object:
        """What is kept under the key, None where nothing is."""
        return self._items.get(key)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of the key, made now where it is not there; a `make` that raises leaves nothing."""
        if key not in self._items:
            value = make()
            self._items[key] = value
            while len(self._items) > self._kept:
                self._items.popitem(last=False)
        self._items.move_to_end(key)
        found: T = self._items[key]
        return found


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
