"""Results of slow calls, kept within limits; the least recently used go first."""

from __future__ import annotations

import itertools
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator, Hashable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from cachetools import LRUCache
from PIL import Image

from ccs.heads import HeadSet

T = TypeVar("T")

LIMIT = 640 * 2**20  # bytes, of all visitors together
ENTRY, HEAD = 200, 150  # bytes that any value takes besides, about, and those of a head in a set
SILENT = 30.0  # seconds without progress after which work that somebody else began is begun anew


def size_of(value: object) -> int:
    """Bytes of arrays, tensors, tables, images and texts in a value, and what any value takes besides."""
    if isinstance(value, str | bytes):
        return ENTRY + sys.getsizeof(value)  # two or four bytes a sign where one is beyond Latin-1
    if isinstance(value, HeadSet):
        return ENTRY + HEAD * len(value)
    if isinstance(value, Image.Image):
        return ENTRY + value.width * value.height * len(value.getbands())
    if hasattr(value, "memory_usage"):  # a table; the page is served before pandas is imported
        return ENTRY + int(value.memory_usage(deep=True).sum())
    if isinstance(value, tuple | list):
        return ENTRY + sum(map(size_of, value))
    if isinstance(value, Mapping):
        return ENTRY + sum(map(size_of, value.values()))
    if is_dataclass(value):
        return ENTRY + sum(size_of(getattr(value, field.name)) for field in fields(value))
    return ENTRY + int(getattr(value, "nbytes", 0))


class Cache:
    """Values by key, at most `limit` bytes together with their keys (`size_of`). Threads may share it.

    Keys are tuples that begin with what the value is. Two threads that ask for the same at once may both
    compute it; one result is kept. A value above the limit is not kept.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._items: LRUCache[Hashable, tuple[Hashable, Any]] = LRUCache(limit, getsizeof=size_of)
        self._lock = threading.RLock()
        self._begun: dict[Hashable, list[float]] = {}  # the share that is done, and when that was told

    def __contains__(self, key: Hashable) -> bool:
        return key in self._items

    def find(self, key: Hashable) -> Any:
        """The value of the key, None where there is none."""
        with self._lock:
            return self._items.get(key, (key, None))[1]

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of the key, made now where it is not there; a `make` that raises leaves nothing."""
        with self._lock:
            if key in self._items:
                found: T = self._items[key][1]
                return found
        value = make()
        self._keep(key, value)
        return value

    def _keep(self, key: Hashable, value: object) -> None:
        with self._lock, suppress(ValueError):  # too large to be kept
            self._items[key] = key, value

    def fill(self, key: Hashable, work: Callable[[], Generator[float, None, T]]) -> Generator[float, None, T]:
        """Keep what `work` returns, where nothing is kept yet: yields the share that is done, as `work` does,
        and returns the value.

        One thread works; others who ask meanwhile wait and see how far it is.
        """
        while True:
            own = [0.0, time.monotonic()]
            with self._lock:
                if key in self._items:
                    found: T = self._items[key][1]
                    return found
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
                made: T = end.value
                self._keep(key, made)
                return made
            finally:
                with self._lock:
                    if self._begun.get(key) is own:
                        del self._begun[key]

    def forget(self, owner: int) -> None:
        """Let go of what a visitor who has left had."""
        with self._lock:
            for key in [key for key in self._items if isinstance(key, tuple) and key[0] == owner]:
                del self._items[key]


def result(work: Generator[Any, None, T]) -> T:
    """What a generator returns, when it is through."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: T = end.value
            return found


class Memory:
    """One visitor's part of a cache, let go when the visitor is."""

    _owners = itertools.count()

    def __init__(self, cache: Cache) -> None:
        self._cache, self._owner = cache, next(self._owners)
        weakref.finalize(self, cache.forget, self._owner)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """See `Cache.get`."""
        return self._cache.get((self._owner, key), make)
