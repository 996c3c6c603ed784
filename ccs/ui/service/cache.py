"""Results of slow calls, kept within limits; the least recently used go first."""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections.abc import Callable, Generator, Hashable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from cachetools import LRUCache
from PIL import Image

T = TypeVar("T")

SILENT = 30.0  # seconds without progress after which work that somebody else began is begun anew


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
        self._begun: dict[Hashable, list[float]] = {}  # the share that is done, and when that was told

    def __contains__(self, key: Hashable) -> bool:
        return key in self._items

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
        self._keep(key, value)
        return value

    def _keep(self, key: Hashable, value: object) -> None:
        with self._lock, suppress(ValueError):  # too large to be kept
            self._items[key] = value

    def fill(self, key: Hashable, work: Callable[[], Generator[float, None, T]]) -> Iterator[float]:
        """Keep what `work` returns, where nothing is kept yet: yields the share that is done, as `work` does.

        One thread works; others who ask meanwhile wait and see how far it is.
        """
        while key not in self:
            own = [0.0, time.monotonic()]
            with self._lock:
                begun = self._begun.get(key)
                if begun is None or time.monotonic() - begun[1] > SILENT:
                    begun = self._begun[key] = own
            if begun is not own:
                time.sleep(0.05)
                yield begun[0]
                continue
            try:
                working = work()
                while True:
                    own[:] = next(working), time.monotonic()
                    yield own[0]
            except StopIteration as end:
                self._keep(key, end.value)
                return
            finally:
                with self._lock:
                    if self._begun.get(key) is own:
                        del self._begun[key]

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
