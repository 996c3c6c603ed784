"""Encoded images: decoding one, and checking that it is whole."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

# Pillow's errors for a file that is truncated, corrupt, no image, or absurdly large.
UNREADABLE = (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError)


def decode(data: bytes) -> Image.Image:
    """The `upright` image in these bytes. Raises one of `UNREADABLE` if they are not a complete image."""
    return upright(Image.open(io.BytesIO(data)))


def upright(image: Image.Image) -> Image.Image:
    """The image (its first frame) as RGB, upright and opaque.

    EXIF rotation is applied, transparency is laid over white, 16-bit gray is scaled to 8 bits.
    """
    image.load()
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def problem(data: bytes) -> str:
    """The reason why the bytes are not a complete image, or "".

    JPEG is decoded at an eighth of its size, which reads all of its data at little cost.
    """
    if not data:
        return "empty file"
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.draft("RGB", (max(1, image.width // 8), max(1, image.height // 8)))
            image.load()
    except UnidentifiedImageError:
        return "not an image of a known kind"
    except UNREADABLE as error:
        return " ".join(str(error).split()) or type(error).__name__
    return ""
