"""A head's attention over the patches, of the query that is read, as an overlay on the image."""

from __future__ import annotations

import numpy as np
from PIL import Image

from ccs.model.maps import on_patches
from ccs.model.model import Model

DARK = 85  # brightness, of 255, of the patch that gets the least attention


def seen(model: Model, image: Image.Image) -> Image.Image:
    """The image as the model gets it: resized and cropped, 8 bits a channel."""
    config = model.preprocess_config
    pixels = model.preprocess([image])[0].numpy()
    mean, std = (np.reshape(config[name], (3, 1, 1)) for name in ("mean", "std"))
    levels = np.clip((pixels * std + mean) * 255, 0, 255).round().astype(np.uint8)
    return Image.fromarray(levels.transpose(1, 2, 0))


def overlay(model: Model, image: Image.Image, attention: np.ndarray, side: int = 192) -> Image.Image:
    """The image (as `seen` gives it) with the patches that get attention lit and the others dimmed.

    attention: [tokens]. Brightness runs from the least to the most attended patch.
    """
    levels = on_patches(model, attention)
    spread = float(levels.max() - levels.min())
    levels = (levels - levels.min()) / spread if spread > 0 else np.ones_like(levels)
    mask = Image.fromarray((DARK + (255 - DARK) * levels).astype(np.uint8)).resize(
        (side, side), Image.Resampling.BICUBIC
    )
    shown = image.resize((side, side), Image.Resampling.BICUBIC)
    return Image.composite(shown, Image.new("RGB", shown.size, (18, 22, 28)), mask)
