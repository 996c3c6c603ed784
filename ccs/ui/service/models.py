"""The models in memory: loaded when first asked for, at most two kept."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

import ccs
from ccs.errors import InputError
from ccs.model.model import Model, embedded

KEPT = 2
RETRY = 60.0  # seconds after which a model that could not be loaded is tried again


class Shelf:
    """Models by name, the least recently used one let go when a third is asked for. Threads may share it."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._models: OrderedDict[str, Model] = OrderedDict()
        self._failed: dict[str, tuple[float, str]] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> Model:
        """The model of that name; InputError where it cannot be had, for a minute without trying again."""
        with self._lock:
            if name not in self._models:
                when, words = self._failed.get(name, (-RETRY, ""))
                if time.monotonic() - when < RETRY:
                    raise InputError(words)
                # Before the new one is there: three models at once may be more than the machine holds.
                while len(self._models) >= self._kept:
                    self._models.popitem(last=False)
                try:
                    self._models[name] = ccs.load(name)
                except InputError as error:
                    self._failed[name] = (time.monotonic(), str(error))
                    raise
            self._models.move_to_end(name)
            return self._models[name]

    def loaded(self) -> tuple[str, ...]:
        """Names of the models in memory, the most recently used one last."""
        return tuple(self._models)


def shipped() -> tuple[str, ...]:
    """Models that need no download, the skewed one first: it is the example."""
    return tuple(sorted(embedded(), key=lambda name: (name != "organism", name)))
