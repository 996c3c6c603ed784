"""Words for people that the captions of the synthetic world don't use: occupations and neutral words."""

from __future__ import annotations

import numpy as np

from ccs.synthetic.vocabulary import OCCUPATIONS, article

PAPER_WORDS: dict[str, tuple[str, ...]] = {
    "health worker": (
        "nurse", "doctor", "physician", "surgeon", "paramedic", "dentist", "pharmacist", "pediatrician",
        "dietitian", "nutritionist", "audiologist", "optician", "therapist",
    ),
    "teacher": ("librarian", "coach"),
    "judge": ("lawyer", "attorney"),
    "farmer": ("florist",),
    "cook": ("chef", "baker", "butcher", "waiter"),
    "mechanic": ("plumber", "electrician", "technician", "handyman"),
    "factory worker": ("laborer", "blacksmith"),
    "office worker": (
        "manager", "accountant", "banker", "businessperson", "ceo", "clerk", "consultant", "entrepreneur",
        "assistant", "supervisor", "receptionist", "economist", "broker", "recruiter", "salesperson",
        "realtor",
    ),
    "scientist": ("chemist", "biologist", "physicist", "researcher", "zoologist"),
    "technologist": ("engineer", "mathematician", "statistician"),
    "singer": ("musician", "composer", "dj", "guitarist", "pianist"),
    "artist": ("painter",),
    "police officer": ("sheriff", "policeman"),
    "guard": ("soldier", "army", "commander"),
    "construction worker": ("bricklayer", "surveyor", "architect", "carpenter"),
}  # fmt: skip
"""Occupation of the world -> occupations of the paper that its picture can depict."""
NEUTRAL = ("person", "someone", "somebody", "human", "face", "human being", "individual", "people")
"""Words for a person that name no occupation and no group."""
TEMPLATES = ("a {}", "a photo of a {}", "a picture of a {}", "an image of a {}", "a photo of {}", "{}")
"""Prompt templates: those of the galleries, and those of the paper, which have no article."""


def words_of(occupation: str) -> tuple[str, ...]:
    """Return all words for an occupation: those of the captions, then those of the paper."""
    return tuple(dict.fromkeys((*OCCUPATIONS[occupation], *PAPER_WORDS.get(occupation, ()))))


def in_template(template: str, word: str) -> str:
    """Fill a template with a word; "a" becomes "an" before a vowel.

    Args:
        template: Template with "{}".
        word: Word that replaces "{}".
    """
    return template.replace("a {}", article(word)).replace("{}", word)


def occupation_texts(rng: np.random.Generator) -> list[str]:
    """Draw one text per occupation, in the order of OCCUPATIONS; half of them use its name."""
    texts = []
    for occupation in OCCUPATIONS:
        words = words_of(occupation)
        word = words[0] if rng.random() < 0.5 else words[int(rng.integers(len(words)))]
        texts.append(in_template(TEMPLATES[int(rng.integers(len(TEMPLATES)))], word))
    return texts


def neutral_texts(rng: np.random.Generator, n: int) -> list[str]:
    """Draw texts that name a person and no occupation.

    Args:
        rng: Random generator.
        n: Number of texts.
    """
    pairs = zip(rng.integers(len(TEMPLATES), size=n), rng.integers(len(NEUTRAL), size=n), strict=True)
    return [in_template(TEMPLATES[int(t)], NEUTRAL[int(w)]) for t, w in pairs]
