"""The images that a visitor works on: the examples and their classes, how a model sees them, and values of
their patches as pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from PIL import Image
from torch import Tensor

from ccs.app.services.cache import Memory
from ccs.app.services.model_cache import PHOTO, saw_drawings_only
from ccs.app.services.uploads import InputImage, data_url, read
from ccs.app.state import parse_int
from ccs.data import synthetic
from ccs.errors import InputError
from ccs.heads import IMAGE, HeadSet, Intervention
from ccs.model.encoder import NO_HEADS, Trunk
from ccs.model.maps import attention, heatmap
from ccs.model.model import Model

T = TypeVar("T")

SIDE = 192
DARK = 0.33  # brightness of a patch that gets no attention
FOR, AGAINST = (np.array(rgb, np.float32) for rgb in ((214, 40, 40), (38, 96, 220)))
DEEPEST = 0.85  # how far the largest value hides the image
SHOWN = 4
PAGES = 25
PHOTOGRAPHS, DRAWN = "photographs", "subjects"  # DRAWN: the dataset that toy models classify best
_PICTURED = {"cat": "cat", "coffee": "cup of coffee", "astronaut": "astronaut", "rocket": "rocket"}
_OTHERS = ("dog", "cup of tea", "pilot", "airplane")
"""Contents of the photographs that ship (see NOTICE), and other classes to ask about them."""
_TAUGHT = ("cat", "coffee", "uniform", "missile", "dog", "bottle", "robe", "tower")
"""The same in words that `photo` was taught, or the nearest: it never saw an astronaut or a rocket named
(research/photographs/classes.csv).
"""


@dataclass(frozen=True)
class Example:
    """Four images of a set, with what to ask about them."""

    images: tuple[InputImage, ...]
    classes: tuple[str, ...]
    templates: tuple[str, ...]
    answers: tuple[str, ...]


def example_names(model: str = "") -> tuple[str, ...]:
    """The sets that images can be taken from: drawn ones, occupations first, and the photographs; for a model
    that has seen photographs these alone.
    """
    if model and not saw_drawings_only(model):
        return (PHOTOGRAPHS,)
    names = synthetic.classification_names()
    drawn = sorted(names, key=lambda name: (name != DRAWN, names.index(name)))
    return (*drawn, PHOTOGRAPHS)


def example_pages(name: str) -> int:
    """The number of pages of four images that a set has."""
    return 1 if name == PHOTOGRAPHS else PAGES


def first_example(model: str) -> str:
    """The first images for a model: drawings if it was trained on these alone, else photographs."""
    return "" if saw_drawings_only(model) else f"{PHOTOGRAPHS}:0"


def parse_example(example: str) -> tuple[str, int]:
    """`occupations:3` is the set occupations and its fourth page; InputError where there is none such."""
    name, _, page = (example or DRAWN).partition(":")
    number = parse_int(page or "0", "example’s page")
    if name not in example_names() or number >= example_pages(name):
        raise InputError(f"There is no example {example[:60]!r}; one looks like occupations:0.")
    return name, number


def load_example(example: str, model: str = "") -> Example:
    """The four images of `occupations:3`, drawn from seeds that training never sees, or the photographs.

    The photographs' classes are in words that the model knows.
    """
    name, page = parse_example(example)
    if name == PHOTOGRAPHS:
        folder = Path(__file__).parent / PHOTOGRAPHS
        photographs = tuple(
            replace(read(folder / f"{one}.jpg"), name=shown, origin="photograph of")
            for one, shown in _PICTURED.items()
        )
        classes = _TAUGHT if model == PHOTO else (*_PICTURED.values(), *_OTHERS)
        return Example(photographs, classes, ("a photo of a {}",), classes[: len(photographs)])
    whole = synthetic.classification_set(name)
    # Steps through the classes so that four neighbors are four different things.
    indices = [(page * SHOWN + i) * 7 % len(whole.images) for i in range(SHOWN)]
    answers = tuple(whole.classes[whole.labels[i]] for i in indices)
    shown = tuple(
        InputImage(answer, whole.images[i], "drawn as") for i, answer in zip(indices, answers, strict=True)
    )
    return Example(shown, whole.classes, whole.templates, answers)


@dataclass(frozen=True)
class Images:
    """The images at hand, and what models make of them: made once, and kept in a visitor's memory."""

    shown: tuple[InputImage, ...]
    memory: Memory

    def _kept(self, model: Model, what: str, make: Callable[[], T], *more: Hashable) -> T:
        images = tuple(image.key for image in self.shown)
        return self.memory.get((what, model.weights_hash, images, *more), make)

    def pixels(self, model: Model) -> Tensor:
        """The images as the model takes them [images, 3, s, s]."""
        return self._kept(model, "pixels", lambda: model.preprocess([image.pixels for image in self.shown]))

    def trunk(self, model: Model, layer: int = 0, off: HeadSet = NO_HEADS) -> Trunk:
        """The activations that enter a layer, or the first prunable one where that is above it, with those
        of the image encoder's heads off that lie below.
        """
        if layer <= model.encoder.first_prunable_layer:
            return self._kept(model, "trunk", lambda: model.trunk(self.pixels(model)))
        below = Intervention(off).subset(head for head in off.of_encoder(IMAGE) if head.layer < layer)
        start, encoder = self.trunk(model), model.encoder.ablated(below)
        return self._kept(model, "trunk", lambda: encoder.trunk(start, layer), layer, below)

    def embed(self, model: Model, plans: Sequence[HeadSet]) -> np.ndarray:
        """Embeddings [plans, images, d], with the image encoder's heads off."""

        def embedded(off: HeadSet) -> np.ndarray:
            start = self.trunk(model, min(off.layers, default=model.n_layers - 1))
            return self._kept(model, "embed", lambda: model.embed_images(start, off), off)

        return np.stack([embedded(off.of_encoder(IMAGE)) for off in plans])

    def looks(self, model: Model, layer: int, off: HeadSet) -> np.ndarray:
        """Where a layer's heads look [images, heads, rows, columns], with the heads of `off` below it so."""
        start, heads = self.trunk(model, layer, off), model.encoder.all_heads.of_layer(layer)
        return attention(model, start, heads)

    def sent(self, model: Model, heads: HeadSet, along: np.ndarray, off: HeadSet) -> np.ndarray:
        """What patches send through heads along vectors [E, d]: [images, E, rows, columns]."""
        start, off = self.trunk(model, min(heads.layers), off), off.of_encoder(IMAGE)
        sent = partial(heatmap, model, start, along, heads, ablate=off)
        return self._kept(model, "sent", sent, heads, off, hash(along.tobytes()))

    def contributions(self, model: Model) -> tuple[np.ndarray, np.ndarray]:
        """The heads' contributions [heads, d] to the first image's embedding, and the embedding [d]."""

        def make() -> tuple[np.ndarray, np.ndarray]:
            start = self.trunk(model)[:1]
            whole, parts = model.embed_with_contributions(start, HeadSet(), model.heads)
            return parts.direct[0], whole[0]

        return self._kept(model, "contributions", make)

    def seen(self, model: Model) -> tuple[Image.Image, ...]:
        """The images as the model gets them."""
        return self._kept(model, "seen", lambda: tuple(as_seen(model, one) for one in self.pixels(model)))


