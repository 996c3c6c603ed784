"""Encoded images: decoding one, and checking many of them without keeping any in memory."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from ccs.errors import InputError
from ccs.image_sets import Lazy

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


@dataclass(frozen=True)
class Scan:
    """The result of `scan`: the readable images, their fingerprint, and why the others are skipped."""

    read: Callable[[int], bytes]
    kept: tuple[int, ...]
    fingerprint: str
    source: str
    skipped: tuple[str, ...]

    @property
    def images(self) -> Lazy[Image.Image]:
        """The readable images, decoded lazily."""
        return Lazy(lambda entry: decode(self.read(entry)), self.kept)

    def fields(self, *labels: object) -> dict[str, Any]:
        """The fields of an ImageSet except its name; the fingerprint includes the labels."""
        fingerprint = with_labels(self.fingerprint, *labels) if labels else self.fingerprint
        about = {"fingerprint": fingerprint, "source": self.source, "skipped": self.skipped}
        return {"images": self.images, **about}


def scan(
    read: Callable[[int], bytes], entries: Iterable[int], name: Callable[[int], str], source: str
) -> Scan:
    """Check every entry once; InputError if there are no entries, or none that can be read.

    The fingerprint is a SHA-256 over the SHA-256 of each readable entry's encoded bytes, in order.
    """
    total = hashlib.sha256()
    kept: list[int] = []
    skipped: list[str] = []
    for entry in entries:
        try:
            data = read(entry)
            why = problem(data)
        except OSError as error:
            why = error.strerror or str(error)
        if why:
            skipped.append(f"{name(entry)}: {why}")
            continue
        kept.append(entry)
        total.update(hashlib.sha256(data).digest())
    if not kept:
        example = f" (for example {skipped[0]})" if skipped else ""
        raise InputError(
            f"None of the {len(skipped)} images of {source!r} can be read{example}."
            if skipped
            else f"There are no images in {source!r}."
        )
    return Scan(read, tuple(kept), total.hexdigest(), source, tuple(skipped))


def spread(count: int, wanted: int | None) -> range | list[int]:
    """At most `wanted` of `count` indices, evenly spaced because files and rows are often sorted by class."""
    if wanted is None or wanted >= count:
        return range(count)
    return [position * count // wanted for position in range(wanted)]


def with_labels(fingerprint: str, *extras: object) -> str:
    """The fingerprint of images together with their labels, groups or captions."""
    return hashlib.sha256("\x00".join([fingerprint, *map(repr, extras)]).encode()).hexdigest()
