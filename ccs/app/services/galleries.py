"""The app's sets of images: galleries of people, control datasets, and pictures."""

import functools
from collections.abc import Sequence
from typing import NamedTuple, cast
from weakref import WeakValueDictionary

from ccs.app.jobs import Tell, keep_quiet, wait_for_nothing
from ccs.app.services.images import Images
from ccs.app.services.model_cache import Cache, Loader, saw_drawings_only
from ccs.data import BiasSet, ImageSet
from ccs.data.open import open_dataset, open_gallery, open_images
from ccs.errors import InputError

PICTURES, SEED = 300, 4


class World(NamedTuple):
    """Names of the sets for a model.

    Attributes:
        people: The default gallery.
        things: The control dataset, on which the cost of an ablation in accuracy is measured.
        pictures: The images whose extremes and neighbors by a head are shown.
        pairs: Synthetic faces that differ only in their groups, "" for none.
    """

    people: str
    things: str
    pictures: str
    pairs: str = ""


DRAWN = World("world/faces", "world/subjects", "world/images", "world/counterfactuals")
PHOTOGRAPHED = World("fairface-600", "cifar10-300", "hf://datasets/bitmind/open-image-v7-256:train")


def world(model: str) -> World:
    """Return the sets for a model: synthetic if it was trained only on that, else photographs."""
    return DRAWN if saw_drawings_only(model) else PHOTOGRAPHED


class Galleries:
    """All sets, each opened once. Thread-safe.

    Args:
        others: Galleries in addition to the app's own.
        cache: The cache for the models' results.
    """

    def __init__(self, others: Sequence[BiasSet], cache: Cache) -> None:
        self._others, self._cache, self._drawn = others, cache, functools.cache(_open)
        self._people = WeakValueDictionary({gallery.name: gallery for gallery in others})
        self._loader = Loader(_open, len(PHOTOGRAPHED), "Fetching {} from the Hub, once".format)

    def names(self, model: str) -> tuple[str, ...]:
        """Return the names of a model's galleries, starting with the default."""
        sets = world(model)
        return (*filter(None, (sets.people, sets.pairs)), *(gallery.name for gallery in self._others))

    def add(self, gallery: BiasSet) -> None:
        """Add a visitor's gallery for as long as the session holds it."""
        self._people[gallery.name] = gallery

    def has(self, name: str) -> bool:
        """Return True if a set needs no download. Raises InputError if there is no such set."""
        ready = name in self._people or name in DRAWN or name in self._loader.loaded
        if not ready and (not name or name not in PHOTOGRAPHED):
            raise InputError(f"There is no gallery {name[:60]!r} here.")
        return ready

    def find(self, name: str, tell: Tell = wait_for_nothing) -> ImageSet:
        """Return a set.

        Args:
            name: The set.
            tell: Publishes the progress of a download. By default nothing is downloaded.

        Raises:
            InputError: If there is no such dataset, or if it can't be downloaded. The next try is
                possible after a minute.
            NotReady: If it has to be downloaded and `tell` is `wait_for_nothing`.
        """
        if self.has(name) and (gallery := self._people.get(name)):
            return gallery
        return self._drawn(name) if name in DRAWN else self._loader.get(name, tell)

    def people(self, name: str, tell: Tell = wait_for_nothing) -> BiasSet:
        """Return a gallery.

        Args:
            name: The gallery.
            tell: Publishes the progress of a download. By default nothing is downloaded.

        Raises:
            InputError: As `find` does, and for a set without people.
        """
        gallery = self.find(name, tell)
        if not isinstance(gallery, BiasSet):
            raise InputError(f"{name} is not a gallery of people.")
        return gallery

    def images(self, name: str, tell: Tell = keep_quiet) -> Images:
        """Return a dataset's images, for models to embed. They are downloaded if needed.

        Args:
            name: The set.
            tell: Publishes the progress of the download and of models.

        Raises:
            InputError: As `find` does.
        """
        opened = self.find(name, tell)
        groups = getattr(opened, "groups", None) or {}
        return Images((name, opened.fingerprint), opened.images, self._cache, tell, groups=groups)


def _open(name: str) -> ImageSet:
    if name in (DRAWN.pictures, PHOTOGRAPHED.pictures):
        return open_images(name, PICTURES, seed=SEED)
    open_set = open_dataset if name in (DRAWN.things, PHOTOGRAPHED.things) else open_gallery
    return cast(ImageSet, open_set(name))