# -- values of patches, as pictures over an image ------------------------------------------------------------


class Overlay(NamedTuple):
    """A picture as a `data:` URL; rows and columns of patches, then their values, as pointing says them."""

    url: str
    patches: str


def as_seen(model: Model, pixels: Tensor) -> Image.Image:
    """Pixels from `preprocess` [3, s, s] as an image, 8 bits a channel."""
    mean, std = (np.reshape(model.preprocess_config[name], (3, 1, 1)) for name in ("mean", "std"))
    levels = np.clip((pixels.numpy() * std + mean) * 255, 0, 255).round().astype(np.uint8)
    return Image.fromarray(levels.transpose(1, 2, 0))


def lit(image: Image.Image, values: np.ndarray, most: float) -> Overlay:
    """The image, each patch as bright as its value [rows, columns]: dark at 0, as it is from `most` on."""
    bright = DARK + (1 - DARK) * _spread_out(np.minimum(values / most, 1))
    return _overlay(_pixels(image) * bright, values, "{:.2%}")


def tinted(image: Image.Image, values: np.ndarray, most: float) -> Overlay:
    """The image in gray, red where values [rows, columns] are above zero, blue below; `most` is deepest."""
    shares = _spread_out(np.clip(values / most, -1, 1) if most > 0 else np.zeros_like(values))
    depth = DEEPEST * np.abs(shares)
    gray = _pixels(image.convert("L").convert("RGB"))
    return _overlay(gray * (1 - depth) + np.where(shares > 0, FOR, AGAINST) * depth, values, "{:+.6f}")


def by_patch(*maps: np.ndarray) -> list[list[float]]:
    """A table's rows: where each patch is, and its value in each of the maps [rows, columns]."""
    return [[y, x, *(round(float(one[y, x]), 8) for one in maps)] for y, x in np.ndindex(maps[0].shape)]


def _pixels(image: Image.Image) -> np.ndarray:
    return np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BICUBIC), np.float32)


def _spread_out(levels: np.ndarray) -> np.ndarray:
    """Values of patches at every pixel [SIDE, SIDE, 1]."""
    whole = Image.fromarray(levels.astype(np.float32)).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    return np.asarray(whole)[..., None]


def _overlay(pixels: np.ndarray, values: np.ndarray, form: str) -> Overlay:
    image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    said = [form.format(value) for value in values.ravel().tolist()]
    return Overlay(data_url(image), " ".join(map(str, (*values.shape, *said))).replace("-", "−"))
