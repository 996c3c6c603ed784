"""Values of an image's patches as pictures over it: lit by how much, or red for and blue against."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from PIL import Image

from ccs.model.model import Model
from ccs.ui.service.uploads import data_url

SIDE = 192
DARK = 0.33  # brightness of the patch that gets the least attention
FOR, AGAINST = (214, 40, 40), (38, 96, 220)
DEEPEST = 0.85  # how far the largest value hides the image


class Overlay(NamedTuple):
    """A picture as a `data:` URL; rows and columns of patches, then their values, as pointing says them."""

    url: str
    patches: str


def seen(model: Model, image: Image.Image) -> Image.Image:
    """The image as the model gets it: resized and cropped, 8 bits a channel."""
    config = model.preprocess_config
    pixels = model.preprocess([image])[0].numpy()
    mean, std = (np.reshape(config[name], (3, 1, 1)) for name in ("mean", "std"))
    levels = np.clip((pixels * std + mean) * 255, 0, 255).round().astype(np.uint8)
    return Image.fromarray(levels.transpose(1, 2, 0))


def lit(image: Image.Image, values: np.ndarray) -> Overlay:
    """The image, each patch as bright as its value [rows, columns], from the least to the largest."""
    spread = float(np.ptp(values))
    levels = (values - values.min()) / spread if spread > 0 else np.ones_like(values)
    bright = DARK + (1 - DARK) * _spread_out(levels)
    return _overlay(_pixels(image) * bright, values, "{:.2%}")


def tinted(image: Image.Image, values: np.ndarray, most: float) -> Overlay:
    """The image in gray, red where values [rows, columns] are above zero, blue below; `most` is deepest."""
    shares = _spread_out(np.clip(values / most, -1, 1) if most > 0 else np.zeros_like(values))
    depth = DEEPEST * np.abs(shares)
    gray = _pixels(image.convert("L").convert("RGB"))
    return _overlay(gray * (1 - depth) + np.where(shares > 0, FOR, AGAINST) * depth, values, "{:+.6f}")


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
