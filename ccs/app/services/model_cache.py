"""Caches of models and of their results, limited in size: the least recently used are removed first."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, ValuesView
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import is_dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Generic, TypeVar, cast
from weakref import WeakValueDictionary

from cachetools import LRUCache, TTLCache
from PIL import Image

import ccs
from ccs.app.html import for_visitors
from ccs.app.jobs import Tell, keep_quiet
from ccs.bundled import first_screen, stored_value
from ccs.errors import InputError
from ccs.heads import TEXT, HeadSet, last_layers
from ccs.model.handle import ModelHandle
from ccs.model.loading.sources import AUTO, FOLDER, HUB, embedded, find_model, is_public, known_encoder

T = TypeVar("T")
log = logging.getLogger(__name__)

CACHE_BYTES = 640 * 2**20  # of all visitors together
OVERHEAD = 100  # bytes of a value, approximately
RETRY_SECONDS = 60.0  # after which a failed load is tried again
MAX_WAITING = 4  # values that may wait for their load

PHOTO = "photo"  # the bundled model that was trained on photographs
MAX_MODELS = 2  # three models at once may be more than the machine holds
LIVE_MODELS: dict[str, int] = json.loads(files(__package__).joinpath("live.json").read_text("utf-8"))
"""Listed models that need only their weights -> bytes of the weights on the Hub."""


def size_of(value: Any) -> int:
    """Return the bytes of arrays, tensors, tables, images, and texts in a value, with their overhead."""
    if isinstance(value, Image.Image):
        return OVERHEAD + value.width * value.height * len(value.getbands())
    fields = vars(value) if is_dataclass(value) else value
    parts = fields.values() if isinstance(fields, Mapping) else fields
    parts = parts if isinstance(parts, tuple | list | HeadSet | ValuesView) else ()
    return OVERHEAD + max(sys.getsizeof(value), int(getattr(value, "nbytes", 0))) + sum(map(size_of, parts))


class Cache:
    """Values by key, limited in bytes (`size_of`) together with their keys. Thread-safe.

    Keys are tuples that begin with the kind of the value. A value above the limit isn't cached. A bundled
    model stores the values of its first screen.

    Args:
        limit: Bytes.
    """

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._items = LRUCache[Hashable, tuple[Hashable, Any]](limit, getsizeof=size_of)
        self._lock, self._running = threading.Lock(), WeakValueDictionary[Hashable, Any]()  # key -> lock

    def get(self, key: Hashable, make: Callable[[], T], tell: Tell = keep_quiet) -> T:
        """Return the value of a key, computed now if it isn't cached. Other threads wait for it.

        Args:
            key: The key.
            make: Function that computes the value.
            tell: Called repeatedly while another thread computes it.
        """
        with self._lock:
            running = self._running.setdefault(key, threading.RLock())
        while not running.acquire(timeout=0.1):
            tell(0.0, "Waiting for the same work of another page")
        try:
            with self._lock:
                if key in self._items:
                    return cast(T, self._items[key][1])
            stored = stored_value(key)
            value = make() if stored is None else cast(T, stored)
            with self._lock, suppress(ValueError):  # too large for the cache
                self._items[key] = key, value
            return value
        finally:
            running.release()


class Loader(Generic[T]):
    """Values by name, loaded one at a time in their own thread, so that callers can stop waiting.

    Args:
        load: Function from a name to its value.
        capacity: Maximum number of values. The least recently used one is removed before a load.
        describe: Function from a name to a phrase for the step.

    Attributes:
        loaded: The values in memory.
        failures: Name -> why a load failed in the last minute.
    """

    def __init__(self, load: Callable[[str], T], capacity: int, describe: Callable[[str], str]) -> None:
        self._make, self._describe, self._loads = load, describe, dict[str, Future[T]]()
        self.loaded, self.failures = LRUCache[str, T](capacity), TTLCache[str, str](100, RETRY_SECONDS)
        self._thread, self._lock = ThreadPoolExecutor(1), threading.RLock()

    def get(self, name: str, tell: Tell = keep_quiet) -> T:
        """Return a value, loaded if needed. A failed load isn't tried again for a minute.

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
                if len(self._loads) >= MAX_WAITING:
                    raise InputError(f"{MAX_WAITING} others are being loaded; try again in a moment.")
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


