"""Results of slow calls, kept within a limit; the least recently used go first."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

import pandas as pd
from cachetools import LRUCache
from PIL import Image

from ccs.app.jobs import Tell, keep_quiet
from ccs.heads import HeadSet

T = TypeVar("T")

LIMIT = 640 * 2**20  # bytes, of all visitors together
ENTRY, HEAD = 200, 150  # bytes of overhead of any value, about, and of a head in a set


def size_of(value: object) -> int:
    """Return the bytes of arrays, tensors, tables, images, and texts in a value, with their overhead."""
    if isinstance(value, str | bytes):
        return ENTRY + sys.getsizeof(value)
    if isinstance(value, HeadSet):
        return ENTRY + HEAD * len(value)
    if isinstance(value, Image.Image):
        return ENTRY + value.width * value.height * len(value.getbands())
    if isinstance(value, pd.DataFrame):
        return ENTRY + int(value.memory_usage(deep=True).sum())
    if isinstance(value, Mapping):
        value = tuple(value.values())
    elif is_dataclass(value):
        value = tuple(getattr(value, field.name) for field in fields(value))
    if isinstance(value, tuple | list):
        return ENTRY + sum(map(size_of, value))
    return ENTRY + int(getattr(value, "nbytes", 0))


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
