"""The values of every factor of the drawn world, with the words for them.

Glyphs are OpenMoji's, under their names in the package `emoji`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Thing:
    """What a card can show: its word, emoji name and concept (one of ccs/texts/concepts.csv)."""

    word: str
    glyph: str
    concept: str


def _things(concept: str, rows: str) -> tuple[Thing, ...]:
    """Things from rows of `word=glyph`; the glyph defaults to the word."""
    pairs = (row.strip().partition("=") for row in rows.split(","))
    return tuple(Thing(word, glyph or word.replace(" ", "_"), concept) for word, _, glyph in pairs)


ANIMALS = _things(
    "Animals",
    "dog=dog_face, cat=cat_face, rabbit=rabbit_face, bear, tiger=tiger_face, lion, cow=cow_face,"
    "pig=pig_face, frog, monkey=monkey_face, elephant, giraffe, fish=tropical_fish, turtle, snake,"
    "butterfly, honeybee, octopus, penguin, duck, owl, chicken, parrot, flamingo",
)
VEHICLES = _things(
    "Vehicles",
    "car=automobile, bus, fire truck=fire_engine, tractor, bicycle, airplane, rocket, sailboat,"
    "train=locomotive, helicopter, motorcycle, ambulance, taxi, scooter=kick_scooter, canoe,"
    "ship=passenger_ship",
)
FOODS = _things(
    "Food",
    "apple=red_apple, banana, strawberry, watermelon, carrot, broccoli, hamburger, pizza, doughnut, cupcake,"
    "ice cream=ice_cream, loaf of bread=bread, pineapple, pretzel, lemon, taco",
)
WEATHERS = _things(
    "Weather",
    "sunshine=sun, rain=umbrella_with_rain_drops, snow=snowflake, lightning=high_voltage, a tornado=tornado,"
    "a rainbow=rainbow, clouds=cloud, fog, wind=wind_face, frost=ice, heat=thermometer,"
    "moonlight=crescent_moon",
)
"""Their words have an article where they need one."""
FLAGS = _things(
    "Flags",
    "Japan, Canada, Brazil, Germany, France, Italy, Spain, Sweden, Switzerland, Turkey=Türkiye, China, India,"
    "Israel, Jamaica, South Korea=South_Korea, Greece, Argentina, Ukraine, the United States=United_States,"
    "the United Kingdom=United_Kingdom",
)
LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
COLORS: dict[str, tuple[int, int, int]] = {
    "red": (222, 60, 60), "orange": (245, 150, 50), "yellow": (250, 220, 80), "green": (90, 180, 90),
    "blue": (80, 120, 220), "purple": (150, 90, 200), "pink": (245, 160, 200), "brown": (150, 105, 70),
    "turquoise": (70, 205, 195), "black": (40, 40, 44), "white": (252, 252, 252),
}  # fmt: skip
"""Of frames."""
UNSEEN_STYLES = ("inverted", "tilted", "posterized")
"""Never trained on: the out-of-domain split."""

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


def article(noun: str) -> str:
    """The noun with a or an."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


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
