"""Backdrops of subjects: washes of color with a pattern, and drawn places."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw

from ccs.world.glyphs import glyph
from ccs.world.vocabulary import COLORS, PLACES

RGB = tuple[int, int, int]


def _shade(color: RGB, factor: float) -> RGB:
    """A lighter (factor > 1) or darker color."""
    red, green, blue = (round(c + (255 - c) * (factor - 1) if factor > 1 else c * factor) for c in color)
    return red, green, blue


@lru_cache(maxsize=1024)
def wash(color: str, pattern: str, size: int, phase: int) -> Image.Image:
    """A color with a pattern in a second shade of it; `phase` (0 to 7) shifts and scales the pattern."""
    base = COLORS[color]
    second = _shade(base, 1.55 if sum(base) < 480 else 0.72)
    image = Image.new("RGB", (size, size), base)
    if pattern == "plain":
        return image
    y, x = np.mgrid[0:size, 0:size].astype(np.int64)
    step = max(4, size * (5 + phase % 3) // 40)
    shift = phase * step // 4
    if pattern == "striped":
        mask = ((x + (y if phase % 2 else 0) + shift) // step) % 2 == 0
    elif pattern == "checkered":
        mask = ((x + shift) // step + (y + shift) // step) % 2 == 0
    elif pattern == "dotted":
        cell = 2 * step
        mask = ((x + shift) % cell - step) ** 2 + ((y + shift) % cell - step) ** 2 < (step * 3 // 5) ** 2
    else:  # wavy: a triangle wave in integers, the same on every machine
        wave = np.abs((x * 2 + shift) % (4 * step) - 2 * step)
        mask = ((y + wave + shift) // step) % 2 == 0
    image.paste(second, mask=Image.fromarray((mask * 255).astype(np.uint8)))
    return image


@lru_cache(maxsize=256)
def place(name: str, size: int, variant: int) -> Image.Image:
    """A drawing of a place; `variant` (0 to 7) is its seed."""
    rng = np.random.default_rng((PLACES.index(name), variant))
    image = Image.new("RGB", (size, size))
    draw = ImageDraw.Draw(image)
    horizon = int(size * rng.uniform(0.4, 0.6))

    def fill(top: float, bottom: float, color: RGB) -> None:
        draw.rectangle((0, int(top), size, int(bottom)), fill=color)

    def put(name: str, x: float, y: float, height: int) -> None:
        g = glyph(name, max(4, height))
        image.paste(g, (int(x - g.width / 2), int(y - g.height)), g)

    def bumps(top: float, color: RGB, peaked: bool) -> None:
        for _ in range(4):
            x, w, h = rng.uniform((-0.1, 0.3, 0.2), (1.1, 0.6, 0.4)) * size
            if peaked:
                snow = top - h * 0.75
                draw.polygon([(x - w / 2, top), (x, top - h), (x + w / 2, top)], fill=color)
                draw.polygon([(x - w / 8, snow), (x, top - h), (x + w / 8, snow)], fill=(250, 250, 255))
            else:
                draw.ellipse((x - w / 2, top - h / 2, x + w / 2, top + h), fill=color)

    if name == "beach":
        fill(0, horizon, (150, 215, 245))
        fill(horizon, horizon + size * 0.18, (40, 130, 200))
        fill(horizon + size * 0.18, size, (240, 220, 160))
        put("palm_tree", rng.choice([0.12, 0.88]) * size, size * 0.85, int(size * 0.5))
    elif name == "forest":
        fill(0, horizon, (170, 215, 190))
        fill(horizon, size, (60, 110, 60))
        for x in np.sort(rng.uniform(0, 1, 7)):
            foot, height = rng.uniform((0.05, 0.4), (0.3, 0.6)) * size
            put("evergreen_tree", x * size, horizon + foot, int(height))
    elif name == "desert":
        fill(0, horizon, (250, 225, 180))
        fill(horizon, size, (225, 175, 105))
        bumps(horizon + 2, (210, 155, 90), peaked=False)
        put("cactus", rng.choice([0.1, 0.9]) * size, size * 0.8, int(size * 0.35))
    elif name == "mountains":
        fill(0, size, (185, 215, 240))
        bumps(horizon + size * 0.2, (115, 120, 140), peaked=True)
        fill(horizon + size * 0.2, size, (120, 150, 110))
    elif name == "city":
        fill(0, size, (200, 210, 225))
        x = 0.0
        while x < size:
            w, h = rng.uniform(0.12, 0.22) * size, rng.uniform(0.35, 0.8) * size
            gray = int(rng.integers(80, 150))
            draw.rectangle((x, size * 0.85 - h, x + w - 1, size * 0.85), fill=(gray, gray, gray + 15))
            for wy in np.arange(size * 0.85 - h + 3, size * 0.8, max(4, size / 14)):
                for wx in np.arange(x + 2, x + w - 3, max(4, size / 18)):
                    draw.rectangle((wx, wy, wx + size / 45, wy + size / 45), fill=(250, 230, 140))
            x += w
        fill(size * 0.85, size, (70, 70, 75))
    elif name == "outer space":
        fill(0, size, (18, 16, 50))
        for px, py in rng.uniform(0, size, (45, 2)):
            draw.rectangle((px, py, px + size / 60, py + size / 60), fill=(255, 255, 230))
        put("ringed_planet", rng.choice([0.15, 0.85]) * size, size * 0.3, int(size * 0.25))
    elif name == "underwater":
        fill(0, size, (30, 110, 190))
        for i in range(4):
            fill(size * i / 4, size * (i + 1) / 4, (40 - 8 * i, 140 - 25 * i, 210 - 22 * i))
        for px, py in rng.uniform(0, size, (14, 2)):
            r = size * rng.uniform(0.01, 0.04)
            draw.ellipse((px - r, py - r, px + r, py + r), outline=(200, 235, 255))
        put("coral", rng.choice([0.15, 0.85]) * size, size, int(size * 0.3))
    elif name == "snowy field":
        fill(0, horizon, (200, 220, 240))
        fill(horizon, size, (246, 249, 255))
        bumps(horizon + 2, (236, 242, 252), peaked=False)
        put("evergreen_tree", rng.choice([0.1, 0.9]) * size, horizon + size * 0.15, int(size * 0.3))
    elif name == "living room":
        fill(0, size * 0.72, (240, 225, 200))
        fill(size * 0.72, size, (170, 120, 80))
        window = (size * 0.08, size * 0.1, size * 0.38, size * 0.42)
        draw.rectangle(window, fill=(170, 215, 245), outline=(120, 80, 50), width=2)
        put("couch_and_lamp", size * 0.75, size * 0.85, int(size * rng.uniform(0.35, 0.45)))
    else:  # meadow
        fill(0, horizon, (160, 215, 250))
        fill(horizon, size, (130, 200, 90))
        for px, py in rng.uniform(0, 1, (9, 2)):
            put("blossom", px * size, horizon + (0.15 + 0.85 * py) * (size - horizon), int(size * 0.12))
    return image
