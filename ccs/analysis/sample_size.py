"""The smallest number of images with which each result means something."""

from __future__ import annotations

import warnings

SMALLEST = {
    "head statistics": (100, "images"),
    "accuracy": (30, "images"),
    "bias": (10, "images per group"),
    "heads": (100, "images"),
}
"""Result -> the smallest useful number, and of what.

Head statistics of fewer images than a head has dimensions (64 in the usual models) have too low a rank for
five texts to be told apart. With 30 images the 95% interval of an accuracy of 50% is 36 points wide; with ten
images per group, one image moves a MaxSkew by 0.1.
"""


def warn_if_small(result: str, n: int) -> str | None:
    """Warn if a result comes from too few images.

    Args:
        result: A key of `SMALLEST`.
        n: The number of images, or of those of the smallest group.

    Returns:
        The warning, for the result's `about` or a manifest; None if there are enough.
    """
    smallest, unit = SMALLEST[result]
    if n >= smallest:
        return None
    message = f"Too few {unit} for {result}: {n}. Results mean little below {smallest}."
    warnings.warn(message, UserWarning, stacklevel=3)
    return message
