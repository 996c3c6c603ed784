"""A visitor's images and examples, what a model makes of them, and maps of patches as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

import ccs
from ccs.app.services.model_cache import PHOTO, saw_drawings_only
from ccs.app.services.uploads import InputImage, data_url
from ccs.data import synthetic
from ccs.data.decoding import small
from ccs.errors import InputError

SIDE = 192
DARK = 0.33  # brightness of a patch that gets no attention
RED, BLUE = "#d62828", "#2660dc"
DEEPEST = 0.85  # opacity at the largest value
SHOWN = 4
PHOTOGRAPHS, DRAWN = "photographs", "subjects"  # DRAWN: the dataset that toy models classify best
PAGES = {DRAWN: 25, **dict.fromkeys(synthetic.CLASSES, 25), PHOTOGRAPHS: 1}
"""The number of pages of four images that each dataset has."""
_PICTURED = {"cat": "cat", "coffee": "cup of coffee", "astronaut": "astronaut", "rocket": "rocket"}
_OTHERS = ("dog", "cup of tea", "pilot", "airplane")
"""Contents of the bundled photographs (see NOTICE), and other classes to ask about them."""
_LEARNED = ("cat", "coffee", "uniform", "missile", "dog", "bottle", "robe", "tower")
"""The same classes in words that `photo` has learned, or the nearest (research/photographs/classes.csv)."""


@dataclass(frozen=True)
class Example:
    """Four images of a dataset.

    Attributes:
        images: The images.
        classes: The classes to classify them into.
        templates: The prompts.
        answers: The true class of each image.
    """

    images: tuple[InputImage, ...]
    classes: tuple[str, ...]
    templates: tuple[str, ...]
    answers: tuple[str, ...]


def example_names(model: str = "") -> tuple[str, ...]:
    """Return the datasets of examples, synthetic ones first; only photographs for a model that knows them."""
    if model and not saw_drawings_only(model):
        return (PHOTOGRAPHS,)
    return tuple(PAGES)


def first_example(model: str) -> str:
    """Return the first images for a model: drawings if it was trained only on these, else photographs."""
    return "" if saw_drawings_only(model) else f"{PHOTOGRAPHS}:0"


def parse_example(example: str) -> tuple[str, int]:
    """Read `occupations:3` as the dataset and its fourth page. Raises InputError if there is no such page."""
    name, _, page = (example or DRAWN).partition(":")
    if name not in PAGES or (page or "0") not in map(str, range(PAGES[name])):
        raise InputError(f"There is no example {example[:60]!r}; one looks like occupations:0.")
    return name, int(page or 0)


def load_example(example: str, model: str = "") -> Example:
    """Return four images that no training has seen.

    Args:
        example: A dataset and page, such as `occupations:3`.
        model: The model, for the photographs' classes in words that it knows.
    """
    name, page = parse_example(example)
    if name == PHOTOGRAPHS:
        folder = Path(__file__).parent / PHOTOGRAPHS
        photographs = [small((folder / f"{file}.jpg").read_bytes()) for file in _PICTURED]
        shown, contents = [Image.frombytes("RGB", *pixels) for pixels in photographs], [*_PICTURED.values()]
        classes = _LEARNED if model == PHOTO else (*contents, *_OTHERS)
        templates: tuple[str, ...] = ("a photo of a {}",)
        origin, answers = "photograph of", classes[: len(contents)]
    else:
        dataset = synthetic.classification_set(name)
        # Steps through the classes so that four neighbors are four different things.
        indices = [(page * SHOWN + i) * 7 % len(dataset.images) for i in range(SHOWN)]
        shown, classes = [dataset.images[i] for i in indices], dataset.classes
        contents = [classes[dataset.labels[i]] for i in indices]
        origin, templates, answers = "drawn as", dataset.templates, tuple(contents)
    images = (InputImage(text, image, origin) for text, image in zip(contents, shown, strict=True))
    return Example(tuple(images), classes, templates, answers)


# -- values of patches, as pictures over an image ------------------------------------------------------------


def as_model_input(model: ccs.Model, pixels: Any) -> Image.Image:
    """Return preprocessed pixels as an image, 8 bits a channel.

    Args:
        model: The model whose `preprocess` made the pixels.
        pixels: Pixels [3, s, s], normalized by the model's mean and standard deviation.
    """
    mean, std = (np.reshape(model.preprocess_config[name], (3, 1, 1)) for name in ("mean", "std"))
    levels = np.clip((pixels.numpy() * std + mean) * 255, 0, 255).round().astype(np.uint8)
    return Image.fromarray(levels.transpose(1, 2, 0))


def highlight(image: Image.Image, values: np.ndarray, largest: float) -> str:
    """Return the image as a `data:` URL, each patch as bright as its value.

    Args:
        image: The image.
        values: Values of the patches [rows, columns]; 0 is dark.
        largest: The value at which a patch is as bright as in the image. Larger ones look the same.
    """
    brightness = DARK + (1 - DARK) * np.minimum(values / largest, 1)
    return data_url(_painted(_sized(image), "black", 1 - brightness))


def tint(image: Image.Image, values: np.ndarray, largest: float) -> str:
    """Return the image in gray as a `data:` URL, red where values are above zero, blue below.

    Args:
        image: The image.
        values: Values of the patches [rows, columns].
        largest: The value of the deepest color.
    """
    depth = DEEPEST * np.clip(values / (largest or np.inf), -1, 1)
    red = _painted(_sized(image.convert("L").convert("RGB")), RED, depth)
    return data_url(_painted(red, BLUE, -depth))


def patch_table(texts: Mapping[str, Sequence[str]], maps: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Return a row for each patch of each image.

    Args:
        texts: Column -> a text for each image.
        maps: Column -> the patches' values [images, rows, columns].
    """
    image, row, column = np.indices(next(iter(maps.values())).shape).reshape(3, -1)
    columns = {name: np.array(values, object)[image] for name, values in texts.items()}
    values = {name: values.ravel().astype(float) for name, values in maps.items()}
    return pd.DataFrame({**columns, "row": row, "column": column, **values}).round(8)


def _sized(image: Image.Image) -> Image.Image:
    return image.resize((SIDE, SIDE), Image.Resampling.BICUBIC)


def _painted(image: Image.Image, color: str, opacity: np.ndarray) -> Image.Image:
    """Return the image under a color that is as opaque as the value of each patch, 0 to 1."""
    mask = Image.fromarray((255 * opacity).astype(np.float32)).resize(image.size, Image.Resampling.BILINEAR)
    return Image.composite(Image.new("RGB", image.size, color), image, mask.convert("L"))