class ModelCache(Loader[ModelHandle]):
    """Models by name, at most two in memory. Thread-safe.

    Results and links can only select bundled models, open_clip's models, and `places`.

    Args:
        places: Folders and repositories on the Hub offered by the app's operator.
        layers: Function from a name to the layers scored in its results; empty without results.
    """

    def __init__(self, places: Iterable[str], layers: Callable[[str], Collection[int]]) -> None:
        super().__init__(self._load, MAX_MODELS, "Loading {}".format)
        self.places = {shown_name(place): place for place in places}
        self._layers, self._heads = layers, dict[str, HeadSet]()

    @property
    def names(self) -> tuple[str, ...]:
        """The models that can be loaded."""
        return (*embedded(), *self.places, *LIVE_MODELS)

    @property
    def first(self) -> str:
        """The model that the app opens on: the operator's first that can be loaded, else a bundled one."""
        return next(name for name in (*self.places, *embedded()) if name not in self.failures)

    def get(self, name: str, tell: Tell = keep_quiet) -> ModelHandle:
        """Return the handle of a model. The model is loaded now unless its first screen is stored.

        Args:
            name: The model's name.
            tell: Publishes the progress, also of a later `load` of the handle.

        Raises:
            InputError: If the model isn't available.
        """
        stored = None if name in self.loaded else first_screen(self.places.get(name, name))
        if stored is None:
            return super().get(name, tell)
        get = super().get
        return ModelHandle(name, stored.weights, stored.logit_scale, None, lambda: get(name, tell).load())

    def heads_of(self, name: str, scored: HeadSet) -> HeadSet:
        """Return the heads of both encoders that can be ablated, if known before the model is loaded.

        Args:
            name: The model.
            scored: The heads of its image encoder in the results; empty without results.
        """
        if name not in self._heads:
            with suppress(InputError):
                source = find_model(self.place(name))
                text = source.config["text_cfg"]
                heads = last_layers(text["layers"], text["heads"], TEXT) if "layers" in text else ()
                self._heads[name] = HeadSet([*(scored or known_encoder(source).heads), *heads])
        return self._heads.get(name, scored)

    def keep(self, name: str, model: ccs.Model) -> ModelHandle:
        """Keep a loaded model, whose weights must not change, and return its handle.

        Args:
            name: The name that selects it.
            model: The model.
        """
        self._heads[name] = model.heads
        with suppress(InputError):  # a text encoder whose heads can't be separated
            self._heads[name] = HeadSet([*model.heads, *model.text_heads])
        handle = self.loaded[name] = ModelHandle.from_model(model)
        return handle

    def place(self, name: str) -> str:
        """Return the argument of `ccs.load` for a model. Raises InputError for an unknown name."""
        if name in self.places or is_public(name):
            return self.places.get(name, name)
        raise InputError(f"The weights of {name} are not loaded here; start the app with --model FOLDER.")

    def _load(self, name: str) -> ModelHandle:
        return self.keep(name, ccs.load(self.place(name), device=AUTO, layers=self._layers(name) or None))


def shown_name(place: str) -> str:
    """Return the shown name of an operator's place: the last part of a folder, else the place."""
    path = Path(place.removeprefix(FOLDER)).expanduser()
    return path.resolve().name if not place.startswith(HUB) and path.is_dir() else place


def saw_drawings_only(name: str) -> bool:
    """Return True for a bundled model that was trained only on synthetic scenes."""
    return name != PHOTO and name in embedded()


def describe_kind(name: str) -> str:
    """Describe a model: a toy model of drawings or photographs, or a CLIP."""
    toy = "toy model, photographs" if name == PHOTO else "toy model, drawings"
    return toy if name in embedded() else "CLIP"
