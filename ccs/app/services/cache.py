"""Results of slow calls, kept within a limit; the least recently used go first. And what is loaded once."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Hashable, Mapping, ValuesView
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import is_dataclass
from typing import Any, Generic, TypeVar, cast
from weakref import WeakValueDictionary

from cachetools import LRUCache, TTLCache
from PIL import Image

from ccs.app.html import for_visitors
from ccs.app.jobs import Tell, keep_quiet
from ccs.errors import InputError
from ccs.heads import HeadSet

T = TypeVar("T")
log = logging.getLogger(__name__)

LIMIT = 640 * 2**20  # bytes, of all visitors together
ENTRY = 100  # approximate overhead of a value in bytes
RETRY = 60.0  # seconds after which what couldn't be loaded is tried again
WAITING = 4  # values that may wait to be loaded


def size_of(value: Any) -> int:
    """Return the bytes of arrays, tensors, tables, images, and texts in a value, with their overhead."""
    if isinstance(value, Image.Image):
        return ENTRY + value.width * value.height * len(value.getbands())
    fields = vars(value) if is_dataclass(value) else value
    parts = fields.values() if isinstance(fields, Mapping) else fields
    parts = parts if isinstance(parts, tuple | list | HeadSet | ValuesView) else ()
    return ENTRY + max(sys.getsizeof(value), int(getattr(value, "nbytes", 0))) + sum(map(size_of, parts))


class Cache:
    """Values by key, bounded in bytes (`size_of`) together with their keys. Threads may share it.

    Keys are tuples that begin with the kind of the value. A value above the limit is not kept.

    Args:
        limit: Bytes.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._items = LRUCache[Hashable, tuple[Hashable, Any]](limit, getsizeof=size_of)
        self._lock, self._running = threading.Lock(), WeakValueDictionary[Hashable, Any]()  # key -> lock

    def get(self, key: Hashable, make: Callable[[], T], tell: Tell = keep_quiet) -> T:
        """Return the value of a key, computed now if there is none. Other threads wait meanwhile.

        Args:
            key: The key.
            make: Function that computes the value.
            tell: Called again and again while another thread computes it.
        """
        with self._lock:
            running = self._running.setdefault(key, threading.RLock())
        while not running.acquire(timeout=0.1):
            tell(0.0, "Waiting for the same work of another page")
        try:
            with self._lock:
                if key in self._items:
                    return cast(T, self._items[key][1])
            value = make()
            with self._lock, suppress(ValueError):  # too large for the cache
                self._items[key] = key, value
            return value
        finally:
            running.release()


class Loader(Generic[T]):
    """Values by name, loaded one at a time in their own thread, so that nobody has to wait for one.

    Args:
        load: Function from a name to its value.
        capacity: The most values to keep; the least recently used one goes before another is loaded.
        describe: Function from a name to a phrase for what is being done.

    Attributes:
        loaded: The values in memory.
        failures: Why a value couldn't be loaded within the last minute.
    """

    def __init__(self, load: Callable[[str], T], capacity: int, describe: Callable[[str], str]) -> None:
        self._make, self._describe, self._loads = load, describe, dict[str, Future[T]]()
        self.loaded, self.failures = LRUCache[str, T](capacity), TTLCache[str, str](100, RETRY)
        self._thread, self._lock = ThreadPoolExecutor(1), threading.RLock()

    def __contains__(self, name: str) -> bool:
        return name in self.loaded

    def get(self, name: str, tell: Tell = keep_quiet) -> T:
        """Return a value, loaded if need be. One that couldn't be loaded isn't tried again for a minute.

        Args:
            name: The value's name.
            tell: Publishes the progress. If it raises, loading continues without the caller.

        Raises:
            InputError: If the value isn't available, or too many wait.
        """
        if name not in self.loaded and name not in self.failures:
            tell(0.0, self._describe(name))
        with self._lock:
            if name in self.loaded:
                return self.loaded[name]
            if name in self.failures:
                raise InputError(self.failures[name])
            if name not in self._loads:
                if len(self._loads) >= WAITING:
                    raise InputError(f"{WAITING} others are being loaded; try again in a moment.")
                self._loads[name] = self._thread.submit(self._run, name)
            load = self._loads[name]
        while not wait([load], 0.25).done:
            tell(0.0, self._describe(name))
        return load.result()

    def _run(self, name: str) -> T:
        while len(self.loaded) >= self.loaded.maxsize:
            self.loaded.popitem()
        try:
            value = self.loaded[name] = self._make(name)
            return value
        except Exception as error:
            if not isinstance(error, InputError):
                log.exception("%s could not be loaded", name)
                error = InputError(f"{name} could not be loaded; the error has been logged.")
            self.failures[name] = for_visitors(error)
            raise InputError(self.failures[name]) from None
        finally:
            with self._lock:
                del self._loads[name]
