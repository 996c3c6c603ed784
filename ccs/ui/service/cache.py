"""Results of slow calls, kept within bounds: so many a visitor, so many bytes for all visitors together."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from PIL import Image

T = TypeVar("T")
KEPT = 24
_MISSING = object()
LIMIT = 2**30  # bytes that all visitors' memories hold together


class Budget:
    """Bytes that several memories may hold together; the values used longest ago go first."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._held: OrderedDict[tuple[int, Hashable], tuple[weakref.ref[Memory], int]] = OrderedDict()
        self._lock = threading.RLock()
        self.total = 0

    def hold(self, memory: Memory, key: Hashable, size: int) -> None:
        """Count a value just made or used; others make room for it, whoever's they are."""
        with self._lock:
            self.release(memory, key)
            self._held[id(memory), key] = (weakref.ref(memory), size)
            self.total += size
            while self.total > self._limit and len(self._held) > 1:
                (_, oldest), (owner, freed) = self._held.popitem(last=False)
                self.total -= freed
                other = owner()
                if other is not None:
                    other.drop(oldest)

    def release(self, memory: Memory, key: Hashable) -> None:
        with self._lock:
            _, size = self._held.pop((id(memory), key), (None, 0))
            self.total -= size

    def release_all(self, owner: int) -> None:
        """Count nothing any more of a memory that is gone."""
        with self._lock:
            for held in [held for held in self._held if held[0] == owner]:
                self.total -= self._held.pop(held)[1]


class Memory:
    """Results of slow calls by key; the least recently used go when there are more than `kept`.

    Threads may share it. Two that ask for the same at once may both compute it; one result is kept.
    """

    def __init__(self, kept: int = KEPT, budget: Budget | None = None) -> None:
        self._kept = kept
        self._items: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.RLock()
        self._budget = budget
        if budget is not None:
            weakref.finalize(self, budget.release_all, id(self))

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._items

    def find(self, key: Hashable) -> object:
        """What is kept under the key, None where nothing is."""
        return self._items.get(key)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of the key, made now where it is not there; a `make` that raises leaves nothing."""
        with self._lock:
            value = self._items.get(key, _MISSING)
        if value is _MISSING:
            value = make()
        with self._lock:
            self._items[key] = value
            self._items.move_to_end(key)
            gone = [self._items.popitem(last=False)[0] for _ in range(len(self._items) - self._kept)]
        if self._budget is not None:  # outside of the lock, for the budget may empty other memories
            for old in gone:
                self._budget.release(self, old)
            self._budget.hold(self, key, size_of(value))
        found: T = value
        return found

    def drop(self, key: Hashable) -> None:
        with self._lock:
            self._items.pop(key, None)


def size_of(value: object) -> int:
    """Bytes of arrays, tensors, pictures and texts in a value; what is small besides counts as nothing."""
    if isinstance(value, tuple | list):
        return sum(map(size_of, value))
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, Image.Image):
        return value.width * value.height * len(value.getbands())
    size = getattr(value, "nbytes", None)
    if size is None and hasattr(value, "tokens"):  # a trunk
        size = getattr(value.tokens, "nbytes", None)
    return int(size or 0)
