"""The app's sets of images, and their embeddings by models and heads."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from cachetools import TTLCache

from ccs.app.html import describe_ablation, for_visitors
from ccs.app.jobs import Tell, keep_quiet
from ccs.app.services.cache import Cache
from ccs.app.services.model_cache import RETRY, saw_drawings_only
from ccs.app.state import NO_HEADS, OWN
from ccs.data import SOURCES, BiasSet, ImageSet, untrusted
from ccs.data.open import open_dataset, open_gallery, open_images
from ccs.errors import InputError
from ccs.heads import IMAGE, TEXT, HeadSet, changes

if TYPE_CHECKING:
    from ccs.model.encoder import Trunk
    from ccs.model.model import Model

MOST_OWN = 8  # galleries of visitors
MOST, STEP = 120, 10**11  # the most images and floating-point operations of a part
TRUNK_BYTES = 128 * 2**20
PICTURES, SEED = 300, 4
EXTREMES = 6

Extremes = tuple[list[tuple[int, float]], list[tuple[int, float]]]


@dataclass(frozen=True)
class World:
    """Names of the sets that a model is shown with.

    Attributes:
        people: The gallery that is ranked.
        things: The control dataset, on which the cost of an ablation in accuracy is measured.
        pictures: The images whose extremes and neighbors by a head are shown.
    """

    people: str
    things: str
    pictures: str


DRAWN = World("world/faces", "world/subjects", "world/images")
PHOTOGRAPHED = World("fairface-600", "cifar10-300", "open-images-300")
PAIRS = "world/counterfactuals"  # synthetic faces that differ only in their groups


def world(model: str) -> World:
    """Return the sets of a model: synthetic if it was trained on nothing else, else photographs."""
    return DRAWN if saw_drawings_only(model) else PHOTOGRAPHED


def _open(name: str) -> ImageSet:
    if name in (DRAWN.pictures, PHOTOGRAPHED.pictures):
        return open_images(name, PICTURES, seed=SEED)
    if name in (DRAWN.people, PHOTOGRAPHED.people, PAIRS):
        return open_gallery(name)
    dataset = open_dataset(name)
    assert isinstance(dataset, ImageSet)
    return dataset


@dataclass(frozen=True)
class EmbeddedGallery:
    """A gallery as one model embeds it, with all heads on.

    Attributes:
        trunk: Activations below the first layer with heads that can be ablated, None if too large to keep.
        base: Embeddings [n, d].
    """

    trunk: Trunk | None
    base: np.ndarray


def has_edits(heads: HeadSet) -> bool:
    """Return True if an intervention edits heads."""
    return any(change.attribute for _, change in changes(heads))


def batches(model: Model, images: Any, doing: str, tell: Tell) -> Iterator[Any]:
    """Yield images, or a trunk, in parts of about a second's work, and publish the progress before each.

    Args:
        model: The model that will process them, whose size sets the size of a part.
        images: Images, or a `Trunk` of them.
        doing: A phrase for the work, published with the progress.
        tell: Publishes the progress.

    Yields:
        A list of images, or a part of the trunk.
    """
    layer = getattr(images, "layer", None)  # of a trunk
    layers = model.n_layers - (layer or 0)
    operations = 24 * layers * model.encoder.n_tokens * model.encoder.width**2  # of an image
    n, step = len(images), int(min(MOST, max(4, STEP // operations)))
    for start in range(0, n, step):
        tell(start / n, doing)
        stop = min(start + step, n)
        yield images[start:stop] if layer is not None else [images[i] for i in range(start, stop)]


class Galleries:
    """All sets, each opened once. Threads may share it.

    Args:
        others: Galleries besides the app's own.
        cache: The cache for the models' results.
    """

    def __init__(self, others: Sequence[BiasSet], cache: Cache) -> None:
        self._sets: dict[str, ImageSet] = {gallery.name: gallery for gallery in others}
        self._others = tuple(self._sets)
        self._failed: TTLCache[str, str] = TTLCache(100, RETRY)
        self._cache = cache
        self._lock = threading.RLock()

    def names(self, model: str) -> tuple[str, ...]:
        """Return the names of a model's galleries, starting with the default."""
        sets = world(model)
        return (sets.people, *([PAIRS] if sets is DRAWN else []), *self._others)

    def add(self, gallery: BiasSet, owner: object) -> None:
        """Keep a visitor's gallery as long as its owner exists. If there are too many, the oldest goes.

        Args:
            gallery: Its name is `OWN` and something unguessable.
            owner: The visitor's session.
        """
        with self._lock:
            self._sets[gallery.name] = gallery
            uploads = [name for name in self._sets if name.startswith(OWN)]
            for name in uploads[:-MOST_OWN]:
                del self._sets[name]
        weakref.finalize(owner, self._sets.pop, gallery.name, None)

    def has(self, name: str) -> bool:
        """Return True if a set is in memory, or needs no download."""
        return name in self._sets or name in (*vars(DRAWN).values(), PAIRS)

    def fetch(self, name: str, tell: Tell = keep_quiet) -> None:
        """Download a set from the Hub unless it is in memory.

        Args:
            name: The set.
            tell: Publishes the progress.

        Raises:
            InputError: If the Hub doesn't have it or can't be reached. It isn't tried again for a minute.
        """
        if self.has(name) or name not in vars(PHOTOGRAPHED).values():
            return
        if name in self._failed:
            raise InputError(self._failed[name])

        def download() -> bool:
            if not untrusted.excerpt_file(SOURCES[name]).exists():
                tell(0.0, f"Fetching {SOURCES[name].title} from the Hub, once")
                untrusted.fetch_excerpt(SOURCES[name])
            self._sets[name] = _open(name)
            return True

        try:
            self._cache.get(("fetched", name), download, tell)
        except InputError as error:
            self._failed[name] = for_visitors(error)
            raise InputError(self._failed[name]) from None

    def find(self, name: str) -> ImageSet:
        """Return a set. Raises InputError for an unknown name, and for a set that hasn't been fetched."""
        with self._lock:
            if name not in self._sets:
                if name in vars(PHOTOGRAPHED).values():
                    raise InputError(self._failed.get(name) or f"{SOURCES[name].title} is being fetched.")
                if not self.has(name):
                    raise InputError(f"There is no gallery {name!r} here.")
                self._sets[name] = _open(name)
            return self._sets[name]

    def get(self, name: str) -> BiasSet:
        """Return a gallery. Raises InputError as `find` does, and for a set without people."""
        gallery = self.find(name)
        if not isinstance(gallery, BiasSet):
            raise InputError(f"{name} is no gallery of people.")
        return gallery

    def embed_gallery(self, model: Model, name: str, tell: Tell = keep_quiet) -> EmbeddedGallery:
        """Embed a gallery with all heads on, once.

        Args:
            model: The model.
            name: The gallery.
            tell: Publishes the progress.
        """
        from ccs.model.encoder import Trunk

        def compute() -> EmbeddedGallery:
            images, trunks, rows = self.find(name).images, [], []
            size = len(images) * model.encoder.n_tokens * model.encoder.width * 4
            for part in batches(model, images, f"{model.name} embeds {len(images)} images, once", tell):
                trunk = model.trunk(part)
                rows.append(model.embed_images(trunk))
                if size <= TRUNK_BYTES:
                    trunks.append(trunk)
            return EmbeddedGallery(Trunk.joined(trunks) if trunks else None, np.concatenate(rows))

        self.fetch(name, tell)
        return self._cache.get(("embedded", model.weights_hash, name), compute, tell)

    def fit(self, model: Model, name: str, heads: HeadSet, tell: Tell = keep_quiet) -> HeadSet:
        """Fit an intervention's edits on a gallery's groups, once; others are returned as they are.

        Args:
            model: The model.
            name: The gallery.
            heads: The intervention.
            tell: Publishes the progress.
        """
        if not has_edits(heads):
            return heads
        from ccs.model.editing import fit_edits

        trunk, people = self.embed_gallery(model, name, tell).trunk, self.get(name)

        def compute() -> HeadSet:
            tell(0.0, f"Fitting edits on {name}")
            inputs = people.images if trunk is None else trunk
            edits, _ = fit_edits(model, heads.of_encoder(IMAGE), inputs, people.groups)
            return edits | heads.of_encoder(TEXT)

        return self._cache.get(("fitted", model.weights_hash, name, heads), compute, tell)

    def is_fitted(self, model: Model, name: str, heads: HeadSet) -> bool:
        """Return True if `fit` has the answer at once.

        Args:
            model: The model.
            name: The gallery.
            heads: The intervention.
        """
        return not has_edits(heads) or ("fitted", model.weights_hash, name, heads) in self._cache

    def ready(self, model: Model, name: str, heads: HeadSet) -> bool:
        """Return True if `embeddings` has the answer at once.

        Args:
            model: The model.
            name: The gallery.
            heads: Heads to ablate. Only those of the image encoder count.
        """
        key, heads = (model.weights_hash, name), heads.of_encoder(IMAGE)
        return ("embedded", *key) in self._cache and (not heads or ("ablated", *key, heads) in self._cache)

    def embeddings(
        self, model: Model, name: str, heads: HeadSet = NO_HEADS, tell: Tell = keep_quiet
    ) -> np.ndarray:
        """Embed a gallery with the image encoder's heads ablated, once.

        Args:
            model: The model.
            name: The gallery.
            heads: Heads to ablate; those of the text encoder don't matter.
            tell: Publishes the progress.

        Returns:
            Unit embeddings [n, d].
        """
        whole = self.embed_gallery(model, name, tell)
        if not (heads := heads.of_encoder(IMAGE)):
            return whole.base
        fitted = self.fit(model, name, heads, tell)

        def compute() -> np.ndarray:
            images = whole.trunk or self.find(name).images
            doing = f"{model.name} embeds {len(images)} images with {describe_ablation(heads)}"
            parts = batches(model, images, doing, tell)
            return np.concatenate([model.embed_images(part, fitted) for part in parts])

        return self._cache.get(("ablated", model.weights_hash, name, heads), compute, tell)

    def embed_pictures(self, model: Model, tell: Tell = keep_quiet) -> np.ndarray:
        """Return the heads' contributions to the pictures of a model's world, computed once.

        Args:
            model: The model.
            tell: Publishes the progress.

        Returns:
            Contributions [n, heads, d], with the model's heads in order.

        Raises:
            InputError: If the pictures aren't available.
        """
        name = world(model.name).pictures

        def compute() -> np.ndarray:
            parts = batches(model, self.find(name).images, f"Embedding {PICTURES} pictures", tell)
            embedded = (model.embed_with_contributions(part, HeadSet(), model.heads) for part in parts)
            return np.concatenate([contributions.direct for _, contributions in embedded])

        self.fetch(name, tell)
        return self._cache.get(("pictures", model.weights_hash), compute, tell)

    def contributions(self, model: Model) -> np.ndarray | None:
        """Return what `embed_pictures` computed, None before it."""
        pictures: np.ndarray | None = self._cache.find(("pictures", model.weights_hash))
        return pictures


def extremes(direct: np.ndarray, along: np.ndarray | None, n: int = EXTREMES) -> Extremes:
    """Return pictures whose contribution lies farthest along a direction, and against it.

    Args:
        direct: Contributions of a head [n, d].
        along: A direction [d]. None for the contributions' first principal component, with the sign of the
            farthest one.
        n: The number of pictures at either end.

    Returns:
        Numbers and scores of the pictures at both ends. A score is the deviation from the mean picture, in
        standard deviations.
    """
    centered = direct - direct.mean(axis=0)
    if along is None:
        along = np.linalg.svd(centered, full_matrices=False)[2][0]
        far = centered @ along
        along = along * np.sign(far[np.abs(far).argmax()])
    scores = centered @ along
    scores = scores / (float(scores.std()) or 1.0)
    order = [(int(i), float(scores[i])) for i in np.argsort(-scores, kind="stable")]
    return order[:n], order[::-1][:n]
