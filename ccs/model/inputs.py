"""Images and texts from callers: sequences that are read item by item, and pixels."""

import operator
from collections.abc import Mapping, Set
from os import PathLike
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ccs.errors import InputError

OPENAI = {"mean": (0.48145466, 0.4578275, 0.40821073), "std": (0.26862954, 0.26130258, 0.27577711)}
"""Mean and deviation of the pixels of OpenAI's models."""
PREPROCESSING = {
    "mode": "RGB",
    **OPENAI,
    "interpolation": "bicubic",
    "resize_mode": "shortest",
    "fill_color": 0,
}
"""open_clip's default preprocessing, without the size."""


def as_sequence(inputs: Any) -> Any:
    """Return images or texts as something with a length and items by number.

    Args:
        inputs: Any sequence, which is returned as it is, however lazy; pixels or a trunk; a generator, an
            array, or a pandas Series, which become a list.

    Raises:
        InputError: If it is a single image or text, or has no order or no items.
    """
    name = type(inputs).__name__
    if isinstance(inputs, Image.Image | str | bytes | PathLike) or getattr(inputs, "ndim", 1) == 0:
        raise InputError("Images and texts must be given as a list, even if there is only one.")
    if isinstance(inputs, Mapping | Set) or hasattr(inputs, "columns"):
        raise InputError(f"Images and texts must be given as a list, not as a {name}; choose a column of it.")
    if isinstance(inputs, Tensor) or (
        hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__") and not hasattr(inputs, "iloc")
    ):
        return inputs
    try:
        return list(inputs)
    except TypeError:
        raise InputError(f"Images and texts must be given as a list, not {name}.") from None


def batch_length(size: int | None, default: int) -> int:
    """Return the number of inputs in a batch.

    Args:
        size: The requested number.
        default: The number if none is requested.

    Raises:
        InputError: If the requested number isn't a whole number from 1.
    """
    if size is None:
        return default
    if isinstance(size, bool) or not hasattr(size, "__index__") or operator.index(size) < 1:
        raise InputError(f"A batch holds at least one image, not {size}.")
    return operator.index(size)


def to_pixels(image: Image.Image, config: Mapping[str, Any], size: tuple[int, int], floors: bool) -> Tensor:
    """Preprocess an RGB image as open_clip does: pixels [3, height, width] float32.

    Args:
        image: The image.
        config: The open_clip configuration of the preprocessing.
        size: Height and width.
        floors: Cut an odd pixel off at the end, as transformers does.

    Raises:
        ValueError: If the image has no pixels.
    """
    height, width = size
    if not all(image.size):
        raise ValueError("it has no pixels")
    if config["resize_mode"] == "longest" or (height != width and config["resize_mode"] == "shortest"):
        from open_clip.transform import PreprocessCfg, image_transform_v2

        return image_transform_v2(PreprocessCfg(**config), is_train=False)(image)  # type: ignore[no-any-return]
    is_linear = "bilinear" in config["interpolation"]
    resample = Image.Resampling.BILINEAR if is_linear else Image.Resampling.BICUBIC
    if config["resize_mode"] == "squash":
        image = image.resize((width, height), resample)
    else:
        shorter = min(image.size)
        wide, high = (int(width * edge / shorter) for edge in image.size)
        left, top = ((wide - width) / 2, (high - height) / 2)
        left, top = (int(edge) if floors else round(edge) for edge in (left, top))
        image = image.resize((wide, high), resample).crop((left, top, left + width, top + height))
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div(255)
    mean, std = (torch.tensor(config[key]).view(3, 1, 1) for key in ("mean", "std"))
    return pixels.sub_(mean).div_(std)
