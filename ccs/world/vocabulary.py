"""The values of every factor of the drawn world, with the words for them.

Glyphs are OpenMoji's, under their names in the package `emoji`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Thing:
    """A subject: its word, plural, emoji name and concept (a leaf of the tree in ccs/texts/concepts.csv)."""

    word: str
    plural: str
    glyph: str
    concept: str


def _things(concept: str, rows: str) -> tuple[Thing, ...]:
    """Things from rows of `word/plural=glyph`; the plural defaults to word + s, the glyph to the word."""
    out = []
    for row in rows.split(","):
        words, _, glyph = row.strip().partition("=")
        word, _, plural = words.partition("/")
        out.append(Thing(word, plural or word + "s", glyph or word.replace(" ", "_"), concept))
    return tuple(out)


THINGS: tuple[Thing, ...] = (
    *_things(
        "Animals",
        "dog=dog_face, cat=cat_face, rabbit=rabbit_face, bear, tiger=tiger_face, lion, cow=cow_face,"
        "pig=pig_face, frog, monkey=monkey_face, elephant, giraffe, fish/fish=tropical_fish, turtle, snake,"
        "butterfly/butterflies, honeybee, octopus/octopuses",
    ),
    *_things("Birds", "penguin, duck, owl, chicken, parrot, flamingo"),
    *_things(
        "Food",
        "apple=red_apple, banana, strawberry/strawberries, watermelon, carrot, tomato/tomatoes,"
        "hamburger, pizza, doughnut, cupcake, ice cream/ice creams, loaf of bread/loaves of bread=bread",
    ),
    *_things(
        "Vehicles",
        "car=automobile, bus/buses, fire truck=fire_engine, tractor, bicycle, airplane, rocket,"
        "sailboat, train=locomotive",
    ),
    *_things("Tools", "hammer, wrench/wrenches, scissors/scissors, key, gear, saw=carpentry_saw"),
    *_things("Music", "guitar, violin, trumpet, drum"),
    *_things("Sports", "soccer ball=soccer_ball, basketball, football=american_football, tennis ball=tennis"),
    *_things("Clothing", "shirt=t-shirt, dress/dresses, shoe=running_shoe, crown, necktie, top hat=top_hat"),
    *_things(
        "Household",
        "chair, candle, light bulb=light_bulb, telephone, clock=alarm_clock, umbrella, balloon,"
        "gift=wrapped_gift, television",
    ),
    *_things(
        "Plants", "tree=deciduous_tree, palm tree=palm_tree, cactus/cactuses, sunflower, rose, mushroom"
    ),
    *_things("Buildings", "house, castle, church/churches, factory/factories"),
    *_things("Symbols", "heart=red_heart, star, snowflake, lightning bolt=high_voltage"),
    *_things(
        "Emotions",
        "happy face=grinning_face, crying face, angry face, sleeping face,scared face=face_screaming_in_fear",
    ),
)

COLORS: dict[str, tuple[int, int, int]] = {
    "red": (222, 60, 60), "orange": (245, 150, 50), "yellow": (250, 220, 80), "green": (90, 180, 90),
    "blue": (80, 120, 220), "purple": (150, 90, 200), "pink": (245, 160, 200), "brown": (150, 105, 70),
    "gray": (150, 150, 150), "black": (40, 40, 44), "white": (250, 250, 250),
}  # fmt: skip
PATTERNS = ("plain", "striped", "dotted", "checkered", "wavy")
PLACES = (
    "beach", "forest", "desert", "mountains", "city",
    "outer space", "underwater", "snowy field", "living room", "meadow",
)  # fmt: skip
PLACE_PHRASES = {
    "beach": "on the beach", "forest": "in the forest", "desert": "in the desert",
    "mountains": "in the mountains",
    "city": "in the city", "outer space": "in outer space", "underwater": "underwater",
    "snowy field": "in a snowy field", "living room": "in a living room", "meadow": "in a meadow",
}  # fmt: skip
WEATHERS = ("clear", "rain", "snow", "fog", "sunshine", "night")
WEATHER_PHRASES = {
    "rain": ("in the rain", "on a rainy day"), "snow": ("in falling snow", "on a snowy day"),
    "fog": ("in the fog", "on a foggy day"), "sunshine": ("in the sunshine", "on a sunny day"),
    "night": ("at night", "in the dark"),
}  # fmt: skip
STYLES = ("drawn", "black and white", "blurred", "pixelated", "outline")
UNSEEN_STYLES = ("inverted", "tilted", "posterized")  # never trained on: the out-of-domain split
STYLE_PHRASES = {
    "drawn": ("a drawing of", "a picture of", "an image of", "a photo of"),
    "black and white": ("a black and white picture of", "a grayscale drawing of"),
    "blurred": ("a blurred picture of", "a blurry image of"),
    "pixelated": ("a pixelated picture of", "a pixel image of"),
    "outline": ("an outline of", "a line drawing of"),
}
COUNT_WORDS = ("one", "two", "three", "four")
LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
DIGITS = tuple("0123456789")
DIGIT_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_COUNTRIES = (
    "Japan, Canada, Brazil, Germany, France, Italy, Spain, Sweden, Switzerland, Turkey=Türkiye, China, India,"
    "Israel, Jamaica, South Korea=South_Korea, Greece, Argentina, Ukraine, the United States=United_States,"
    "the United Kingdom=United_Kingdom"
)
COUNTRIES: dict[str, str] = {
    name: glyph or name for name, _, glyph in (row.strip().partition("=") for row in _COUNTRIES.split(","))
}

GENDERS = ("woman", "man")
SKIN_TONES = ("light", "medium-light", "medium", "medium-dark", "dark")
HAIRS = ("", "red hair", "curly hair", "white hair", "blond hair", "bald")  # "": the glyph's own dark hair
AGES = ("child", "adult", "old")
PEOPLE_WORDS = {
    ("woman", "child"): "girl", ("woman", "adult"): "woman", ("woman", "old"): "old woman",
    ("man", "child"): "boy", ("man", "adult"): "man", ("man", "old"): "old man",
}  # fmt: skip

_OCCUPATIONS = (
    "health worker/doctor/nurse, teacher/professor, judge/lawyer, farmer/gardener, cook/chef,"
    "mechanic/plumber, factory worker/welder, office worker/manager, scientist/chemist,"
    "technologist/programmer, singer/musician, artist/painter, pilot/captain, astronaut, firefighter,"
    "police officer/sheriff, detective/investigator, guard/soldier, construction worker/bricklayer,"
    "student/graduate"
)
# Occupation -> the words that stand for it in captions, its own name first.
OCCUPATIONS: dict[str, tuple[str, ...]] = {
    row.split("/")[0].strip(): tuple(row.strip().split("/")) for row in _OCCUPATIONS.split(",")
}


def person_glyph(gender: str, tone: str, occupation: str = "", hair: str = "", age: str = "adult") -> str:
    """The emoji name of a person.

    gender: woman, man or person. hair: only for adults without an occupation.
    """
    skin = f"{tone}_skin_tone"
    if occupation:
        lead = "" if gender == "person" else f"{gender}_"
        return f"{lead}{occupation.replace(' ', '_')}_{skin}"
    if age == "child":
        return f"{'girl' if gender == 'woman' else 'boy'}_{skin}"
    if age == "old":
        return f"old_{gender}_{skin}"
    return f"{gender}_{skin}_{hair.replace(' ', '_')}" if hair else f"{gender}_{skin}"
