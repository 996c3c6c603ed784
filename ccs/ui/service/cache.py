"""Results of slow calls, kept within limits; the least recently used go first."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any, TypeVar

from cachetools import LRUCache
from PIL import Image

T = TypeVar("T")


def size_of(value: object) -> int:
    """Bytes of arrays, tensors, images and texts in a value; what is small besides counts as nothing."""
    if isinstance(value, tuple | list):
        return sum(map(size_of, value))
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, Image.Image):
        return value.width * value.height * len(value.getbands())
    data = getattr(value, "tokens", value)  # of a trunk
    return int(getattr(data, "nbytes", 0))


def one(value: object) -> int:
    """The size of a value in a cache whose limit is a number of values."""
    return 1


class Cache:
    """Values by key, at most `limit` in size together. Threads may share it.

    size: of a value; its bytes, or `one`. Two threads that ask for the same at once may both compute it; one
    result is kept. A value above the limit is not kept.
    """

    def __init__(self, limit: int, size: Callable[[Any], int] = size_of) -> None:
        self._items: LRUCache[Hashable, Any] = LRUCache(limit, getsizeof=size)
        self._lock = threading.RLock()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._items

    @property
    def total(self) -> int:
        """The size of all values together."""
        return int(self._items.currsize)

    def find(self, key: Hashable) -> Any:
        """The value of the key, None where there is none."""
        with self._lock:
            return self._items.get(key)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of the key, made now where it is not there; a `make` that raises leaves nothing."""
        with self._lock:
            if key in self._items:
                found: T = self._items[key]
                return found
        value = make()
        with self._lock, suppress(ValueError):  # too large to be kept
            self._items[key] = value
        return value

    def forget(self, owner: int) -> None:
        """Let go of what a visitor who has left had."""
        with self._lock:
            for key in [key for key in self._items if isinstance(key, tuple) and key[0] == owner]:
                del self._items[key]


class Memory:
    """One visitor's part of a cache, let go when the visitor is."""

    _owners = itertools.count()

    def __init__(self, cache: Cache) -> None:
        self._cache, self._owner = cache, next(self._owners)
        weakref.finalize(self, cache.forget, self._owner)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """See `Cache.get`."""
        return self._cache.get((self._owner, key), make)
