"""Results of slow calls, kept within a limit; the least recently used go first."""

from __future__ import annotations

import itertools
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator, Hashable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, cast

import pandas as pd
from cachetools import LRUCache
from PIL import Image

from ccs.heads import HeadSet

T = TypeVar("T")

LIMIT = 640 * 2**20  # bytes, of all visitors together
ENTRY, HEAD = 200, 150  # bytes of overhead of any value, about, and of a head in a set
SILENT = 30.0  # seconds without progress after which another thread starts the same work again


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


class _Progress:
    """How far the thread is that computes a value."""

    def __init__(self) -> None:
        self.update(0.0)

    def update(self, share: float) -> None:
        self.share, self.time = share, time.monotonic()


class Cache:
    """Values by key, bounded in bytes (`size_of`) together with their keys. Threads may share it.

    Keys are tuples that begin with the kind of the value. A value above the limit is not kept.

    Args:
        limit: Bytes.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._items: LRUCache[Hashable, tuple[Hashable, Any]] = LRUCache(limit, getsizeof=size_of)
        self._lock = threading.RLock()
        self._running: dict[Hashable, _Progress] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._items

    def find(self, key: Hashable) -> Any:
        """Return the value of a key, None if there is none."""
        with self._lock:
            return self._items.get(key, (key, None))[1]

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key.

        Args:
            key: The key.
            make: Function that computes the value if there is none. Two threads may do so at once.
        """
        with self._lock:
            if key in self._items:
                return cast(T, self._items[key][1])
        value = make()
        self._keep(key, value)
        return value

    def _keep(self, key: Hashable, value: object) -> None:
        with self._lock, suppress(ValueError):  # too large to be kept
            self._items[key] = key, value

    def fill(self, key: Hashable, work: Callable[[], Generator[float, None, T]]) -> Generator[float, None, T]:
        """Compute the value of a key in one thread, while others wait and see its progress.

        Args:
            key: The key.
            work: Generator function that yields the share done and returns the value.

        Returns:
            A generator like `work`'s.
        """
        progress = _Progress()
        while True:
            with self._lock:
                if key in self._items:
                    return cast(T, self._items[key][1])
                running = self._running.get(key)
                if running is None or time.monotonic() - running.time > SILENT:
                    self._running[key] = progress
                    break
            time.sleep(0.05)
            yield running.share
        try:
            steps = work()
            while True:
                progress.update(next(steps))
                yield progress.share
        except StopIteration as end:
            value: T = end.value
            self._keep(key, value)
            return value
        finally:
            with self._lock:
                if self._running.get(key) is progress:
                    del self._running[key]

    def forget(self, owner: int) -> None:
        """Remove the values of a visitor who has left."""
        with self._lock:
            for key in [key for key in self._items if isinstance(key, tuple) and key[0] == owner]:
                del self._items[key]


def result(steps: Generator[Any, None, T]) -> T:
    """Run a generator to its end, and return its result."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return cast(T, end.value)


class Memory:
    """One visitor's part of a cache, removed with the visitor.

    Args:
        cache: The cache.
    """

    _owners = itertools.count()

    def __init__(self, cache: Cache) -> None:
        self._cache, self._owner = cache, next(self._owners)
        weakref.finalize(self, cache.forget, self._owner)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """See `Cache.get`."""
        return self._cache.get((self._owner, key), make)
