"""What callers give for images and texts, as a sequence that is read item by item."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Set
from os import PathLike
from typing import Any

from PIL import Image
from torch import Tensor

from ccs.errors import InputError


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
