"""Encoded images: decoding one, checking that it is whole, and its SHA-256, kept from one run to the next.

A set of 80 GB takes minutes to read. It is not read again as long as its files have the same names, sizes and
times; what comes from the Hub has its commit in its files' names.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from ccs import sandbox
from ccs.errors import InputError
from ccs.files import write_text

FORMATS, MOST_PIXELS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"), 40_000_000
"""The formats of a stranger's images, and the most pixels of one."""
SHORT, LONG = 512, 2048
"""The most pixels of the shorter and the longer side of a stranger's image; a model sees 64 to 448."""
LEAST = 2**26
"""Bytes of images below which nothing is kept: these are read in less than a second."""
SETTLED = 2.0
"""Seconds since a file's last change before which it could change again and keep its time."""
Pixels = tuple[tuple[int, int], bytes]
"""Width and height, and the values RGB of each pixel."""

# Pillow's errors for a file that is truncated, corrupt, no image, or absurdly large.
UNREADABLE = (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError)


def decode(data: bytes) -> Image.Image:
    """The `upright` image in these bytes. Raises one of `UNREADABLE` if they are not a complete image."""
    return upright(Image.open(io.BytesIO(data)))


def upright(image: Image.Image) -> Image.Image:
    """The image (its first frame) as RGB: turned as EXIF says, laid over white, 16 bits scaled to 8."""
    image.load()
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def strangers_image(data: bytes) -> Image.Image:
    """`decode`, in the sandbox, and no larger than `small` makes it. Raises InputError."""
    size, values = sandbox.run(small, data, what="An image", seconds=3.0)
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
    """The reason why the bytes are not a complete image, or "". formats: those allowed. JPEG is decoded at an
    eighth of its size, which reads all of its data at little cost.
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


def identity(paths: Iterable[Path], *about: str) -> str:
    """A hash of the files' names, sizes and times, and of `about`; "" where it would not tell a change."""
    total = hashlib.sha256("\x00".join(about).encode(errors="surrogateescape"))
    newest = 0
    try:
        for path in paths:
            status = path.stat()
            newest = max(newest, status.st_mtime_ns)
            known = f"\x00{path.resolve()}\x00{status.st_size}\x00{status.st_mtime_ns}"
            total.update(known.encode(errors="surrogateescape"))  # a name need not be text
    except OSError:
        return ""
    return total.hexdigest() if 0 < newest < (time.time() - SETTLED) * 1e9 else ""


class Digests:
    """The digests (hexadecimal) of images by their place in a set, and the problem of each that is none.
    identity: of the files that they are in; "" keeps nothing.
    """

    def __init__(self, identity: str) -> None:
        self._path: Path | None = None
        self._found: dict[str, tuple[str, str]] = {}
        self._read = 0
        if identity:
            from huggingface_hub import constants

            self._path = Path(constants.HF_HOME) / "clip-ccs" / "read" / f"{identity[:32]}.json"
            with suppress(OSError, ValueError, TypeError):  # not there, or no record of ours: it is made anew
                kept = dict(json.loads(self._path.read_text("utf-8")))
                self._found = {str(place): (str(own), str(why)) for place, (own, why) in kept.items()}

    def of(self, place: int, read: Callable[[], tuple[str, str, int]]) -> tuple[str, str]:
        """Digest and problem of the image at a place, by `read` (these, and bytes) if they are not known."""
        if (known := self._found.get(str(place))) is None:
            digest, why, size = read()
            self._read += size
            known = self._found[str(place)] = digest, why
        return known

    def keep(self) -> None:
        """Keep what was read, where it was much and there is room for it; not what could not be read."""
        if self._path and self._read >= LEAST:
            with suppress(InputError):
                write_text(self._path, json.dumps({at: own for at, own in self._found.items() if own[0]}))
