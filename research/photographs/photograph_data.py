"""Training photographs: decoding, held-out split, and augmentation."""

from __future__ import annotations

import io
import json
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from ccs.errors import InputError
from ccs.files import atomic_write, write_text
from research.photographs.photograph_captions import classes, looks

SIDE = 64
MOVE = 4  # pixels


@dataclass(frozen=True)
class Photographs:
    """Decoded photographs.

    Attributes:
        pixels: Pixels, uint8 [n, 64, 64, 3].
        labels: Index of each class in `classes()` [n].
        looks: Words for the pixels of each photograph.
    """

    pixels: np.ndarray
    labels: np.ndarray
    looks: list[list[str]]

    def split(self, held_out: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Split rows into training and held-out ones.

        Args:
            held_out: Number of held-out rows per class.
            seed: Random seed.
        """
        order = np.random.default_rng(seed).permutation(len(self.labels))
        ranks = np.zeros(len(order), int)
        for label in range(len(classes())):
            class_rows = order[self.labels[order] == label]
            ranks[class_rows] = np.arange(len(class_rows))
        return np.flatnonzero(ranks >= held_out), np.flatnonzero(ranks < held_out)


def read(parquet: Path, cache: Path) -> Photographs:
    """Read photographs.

    Args:
        parquet: File with columns `image` (encoded) and `wnid`.
        cache: Folder for decoded pixels.

    Raises:
        InputError: If the file is missing, lacks a column, or names an unknown class.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(parquet, columns=["image", "wnid"])
    except (OSError, pa.ArrowInvalid, KeyError) as error:
        raise InputError(f"Can't read photographs from {parquet}: {error}".splitlines()[0]) from None
    index = {kind.wnid: i for i, kind in enumerate(classes())}
    wnids = table["wnid"].to_pylist()
    if unknown := set(wnids) - set(index):
        raise InputError(f"{parquet} has the class {min(unknown)!r}, which isn't in classes.csv.")
    labels = np.array([index[wnid] for wnid in wnids])
    pixels_file, looks_file = cache / "pixels.npy", cache / "looks.json"
    if not looks_file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        pixels = np.stack([_decode(cell.as_py()) for cell in tqdm(table["image"], desc="decoding")])
        described = [words for at in range(0, len(pixels), 500) for words in looks(pixels[at : at + 500])]
        with atomic_write(pixels_file) as temporary, temporary.open("wb") as f:
            np.save(f, pixels)
        write_text(looks_file, json.dumps(described))
    pixels, words = np.load(pixels_file, mmap_mode="r"), json.loads(looks_file.read_text("utf-8"))
    if len(pixels) != len(labels):
        raise InputError(f"{cache} has the photographs of another file. Remove it, or choose another --runs.")
    return Photographs(pixels, labels, words)


def _decode(data: bytes) -> np.ndarray:
    image = Image.open(io.BytesIO(data)).convert("RGB")
    return np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def varied(pixels: np.ndarray, size: int, smallest: int, draw: random.Random, moved: float = 0.0) -> Tensor:
    """Augment photographs: crop and resize, mirror half, vary the light, cut a square out of a quarter.

    The shape of a crop is random per batch, and stretches objects; its place is random per photograph.

    Args:
        pixels: Pixels, uint8 [n, 64, 64, 3].
        size: Side of the results.
        smallest: Minimum side of a crop in pixels.
        draw: Random number generator.
        moved: Share of photographs that are shifted by up to 4 pixels instead of cropped, which keeps them
            sharp (`size` must be 64).

    Returns:
        float32 [n, 3, size, size].
    """
    n, high, wide = len(pixels), draw.randint(smallest, SIDE), draw.randint(smallest, SIDE)
    sharp = round(moved * n)
    wider = np.pad(pixels[:sharp], ((0, 0), (MOVE, MOVE), (MOVE, MOVE), (0, 0)), "edge")
    parts = []
    for images, h, w in ((wider, SIDE, SIDE), (pixels[sharp:], high, wide)):
        crops = np.empty((len(images), h, w, 3), np.uint8)
        for i, image in enumerate(images):
            top, left = draw.randint(0, image.shape[0] - h), draw.randint(0, image.shape[1] - w)
            crop = image[top : top + h, left : left + w]
            crops[i] = crop[:, ::-1] if draw.random() < 0.5 else crop
        parts += [resized(crops, size)] if len(crops) else []
    generator = torch.Generator().manual_seed(draw.getrandbits(32))
    gain = 1 + 0.2 * (2 * torch.rand(n, 1, 1, 1, generator=generator) - 1)
    shift = 0.2 * (2 * torch.rand(n, 3, 1, 1, generator=generator) - 1) / 2
    x = normalized(torch.cat(parts)) * gain + shift
    side = size * 3 // 8
    for i in draw.sample(range(n), n // 4):
        top, left = draw.randint(0, size - side), draw.randint(0, size - side)
        x[i, :, top : top + side, left : left + side] = 0
    return x


def resized(pixels: np.ndarray, size: int) -> Tensor:
    """Turn uint8 pixels [n, h, w, 3] into [n, 3, size, size].

    Args:
        pixels: The images.
        size: Side of the results.
    """
    x = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    return x if x.shape[2:] == (size, size) else scaled(x, size)


def scaled(x: Tensor, size: int) -> Tensor:
    """Resize pixels [n, 3, h, w] to [n, 3, size, size] of the same type.

    Args:
        x: The images.
        size: Side of the results.
    """
    return F.interpolate(x, (size, size), mode="bilinear", antialias=True)


def normalized(x: Tensor) -> Tensor:
    """Normalize uint8 [n, 3, s, s] as the encoders expect, channels last in memory."""
    return ((x.float() - 127.5) / 63.75).contiguous(memory_format=torch.channels_last)
