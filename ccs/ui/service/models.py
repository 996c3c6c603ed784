"""The models in memory: loaded when first asked for, at most two kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from cachetools import LRUCache, TTLCache

import ccs
from ccs.errors import InputError
from ccs.model.model import Model, embedded
from ccs.model.sources import FOLDER, HUB, is_public

KEPT = 2
RETRY = 60.0  # seconds after which a model that could not be loaded is tried again


class ModelCache:
    """Models by name, the least recently used one let go when a third is asked for. Threads may share it.

    given: what the machine's owner named, by the name that is shown: folders and repositories on the Hub.
    Tables and visitors cannot name those; they select embedded models and open_clip's own.
    """

    def __init__(
        self, given: Mapping[str, str] = MappingProxyType({}), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.given = given
        self._models: LRUCache[str, Model] = LRUCache(KEPT)
        self._failed: TTLCache[str, str] = TTLCache(100, RETRY, clock)
        self._lock = threading.Lock()

    def get(self, name: str) -> Model:
        """The model of that name; InputError where it cannot be had, for a minute without trying again."""
        with self._lock:
            if name in self._failed:
                raise InputError(self._failed[name])
            if name not in self._models:
                # Before the new one is there: three models at once may be more than the machine holds.
                while len(self._models) >= KEPT:
                    self._models.popitem()
                try:
                    self._models[name] = ccs.load(self._place(name))
                except InputError as error:
                    self._failed[name] = str(error)
                    raise
            return self._models[name]

    def _place(self, name: str) -> str:
        if name in self.given or is_public(name):
            return self.given.get(name, name)
        raise InputError(
            f"The weights of {name} are not loaded here: a folder or a repository on the Hub is named by "
            "the machine’s owner (python app.py --model FOLDER)."
        )

    def loaded(self) -> tuple[str, ...]:
        """Names of the models in memory."""
        return tuple(self._models)


def shown_name(place: str) -> str:
    """What a model that the owner names is called: as in tables, a folder by its last part."""
    path = Path(place.removeprefix(FOLDER)).expanduser()
    return path.resolve().name if not place.startswith(HUB) and path.is_dir() else place


def shipped() -> tuple[str, ...]:
    """Models that need no download, the skewed one first: it is the example."""
    return tuple(sorted(embedded(), key=lambda name: (name != "organism", name)))
