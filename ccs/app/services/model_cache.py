"""The models: which can be chosen, and those in memory, loaded when first asked for, at most two kept."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

from cachetools import LRUCache, TTLCache

import ccs
from ccs.app.html import for_visitors
from ccs.errors import InputError
from ccs.heads import IMAGE, TEXT, HeadSet, last_layers
from ccs.model.loading.fetching import forget
from ccs.model.loading.footprint import Footprint, footprint, require_room, untrusted_footprint
from ccs.model.loading.sources import AUTO, FOLDER, HUB, find, is_public, known_encoder
from ccs.model.model import Model, embedded

log = logging.getLogger(__name__)

PHOTO = "photo"  # the embedded model that has seen photographs
KEPT = 2
RETRY = 60.0  # seconds after which a model that could not be loaded is tried again
PATIENCE = 20.0  # seconds that who asks for a model waits, before being told that it is on its way
WAITING = 4  # models that may be on their way at once; they are loaded one after the other
OFFERED = 50  # models that are remembered by name: visitors' own, and those whose heads are known


@cache
def live_models() -> Mapping[str, int]:
    """The models that are listed and need nothing but their weights, with the bytes of these on the Hub."""
    found: dict[str, int] = json.loads(files(__package__).joinpath("live.json").read_text("utf-8"))
    return found


@dataclass
class _Load:
    """A model on its way."""

    thread: threading.Thread
    began: float
    takes: Footprint | None = None


class ModelCache:
    """Models by name, the least recently used one let go when a third is asked for. Threads may share it.

    given: what the machine's owner named, by the name that is shown: folders and repositories on the Hub.
    layers: those whose heads its tables score, none where there are no tables.
    Tables and links cannot name a place; they select embedded models and open_clip's own. Visitors may name a
    public repository, which is checked before anything of it is fetched (`offer`).
    """

    def __init__(
        self,
        given: Mapping[str, str] = MappingProxyType({}),
        layers: Callable[[str], Collection[int]] = lambda name: (),
    ) -> None:
        self.given, self._layers = given, layers
        self._models: LRUCache[str, Model] = LRUCache(KEPT)
        self._failed: TTLCache[str, str] = TTLCache(100, RETRY)
        self.offered: LRUCache[str, Footprint] = LRUCache(OFFERED)  # the models that visitors have named
        self._loads: dict[str, _Load] = {}
        self._heads: LRUCache[str, HeadSet] = LRUCache(OFFERED)  # of both encoders
        self._lock, self._one = threading.RLock(), threading.Lock()

    def get(self, name: str) -> Model:
        """The model of that name, loaded if need be; InputError where it cannot be had or is on its way.

        What could not be had is not tried again for a minute.
        """
        for _ in self.loading(name):
            pass
        with self._lock:
            if name in self._models:
                return self._models[name]
            if name in self._failed:
                raise InputError(self._failed[name])
        raise InputError(f"{name} is still being loaded; ask again in a moment.")

    def loading(self, name: str, seconds: float = PATIENCE) -> Iterator[str]:
        """Load the model in the background and yield what is being done until it is here.

        After so many seconds loading continues unwatched. InputError where the name selects nothing here.
        """
        with self._lock:
            if name in self._models or name in self._failed:
                return
            load = self._loads.get(name)
            if load is None:
                place = self.place(name)
                if len(self._loads) >= WAITING:
                    raise InputError(f"{WAITING} models are on their way already; try again in a moment.")
                thread = threading.Thread(target=self._load, args=(name, place), daemon=True)
                load = self._loads[name] = _Load(thread, time.monotonic())
                thread.start()
        end = time.monotonic() + seconds
        while load.thread.is_alive() and time.monotonic() < end:
            load.thread.join(min(0.25, seconds))
            if load.thread.is_alive():
                yield self.progress(name)

    def is_loading(self, name: str) -> bool:
        """True while the model is on its way."""
        return name in self._loads

    def progress(self, name: str) -> str:
        """What is being done to a model on its way."""
        load = self._loads.get(name)
        if load is None or load.takes is None or load.takes.here or not load.takes.size:
            return f"Loading {name}"
        seconds = time.monotonic() - load.began
        return f"Fetching {name}: {load.takes.size / 1e6:,.0f} MB, {seconds:.0f} seconds so far"

    def failure(self, name: str) -> str:
        """Why the model could not be had when it was last tried, "" if it could or was not."""
        return str(self._failed.get(name, ""))

    def loaded(self) -> tuple[str, ...]:
        """Names of the models in memory."""
        return tuple(self._models)

    def offer(self, name: str) -> Footprint:
        """What a model takes that a visitor names, which can then be chosen. InputError for others."""
        found = untrusted_footprint(name)
        with self._lock:
            self.offered[found.name] = found
        return found

    def heads(self, name: str, encoder: str = IMAGE) -> HeadSet:
        """An encoder's heads that can be switched off, as far as they are known without loading the model."""
        with self._lock:
            if name in self._heads:
                return self._heads[name].of_encoder(encoder)
        try:
            source = find(self.place(name), self._token(name))
            texts = source.config["text_cfg"]
            read = last_layers(texts["layers"], texts["heads"], TEXT) if "layers" in texts else HeadSet()
            found = HeadSet(known_encoder(source).heads | read)
        except InputError:
            return HeadSet()
        with self._lock:
            self._heads[name] = found
        return found.of_encoder(encoder)

    def keep(self, name: str, model: Model) -> None:
        """Keep a model that is loaded."""
        with self._lock:
            self._models[name], self._heads[name] = model, model.heads
            with suppress(InputError):  # a text encoder that cannot be taken apart has none
                self._heads[name] = HeadSet(model.heads | model.text_heads)

    def _load(self, name: str, place: str) -> None:
        try:
            with self._one:  # three models at once may be more than the machine holds
                model = self._loaded(name, place)
            self.keep(name, model)
        except InputError as error:
            with self._lock:
                self._failed[name] = for_visitors(error)
        except Exception:  # a thread of its own: what it does not tell nobody would see
            log.exception("the model %s could not be loaded", name)
            with self._lock:
                self._failed[name] = f"{name} could not be loaded; the error has been logged."
        finally:
            with self._lock:
                self._loads.pop(name, None)

    def _loaded(self, name: str, place: str) -> Model:
        load = self._loads[name]
        load.takes, load.began = footprint(place, self._token(name)), time.monotonic()
        # Before the new one is there, and before its size is held against what is free.
        with self._lock:
            while len(self._models) >= KEPT:
                gone, _ = self._models.popitem()
                offered = self.offered.get(gone)
                if offered and not offered.here and gone.startswith(HUB) and gone not in self.given:
                    forget(gone.removeprefix(HUB))
        require_room(load.takes.name, load.takes.memory)
        model = ccs.load(place, device=AUTO, layers=self._layers(name) or None, token=self._token(name))
        _ = model.weights_hash  # half a second for whoever asks first
        return model

    def _token(self, name: str) -> bool | None:
        """False, so that the Hub is not told this machine's token, for what the owner did not name."""
        return None if name in self.given else False

    def place(self, name: str) -> str:
        """The place by which `ccs.load` finds the model; InputError for a name that selects nothing."""
        if name in self.given or name in self.offered or is_public(name):
            return self.given.get(name, name)
        raise InputError(
            f"The weights of {name} are not loaded here: a folder or a repository on the Hub is named by "
            "the machine’s owner (python app.py --model FOLDER)."
        )


def shown_name(place: str) -> str:
    """The name of a model that the owner gives: as in tables, a folder by its last part."""
    path = Path(place.removeprefix(FOLDER)).expanduser()
    return path.resolve().name if not place.startswith(HUB) and path.is_dir() else place


def saw_drawings_only(name: str) -> bool:
    """True for a model trained on the drawn world alone: an embedded one, or one with planted heads."""
    return name != PHOTO and name in embedded()


def photographic() -> str:
    """The model that is offered where one has seen drawings only: an embedded one needs no download."""
    return PHOTO if PHOTO in embedded() else next(iter(live_models()))


def bundled_models() -> tuple[str, ...]:
    """Models that need no download, the skewed one first: it is the example."""
    return tuple(sorted(embedded(), key=lambda name: (name != "organism", name)))
