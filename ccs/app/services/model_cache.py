"""The models: which can be chosen, and those in memory, loaded when first requested, at most two kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from weakref import WeakKeyDictionary

import ccs
from ccs.app.services.cache import Loader
from ccs.errors import InputError
from ccs.heads import TEXT, HeadSet, last_layers
from ccs.model.loading.sources import AUTO, FOLDER, HUB, embedded, find_model, is_public, known_encoder

PHOTO = "photo"  # the bundled model that was trained on photographs
KEPT = 2  # three models at once may be more than the machine holds
LIVE_MODELS: dict[str, int] = json.loads(files(__package__).joinpath("live.json").read_text("utf-8"))
"""The listed models that need only their weights, with the weights' bytes on the Hub."""
_HASHES: WeakKeyDictionary[ccs.Model, str] = WeakKeyDictionary()


class ModelCache(Loader["ccs.Model"]):
    """Models by name, at most two in memory. Threads may share it.

    Results and links cannot name a place; they select bundled models and open_clip's.

    Args:
        places: Places (folders, repositories on the Hub) that the machine's owner offers, by shown name.
        layers: Function from a name to the layers that its results score, none without results.
    """

    def __init__(self, places: Mapping[str, str], layers: Callable[[str], Collection[int]]) -> None:
        super().__init__(self._load, KEPT, "Loading {}".format)
        self.places, self._layers, self._heads = places, layers, dict[str, HeadSet]()

    def heads_of(self, name: str, scored: HeadSet) -> HeadSet:
        """Return both encoders' heads that can be ablated, as far as they are known before it is loaded.

        Args:
            name: The model.
            scored: Its image encoder's heads in the results, none without results.
        """
        if name not in self._heads:
            with suppress(InputError):
                source = find_model(self.place(name))
                text = source.config["text_cfg"]
                heads = last_layers(text["layers"], text["heads"], TEXT) if "layers" in text else ()
                self._heads[name] = HeadSet([*(scored or known_encoder(source).heads), *heads])
        return self._heads.get(name, scored)

    def keep(self, name: str, model: ccs.Model) -> None:
        """Keep a loaded model.

        Args:
            name: The name that selects it.
            model: The model.
        """
        self._heads[name] = model.heads
        with suppress(InputError):  # a text encoder without known heads
            self._heads[name] = HeadSet([*model.heads, *model.text_heads])
        self.loaded[name] = model

    def place(self, name: str) -> str:
        """Return the place by which `ccs.load` finds a model. Raises InputError if the name selects none."""
        if name in self.places or is_public(name):
            return self.places.get(name, name)
        raise InputError(f"The weights of {name} are not loaded here; start the app with --model FOLDER.")

    def _load(self, name: str) -> ccs.Model:
        model = ccs.load(self.place(name), device=AUTO, layers=self._layers(name) or None)
        hash_of(model)  # takes half a second the first time
        self.keep(name, model)
        return model


def hash_of(model: ccs.Model) -> str:
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
    toy = "toy model, photographs" if name == PHOTO else "toy model, drawings"
    return toy if name in embedded() else "CLIP"


def bundled_models() -> tuple[str, ...]:
    """Return the models that need no download, the biased one first."""
    return tuple(sorted(embedded(), key=lambda name: (name != "organism", name)))
