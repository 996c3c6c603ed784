"""Encoded images: decoding one, and checking that it is whole."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from ccs import gate

FORMATS, MOST_PIXELS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"), 40_000_000
"""The formats of a stranger's images, and the most pixels of one."""
SHORT, LONG = 512, 2048
"""The most pixels of the shorter and the longer side of a stranger's image; a model sees 64 to 448."""
Pixels = tuple[tuple[int, int], bytes]
"""Width and height, and the values RGB of each pixel."""

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


def strangers_image(data: bytes) -> Image.Image:
    """`decode`, behind the gate, and no larger than `small` makes it. Raises InputError."""
    size, values = gate.run(small, data, what="An image", seconds=3.0)
    return Image.frombytes("RGB", size, values)


def small(data: bytes) -> Pixels:
    """The upright image in these bytes, of at most `SHORT` by `LONG` pixels. Raises one of `UNREADABLE`."""
    with Image.open(io.BytesIO(data), formats=FORMATS) as file:
        _require_usual(file)
        image = upright(file)
    scale = min(SHORT / min(image.size), LONG / max(image.size))
    if scale < 1:
        size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
        image = image.resize(size, Image.Resampling.LANCZOS)
    return image.size, image.tobytes()


def _require_usual(image: Image.Image) -> None:
    if image.width * image.height > MOST_PIXELS:
        raise ValueError(f"it has more than {MOST_PIXELS // 10**6} megapixels")
    if max(image.size) > 50 * min(image.size):
        raise ValueError(f"its {image.width} x {image.height} pixels are too narrow for a model")


def problem(data: bytes, formats: tuple[str, ...] | None = None) -> str:
    """The reason why the bytes are not a complete image, or "". formats: those allowed, all by default.

    JPEG is decoded at an eighth of its size, which reads all of its data at little cost.
    """
    if not data:
        return "empty file"
    try:
        with Image.open(io.BytesIO(data), formats=formats) as image:
            if formats:
                _require_usual(image)
            image.draft("RGB", (max(1, image.width // 8), max(1, image.height // 8)))
            image.load()
    except UnidentifiedImageError:
        return "not an image of a known kind"
    except UNREADABLE as error:
        return " ".join(str(error).split()) or type(error).__name__
    return ""
