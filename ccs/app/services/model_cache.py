"""The models: which can be chosen, and those in memory, loaded when first requested, at most two kept."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from cachetools import LRUCache, TTLCache

import ccs
from ccs.app.html import for_visitors
from ccs.app.jobs import Tell, keep_quiet
from ccs.errors import InputError
from ccs.heads import IMAGE, TEXT, HeadSet, last_layers
from ccs.model.loading.sources import AUTO, FOLDER, HUB, embedded, find_model, is_public, known_encoder

if TYPE_CHECKING:
    from ccs.model.model import Model

log = logging.getLogger(__name__)

PHOTO = "photo"  # the bundled model that was trained on photographs
KEPT = 2
RETRY = 60.0  # seconds after which a model that could not be loaded is tried again
PATIENCE = 20.0  # seconds that a visitor waits for a model before an error says that it is still loading
WAITING = 4  # models that may wait at once; they are loaded one after the other
_HASHES: WeakKeyDictionary[Model, str] = WeakKeyDictionary()


@cache
def live_models() -> Mapping[str, int]:
    """Return the listed models that need only their weights, with the weights' bytes on the Hub."""
    sizes: dict[str, int] = json.loads(files(__package__).joinpath("live.json").read_text("utf-8"))
    return sizes


class ModelCache:
    """Models by name. When a third is requested, the least recently used one goes. Threads may share it.

    Results and links cannot name a place; they select bundled models and open_clip's.

    Args:
        places: Places (folders, repositories on the Hub) that the machine's owner offers, by shown name.
        layers: Function from a name to the layers that its results score, none without results.
    """

    def __init__(
        self,
        places: Mapping[str, str] = MappingProxyType({}),
        layers: Callable[[str], Collection[int]] = lambda name: (),
    ) -> None:
        self.places, self._layers = places, layers
        self._models: LRUCache[str, Model] = LRUCache(KEPT)
        self._failed: TTLCache[str, str] = TTLCache(100, RETRY)
        self._loads: dict[str, Future[Model]] = {}
        self._loader = ThreadPoolExecutor(1)  # three models at once may be more than the machine holds
        self._heads: dict[tuple[str, str], HeadSet] = {}  # by name and encoder
        self._lock = threading.RLock()

    def __contains__(self, name: str) -> bool:
        return name in self._models

    def get(self, name: str, tell: Tell = keep_quiet) -> Model:
        """Return a model, loaded if need be. One that couldn't be loaded isn't tried again for a minute.

        Args:
            name: The model.
            tell: Publishes the progress. Without it, loading continues without the caller after `PATIENCE`.

        Raises:
            InputError: If the model isn't available, is still being loaded, or too many wait.
        """
        with self._lock:
            if name in self._models:
                return self._models[name]
            if name in self._failed:
                raise InputError(self._failed[name])
            if name not in self._loads:
                place = self.place(name)
                if len(self._loads) >= WAITING:
                    raise InputError(f"{WAITING} models are being loaded already; try again in a moment.")
                self._loads[name] = self._loader.submit(self._load, name, place)
            load = self._loads[name]
        start = time.monotonic()
        while not wait([load], 0.25).done:
            if tell is keep_quiet and time.monotonic() - start > PATIENCE:
                raise InputError(f"{name} is still being loaded; ask again in a moment.")
            tell(0.0, f"Loading {name}")
        return load.result()

    def failure(self, name: str) -> str:
        """Return why the model wasn't available when last tried, "" if it was or wasn't tried."""
        return str(self._failed.get(name, ""))

    def heads_of(self, name: str, encoder: str = IMAGE) -> HeadSet:
        """Return an encoder's heads that can be ablated, as far as known without loading the model.

        Args:
            name: The model.
            encoder: `IMAGE` or `TEXT`.

        Returns:
            The heads, none if they aren't known yet.
        """
        if (name, encoder) not in self._heads:
            with suppress(InputError):
                source = find_model(self.place(name))
                config = source.config["text_cfg"]
                if encoder == IMAGE:
                    self._heads[name, encoder] = known_encoder(source).heads
                elif "layers" in config:
                    self._heads[name, encoder] = last_layers(config["layers"], config["heads"], TEXT)
        return self._heads.get((name, encoder), HeadSet())

    def keep(self, name: str, model: Model) -> None:
        """Keep a loaded model.

        Args:
            name: The name that selects it.
            model: The model.
        """
        self._heads[name, IMAGE] = model.heads
        with suppress(InputError):  # a text encoder without known heads
            self._heads[name, TEXT] = model.text_heads
        with self._lock:
            self._models[name] = model

    def place(self, name: str) -> str:
        """Return the place by which `ccs.load` finds a model. Raises InputError if the name selects none."""
        if name in self.places or is_public(name):
            return self.places.get(name, name)
        raise InputError(
            f"The weights of {name} are not loaded here: a folder or a repository on the Hub is named by "
            "the machine’s owner (python app.py --model FOLDER)."
        )

    def _load(self, name: str, place: str) -> Model:
        try:
            with self._lock:
                while len(self._models) >= KEPT:  # before memory is taken for another
                    self._models.popitem()
            model = ccs.load(place, device=AUTO, layers=self._layers(name) or None)
            hash_of(model)  # half a second for whoever asks first
            self.keep(name, model)
            return model
        except Exception as error:
            if not isinstance(error, InputError):
                log.exception("the model %s could not be loaded", name)
                error = InputError(f"{name} could not be loaded; the error has been logged.")
            self._failed[name] = for_visitors(error)
            raise InputError(self._failed[name]) from None
        finally:
            with self._lock:
                del self._loads[name]


def hash_of(model: Model) -> str:
    """Return the hash of a model's weights, read once: nothing changes the weights of the app's models."""
    if model not in _HASHES:
        _HASHES[model] = model.weights_hash
    return _HASHES[model]


def shown_name(place: str) -> str:
    """Return the shown name of a place that the owner gives: a folder's last part, else the place."""
    path = Path(place.removeprefix(FOLDER)).expanduser()
    return path.resolve().name if not place.startswith(HUB) and path.is_dir() else place


def saw_drawings_only(name: str) -> bool:
    """Return True for a bundled model that was trained only on the synthetic world."""
    return name != PHOTO and name in embedded()


def describe_kind(name: str) -> str:
    """Return what a model is: a toy model of drawings or photographs, or a CLIP."""
    if name == PHOTO:
        return "toy model, photographs"
    return "toy model, drawings" if saw_drawings_only(name) else "CLIP"


def photographic() -> str:
    """Return the model that is offered to visitors with photographs."""
    return PHOTO if PHOTO in embedded() else next(iter(live_models()))


def bundled_models() -> tuple[str, ...]:
    """Return the models that need no download, the biased one first."""
    return tuple(sorted(embedded(), key=lambda name: (name != "organism", name)))
