"""Results of slow calls, kept within a limit; the least recently used go first."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

from cachetools import LRUCache
from PIL import Image

from ccs.app.jobs import Tell, keep_quiet
from ccs.heads import HeadSet

T = TypeVar("T")

LIMIT = 640 * 2**20  # bytes, of all visitors together
ENTRY = 100  # bytes of overhead of any value, about


def size_of(value: Any) -> int:
    """Return the bytes of arrays, tensors, tables, images, and texts in a value, with their overhead."""
    if isinstance(value, Image.Image):
        return ENTRY + value.width * value.height * len(value.getbands())
    parts: Iterable[Any] = ()
    if isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, tuple | list | HeadSet):
        parts = value
    elif is_dataclass(value):
        parts = vars(value).values()
    return ENTRY + max(sys.getsizeof(value), int(getattr(value, "nbytes", 0))) + sum(map(size_of, parts))


class Cache:
    """Values by key, bounded in bytes (`size_of`) together with their keys. Threads may share it.

    Keys are tuples that begin with the kind of the value. A value above the limit is not kept.

    Args:
        limit: Bytes.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._items: LRUCache[Hashable, tuple[Hashable, Any]] = LRUCache(limit, getsizeof=size_of)
        self._lock = threading.Lock()
        self._running: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()  # a lock by key

    def __contains__(self, key: Hashable) -> bool:
        return key in self._items

    def find(self, key: Hashable) -> Any:
        """Return the value of a key, None if there is none."""
        with self._lock:
            return self._items.get(key, (key, None))[1]

    def get(self, key: Hashable, make: Callable[[], T], tell: Tell = keep_quiet) -> T:
        """Return the value of a key, computed now if there is none. Other threads wait meanwhile.

        Args:
            key: The key.
            make: Function that computes the value.
            tell: Called again and again while another thread computes it.
        """
        with self._lock:
            if key in self._items:
                return cast(T, self._items[key][1])
            running = self._running.setdefault(key, threading.RLock())
        while not running.acquire(timeout=0.1):
            tell(0.0, "Waiting for the same work of another page")
        try:
            if (item := self._items.get(key)) is not None:
                return cast(T, item[1])
            value = make()
            with self._lock, suppress(ValueError):  # too large to be kept
                self._items[key] = key, value
            return value
        finally:
            running.release()
