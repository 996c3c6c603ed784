"""Decode images in the same way from every source: files, PIL images, zips, Parquet cells, and uploads."""

import io
import struct

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from ccs import sandbox

FORMATS, MOST_PIXELS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"), 40_000_000
"""The formats and the maximum number of pixels of an untrusted image."""
SHORT, LONG = 512, 2048
"""Pixels to which the shorter and longer sides of an untrusted image are reduced; models see 64 to 448."""
Pixels = tuple[tuple[int, int], bytes]
"""Width and height, and the RGB values of each pixel."""
UNREADABLE = (OSError, ValueError, SyntaxError, EOFError, struct.error, Image.DecompressionBombError)
"""Pillow's errors for a file that is truncated, corrupt, no image, or absurdly large."""
COMPLETE: set[bytes] = set()
"""SHA-256 of images that are known to be complete, and needn't be decoded for a check."""
_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "HSV", "I", "F")


def decode(data: bytes) -> Image.Image:
    """Decode an encoded image as `to_rgb` does.

    Raises:
        OSError, ValueError, ...: One of `UNREADABLE` if the bytes are not a complete image.
    """
    return to_rgb(Image.open(io.BytesIO(data)))


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert a PIL image (its first frame) to RGB.

    The EXIF orientation is applied, transparent parts become white, and gray of 16 or 32 bits is scaled to 8
    bits. Palettes, CMYK, and other common modes are converted.

    Raises:
        ValueError: If the value of white isn't known: for LAB, for 32-bit gray that `_eight_bits` refuses,
            and for 16-bit or 32-bit gray with transparency, signed, of 12 bits, or inverted.
        OSError: If the file isn't complete.
    """
    if image.mode not in _MODES and not image.mode.startswith("I;16"):
        raise ValueError(f"images of the mode {image.mode} are not supported; save it as RGB")
    from_pgm = image.format == "PPM" and image.mode == "I"  # Pillow scales a PGM's values to 65,535
    is_deep = image.mode in ("I", "F") or image.mode.startswith("I;16")
    tags = getattr(image, "tag_v2", {})  # of a TIFF: whether white is 0, bits, and 2 for signed values
    white_is_0, bits, signs = tags.get(262) == 0, tags.get(258, ()), tags.get(339, ())
    is_signed = 16 in bits and 2 in signs
    if is_deep and ("transparency" in image.info or white_is_0 or 12 in bits or is_signed):
        raise ValueError("deep gray that is transparent, signed, of 12 bits, or inverted is not supported")
    image.load()
    image = ImageOps.exif_transpose(image)
    if is_deep:
        values = np.asarray(image)
        image = Image.fromarray(_eight_bits(values, from_pgm or values.dtype.itemsize == 2))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def _eight_bits(values: np.ndarray, is_16_bit: bool) -> np.ndarray:
    """Scale gray values to 8 bits.

    White is 65,535 for 16 bits, 255 or 65,535 for integers of 32 bits, and 1 or 255 for floats: the smallest
    that no value exceeds.

    Raises:
        ValueError: If values are negative, not finite, or above these.
    """
    whites = (65535,) if is_16_bit else (1, 255) if values.dtype.kind == "f" else (255, 65535)
    low, high = values.min(), values.max()
    white = next((white for white in whites if low >= 0 and high <= white), None)
    if white is None:
        raise ValueError(f"gray values from {low} to {high} have no known white; save it with 8 or 16 bits")
    scaled = values.astype(np.int64) >> 8 if white == 65535 else np.rint(values * (255 / white))
    return np.asarray(scaled, np.uint8)


def untrusted_image(data: bytes) -> Image.Image:
    """Decode and shrink an image in the sandbox, as `small` does. Raises InputError."""
    size, values = sandbox.run(small, data, title="An image", seconds=3.0)
    return Image.frombytes("RGB", size, values)


def small(data: bytes) -> Pixels:
    """Decode an untrusted image and shrink it to at most `SHORT` by `LONG` pixels.

    Raises:
        OSError, ValueError, ...: One of `UNREADABLE` if the bytes are not an image of a common format.
    """
    with Image.open(io.BytesIO(data), formats=FORMATS) as file:
        _require_usual_size(file)
        image = to_rgb(file)
    scale = min(SHORT / min(image.size), LONG / max(image.size))
    if scale < 1:
        size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
        image = image.resize(size, Image.Resampling.LANCZOS)
    return image.size, image.tobytes()


def _require_usual_size(image: Image.Image) -> None:
    if image.width * image.height > MOST_PIXELS:
        raise ValueError(f"it has more than {MOST_PIXELS // 10**6} megapixels")
    if max(image.size) > 50 * min(image.size):
        raise ValueError(f"its {image.width} x {image.height} pixels are too narrow for a model")


def problem(data: bytes, formats: tuple[str, ...] | None = None) -> str:
    """Return why the bytes are not a complete image, or "".

    A JPEG is decoded at an eighth of its size, which reads all of its data in little time.

    Args:
        data: The encoded image.
        formats: The formats allowed for an untrusted image, whose size is also checked; None allows all.
    """
    if not data:
        return "empty file"
    try:
        with Image.open(io.BytesIO(data), formats=formats) as image:
            if formats:
                _require_usual_size(image)
            image.draft("RGB", (max(1, image.width // 8), max(1, image.height // 8)))
            image.load()
            if image.mode in ("I", "F") or image.mode not in _MODES:
                to_rgb(image)
    except UnidentifiedImageError:
        return "not an image of a known kind, such as JPEG or PNG"
    except UNREADABLE as error:
        return " ".join(str(error).split()) or type(error).__name__
    return ""
