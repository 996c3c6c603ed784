"""Captions of photographs: class, broader kind, and properties measured from the pixels."""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

COLORS = (
    "black", "white", "gray", "red", "orange", "yellow", "green", "blue", "light blue", "purple", "pink",
    "brown", "beige",
)  # fmt: skip
COARSE = ("dog", "cat", "bird", "fish", "car", "boat", "food", "flower", "building", "furniture")
"""Broad kinds for a coarse test. No class is a flower, so this answer is always wrong."""
TEMPLATES = (
    "a photo of a {}.",
    "a photo of a {}",
    "a {}",
    "{}",
    "a picture of a {}",
    "a photograph of the {}",
)
SCENES = ("a {0} photo of a {1}", "a photo of a {1}, {0}", "a {0} {1}", "a {0} picture of a {1}", "{1}, {0}")
LOOKS = ("a {} picture", "a {} photo", "mostly {}", "{}")


@dataclass(frozen=True)
class Class:
    """A class.

    Attributes:
        wnid: WordNet id.
        words: Names of the class, the usual one first.
        kinds: Broader kinds, the narrowest first.
    """

    wnid: str
    words: tuple[str, ...]
    kinds: tuple[str, ...]


@cache
def classes() -> tuple[Class, ...]:
    """Return the classes of classes.csv, by WordNet id."""
    text = files(__package__).joinpath("classes.csv").read_text("utf-8")
    return tuple(
        Class(row["wnid"], tuple(row["words"].split("|")), tuple(row["kinds"].split("|")))
        for row in csv.DictReader(text.splitlines())
    )


def colors(pixels: np.ndarray) -> np.ndarray:
    """Return the index in COLORS of each uint8 pixel [..., 3], by hue, saturation, and value: [...]."""
    rgb = pixels.astype(np.float32) / 255
    value, lowest = rgb.max(-1), rgb.min(-1)
    spread = value - lowest
    share = spread / np.maximum(value, 1e-6)
    r, g, b = np.moveaxis(rgb, -1, 0)
    safe = np.maximum(spread, 1e-6)
    hue = np.where(
        value == r, (g - b) / safe % 6, np.where(value == g, (b - r) / safe + 2, (r - g) / safe + 4)
    )
    hue = hue * 60
    warm = (hue < 50) | (hue > 350)
    tests = (
        ("black", value < 0.2),
        ("white", (share < 0.12) & (value > 0.85)),
        ("gray", share < 0.15),
        ("pink", ((hue > 290) & (hue < 345)) | (((hue >= 345) | (hue < 10)) & (share < 0.5) & (value > 0.7))),
        ("beige", warm & (share < 0.42) & (value > 0.5)),
        ("brown", warm & (hue > 8) & (hue < 50) & (value < 0.62)),
        ("red", (hue < 14) | (hue >= 345)),
        ("orange", hue < 40),
        ("yellow", hue < 65),
        ("green", hue < 165),
        ("light blue", (hue < 255) & (value > 0.65) & (share < 0.5)),
        ("blue", hue < 255),
        ("purple", hue < 360),
    )
    return np.select([test for _, test in tests], [COLORS.index(name) for name, _ in tests], 0)


def looks(images: np.ndarray) -> list[tuple[str, ...]]:
    """Describe the pixels of uint8 images [n, s, s, 3] in words, main colors first."""
    nearest = colors(images[:, ::4, ::4]).reshape(len(images), -1)
    shares = np.stack([(nearest == i).mean(1) for i in range(len(COLORS))], 1)
    order = np.argsort(-shares, 1, kind="stable")[:, :2]
    small, gray = images[:, ::4, ::4].astype(np.float32), images.astype(np.float32).mean(-1)
    edges = np.abs(np.diff(gray, axis=1)).mean((1, 2)) + np.abs(np.diff(gray, axis=2)).mean((1, 2))
    scales = (
        (gray.mean((1, 2)), 75, "dark", 160, "bright"),
        (gray.std((1, 2)), 35, "pale", 78, "high contrast"),
        (edges, 16, "plain", 48, "busy"),
        ((small[..., 0] - small[..., 2]).mean((1, 2)), -12, "cold", 50, "warm"),
        ((small.max(-1) - small.min(-1)).mean((1, 2)), 12, "black and white", 90, "colorful"),
    )
    by_image = []
    for i, row in enumerate(order):
        words = [COLORS[c] for c in row if shares[i, c] > 0.2]
        words += [low if v[i] < a else high for v, a, low, b, high in scales if not a <= v[i] <= b]
        by_image.append(tuple(words))
    return by_image


def prompt(kind: Class, draw: random.Random) -> str:
    """Write a prompt for a class, mostly with its usual name.

    Args:
        kind: The class.
        draw: Random number generator.
    """
    name = kind.words[0] if draw.random() < 0.7 else draw.choice(kind.words)
    return draw.choice(TEMPLATES).format(name)


def caption(kind: Class, look: Sequence[str], draw: random.Random) -> tuple[str, tuple[str, ...]]:
    """Write a caption for a photograph.

    Args:
        kind: Its class.
        look: Words for its pixels.
        draw: Random number generator.

    Returns:
        The caption, and the words that must be true of a photograph for the caption to fit.
    """
    name = draw.choice(kind.words) if draw.random() < 0.6 else draw.choice(kind.kinds)
    if draw.random() < 0.2:
        other = draw.choice(kind.kinds)
        return f"{draw.choice(TEMPLATES).format(name)}, a kind of {other}", (name, other)
    if look and draw.random() < 0.8:
        words = draw.sample(list(look), min(len(look), draw.choice((1, 1, 2))))
        if draw.random() < 0.3:
            return draw.choice(LOOKS).format(" ".join(words)), tuple(words)
        return draw.choice(SCENES).format(" ".join(words), name), (*words, name)
    return draw.choice(TEMPLATES).format(name), (name,)
