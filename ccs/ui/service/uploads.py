"""A visitor's image files: what is accepted, how it is read, and that nothing of it stays on the disk."""

from __future__ import annotations

import base64
import hashlib
import io
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from PIL import Image, UnidentifiedImageError

from ccs.datasets.decoding import upright
from ccs.errors import InputError

T = TypeVar("T")

MAX_BYTES = 20 * 1024 * 1024
MAX_PIXELS = 40_000_000
MAX_IMAGES = 16
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
KEPT_SIDE = 512  # pixels of the shorter side; a model sees 64 to 448
LONGEST = 2048
THUMB = 160


@dataclass(frozen=True)
class InputImage:
    """An image as it is used: RGB, upright, its shorter side at most 512 px.

    origin: what stands before its name: "file", or "drawn as" and "photograph of" for examples, whose name is
    what they show.
    """

    name: str
    pixels: Image.Image
    origin: str = "file"

    @cached_property
    def key(self) -> str:
        """The same for the same pixels."""
        header = f"{self.pixels.size}".encode()
        return hashlib.sha256(header + self.pixels.tobytes()).hexdigest()[:16]

    @cached_property
    def thumb(self) -> str:
        """The image, small, as a `data:` URL."""
        return data_url(self.pixels, THUMB)


def read(path: Path, name: str | None = None) -> InputImage:
    """An image file, whatever its format says. Raises InputError in one sentence where it cannot be used."""
    name = (name or path.name)[:60]
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise InputError(f"{name} has {size / 2**20:.0f} MB; at most {MAX_BYTES // 2**20} MB are accepted.")
    if size == 0:
        raise InputError(f"{name} is empty.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of large images; they are refused below
            with Image.open(path, formats=FORMATS) as file:
                return _decoded(file, name)
    except UnidentifiedImageError:
        raise InputError(f"{name} is not an image; accepted are {', '.join(FORMATS)}.") from None
    except Image.DecompressionBombError:
        raise InputError(_too_large(name)) from None
    except InputError:
        raise
    except Exception:  # Pillow's readers raise whatever their format makes them stumble over
        raise InputError(f"{name} is damaged or cut off and cannot be read.") from None


def _decoded(file: Image.Image, name: str) -> InputImage:
    if file.width * file.height > MAX_PIXELS:
        raise InputError(_too_large(name))
    if min(file.size) < 1 or max(file.size) > 50 * min(file.size):
        raise InputError(f"{name} is {file.width} x {file.height} pixels, too narrow for a model.")
    image = upright(file)
    scale = min(KEPT_SIDE / min(image.size), LONGEST / max(image.size))
    if scale < 1:
        size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
        image = image.resize(size, Image.Resampling.LANCZOS)
    return InputImage(name, image)


def _too_large(name: str) -> str:
    return f"{name} has more than {MAX_PIXELS // 1_000_000} megapixels."


def take(path: str, root: Path, name: str | None = None) -> InputImage:
    """Read an uploaded image into memory, as `taken` does."""
    return taken(path, root, lambda file: read(file, name))


def taken(path: str, root: Path, read: Callable[[Path], T]) -> T:
    """Read an upload into memory and delete its file, also where it cannot be read.

    InputError for a file that is not below `root`, where Gradio puts what visitors send.
    """
    try:
        file = Path(path).resolve()
        known = file.is_relative_to(root.resolve()) and file.is_file()
    except (OSError, ValueError):  # too long, or a null byte
        known = False
    if not known:
        raise InputError("The file that was sent is not an upload of this page.")
    try:
        return read(file)
    finally:
        file.unlink(missing_ok=True)
        if file.parent != root.resolve():
            with suppress(OSError):  # a copy under another name lies there too
                file.parent.rmdir()


def data_url(image: Image.Image, side: int | None = None) -> str:
    """The image inside a `data:` URL, so that nothing is fetched; `side` bounds it in pixels."""
    if side is not None and max(image.size) > side:
        image = image.copy()
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    if image.width * image.height <= 128 * 128:
        image.save(buffer, "PNG")
        kind = "png"
    else:
        image.save(buffer, "JPEG", quality=88)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
