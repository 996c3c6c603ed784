"""A visitor's image files: what is accepted, how it is read, and that nothing of it stays on the disk."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from PIL import Image, UnidentifiedImageError

from ccs import sandbox
from ccs.data.decoding import FORMATS, Pixels, small
from ccs.errors import InputError
from ccs.sandbox import reason

T = TypeVar("T")

MAX_BYTES = 20 * 1024 * 1024
MAX_IMAGES = 16
SECONDS, EACH = 2.0, 0.6  # of processor time for an upload, and more for each of its images
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
    """An image file of this program."""
    size, values = small(path.read_bytes())
    return InputImage(name or path.name, Image.frombytes("RGB", size, values))


def take(
    files: Sequence[tuple[str, str]], root: Path, most: int = MAX_IMAGES
) -> tuple[list[InputImage], list[str]]:
    """Read at most so many uploaded images (path, name) and delete all the files, as `taken` does.

    The images, and a sentence for each that is none. InputError where they take too long or too
    much memory together.
    """
    names = [name[:60] for _, name in files[:most]]

    def read_all(paths: list[Path]) -> list[Pixels | str]:
        sent = [(str(path), name) for path, name in zip(paths, names, strict=False)]
        found: list[Pixels | str] = sandbox.run(
            _read_all, sent, what="What was sent", seconds=SECONDS + EACH * len(sent)
        )
        return found

    found = taken([path for path, _ in files], root, read_all)
    good = [
        InputImage(name, Image.frombytes("RGB", *one))
        for name, one in zip(names, found, strict=True)
        if not isinstance(one, str)
    ]
    return good, [one for one in found if isinstance(one, str)]


def _read_all(files: Sequence[tuple[str, str]]) -> list[Pixels | str]:
    return [_read_one(Path(path), name) for path, name in files]


def _read_one(path: Path, name: str) -> Pixels | str:
    size = path.stat().st_size
    if size > MAX_BYTES:
        return f"{name} has {size / 2**20:.0f} MB; at most {MAX_BYTES // 2**20} MB are accepted."
    try:
        return small(path.read_bytes())
    except UnidentifiedImageError:
        return f"{name} is not an image; accepted are {', '.join(FORMATS)}."
    except MemoryError:
        raise
    except Exception as error:  # Pillow's readers raise whatever their format makes them stumble over
        return f"{name} cannot be read: {reason(error)[:200]}."


def taken(paths: Sequence[str], root: Path, read: Callable[[list[Path]], T]) -> T:
    """Read uploads into memory and delete their files, also where they cannot be read.

    Gradio keeps files that are equal once, so a path may come twice. InputError for a file that is not below
    `root`, where Gradio puts what visitors send.
    """
    files: list[Path] = []
    try:
        files.extend(_upload(path, root) for path in paths)
        return read(files)
    finally:
        for file in files:
            file.unlink(missing_ok=True)
            if file.parent != root.resolve():
                with suppress(OSError):  # a copy under another name lies there too
                    file.parent.rmdir()


def _upload(path: str, root: Path) -> Path:
    try:
        file = Path(path).resolve()
        known = file.is_relative_to(root.resolve()) and file.is_file()
    except (OSError, ValueError):  # too long, or a null byte
        known = False
    if not known:
        raise InputError("The file that was sent is not an upload of this page.")
    return file


def data_url(image: Image.Image, side: int | None = None) -> str:
    """The image inside a `data:` URL, so that nothing is fetched; `side` bounds it in pixels."""
    if side is not None and max(image.size) > side:
        image = image.copy()
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer, kind = io.BytesIO(), "png" if image.width * image.height <= 128 * 128 else "jpeg"
    image.save(buffer, kind, quality=88)  # PNG has none
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
