"""Uploaded images: limits, and reading in the sandbox."""

import base64
import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from PIL import Image, ImageOps, UnidentifiedImageError

from ccs import sandbox
from ccs.data.decoding import FORMATS, Pixels, small

MAX_BYTES = 20 * 1024 * 1024
MAX_IMAGES = 16
UPLOAD_SECONDS, IMAGE_SECONDS = 2.0, 0.6  # of processor time in all, and in addition for each image


@dataclass(frozen=True)
class InputImage:
    """A decoded image: RGB, upright, with a shorter side of at most 512 px.

    Attributes:
        name: Name of the file, or the content of an example.
        pixels: The image.
        origin: The words shown before its name: "file", "drawn as", or "photograph of".
    """

    name: str
    pixels: Image.Image
    origin: str = "file"

    @cached_property
    def key(self) -> str:
        """A digest of the pixels."""
        return hashlib.sha256(f"{self.pixels.size}".encode() + self.pixels.tobytes()).hexdigest()[:16]

    @cached_property
    def thumb(self) -> str:
        """A small copy as a `data:` URL."""
        return data_url(self.pixels, 160)


def read_images(files: Sequence[tuple[bytes, str]]) -> tuple[list[InputImage], list[str]]:
    """Read uploaded images in the sandbox.

    Args:
        files: Data and name of each.

    Returns:
        The images, and a message for each file that isn't an image.

    Raises:
        InputError: If together they take too much time or memory.
    """
    seconds = UPLOAD_SECONDS + IMAGE_SECONDS * len(files)
    results: list[Pixels | str] = sandbox.run(_read_all, list(files), title="The upload", seconds=seconds)
    pixels = [(name, r) for (_, name), r in zip(files, results, strict=True) if not isinstance(r, str)]
    images = [InputImage(name, Image.frombytes("RGB", *image)) for name, image in pixels]
    return images, [result for result in results if isinstance(result, str)]


def _read_all(files: Sequence[tuple[bytes, str]]) -> list[Pixels | str]:
    return [_read_one(data, name[:60]) for data, name in files]


def _read_one(data: bytes, name: str) -> Pixels | str:
    if len(data) > MAX_BYTES:
        return f"{name} has {len(data) / 2**20:.0f} MB; at most {MAX_BYTES // 2**20} MB are accepted."
    try:
        return small(data)
    except UnidentifiedImageError:
        return f"{name} isn't an image; accepted formats are {', '.join(FORMATS)}."
    except MemoryError:
        raise
    except Exception as error:  # Pillow's readers raise exceptions of many types
        return f"{name} can't be read: {sandbox.reason(error)[:200]}."


def data_url(image: Image.Image, side: int | None = None) -> str:
    """Return an image as a `data:` URL.

    Args:
        image: The image.
        side: Maximum length of a side in pixels; by default unchanged.
    """
    if side is not None and max(image.size) > side:
        image = ImageOps.contain(image, (side, side), Image.Resampling.LANCZOS)
    buffer, kind = io.BytesIO(), "png" if image.width * image.height <= 128 * 128 else "jpeg"
    image.save(buffer, kind, quality=88)  # PNG ignores the quality
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
