"""The models in memory: loaded when first asked for, at most two kept."""

from __future__ import annotations

import threading
from collections import OrderedDict

import ccs
from ccs.models import Model, embedded

KEPT = 2


class Shelf:
    """Models by name, the least recently used one let go when a third is asked for. Threads may share it."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._models: OrderedDict[str, Model] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str) -> Model:
        """The model of that name; InputError (from `ccs.load`) where it cannot be had."""
        with self._lock:
            if name not in self._models:
                while len(self._models) >= self._kept:
                    self._models.popitem(last=False)
                self._models[name] = ccs.load(name)
            self._models.move_to_end(name)
            return self._models[name]

    def loaded(self) -> tuple[str, ...]:
        """Names of the models in memory, the most recently used one last."""
        return tuple(self._models)


def shipped() -> tuple[str, ...]:
    """Models that need no download, the skewed one first: it is the example."""
    return tuple(sorted(embedded(), key=lambda name: (name != "organism", name)))
