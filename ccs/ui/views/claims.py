"""Facts about a model before it is run: whom it was taught to prefer, and the heads to switch off."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ccs.benchmark import planted_models
from ccs.benchmark.planted_models import Truth
from ccs.heads import HeadSet
from ccs.search import HeldOut
from ccs.ui.records import ModelRecords
from ccs.world import planted
from ccs.world.vocabulary import SKIN_TONES

FACES = "world/faces"
SKEWED = "organism"
ATTRIBUTES = ("gender", "skin tone")
OCCUPATION = "judge"
WORDS = {"woman": "women", "man": "men", **{tone: f"{tone}-skinned" for tone in SKIN_TONES}}


@dataclass(frozen=True)
class Claim:
    """A planted preference of a model, and heads without which it is weaker.

    group: the one of the attribute that was taught most; `words` name the people taught most. off: the heads
    that it was planted in, or that a search found; then `found` is the search's answer on the half of the
    faces that it did not see, for `prompts` occupations.
    """

    occupation: str
    attribute: str
    group: str
    words: str
    off: HeadSet
    found: HeldOut | None = None
    prompts: int = 0


def carriers(known: Truth) -> HeadSet:
    """The heads that a preference for people was planted in."""
    return HeadSet(head for name, own in known.carries.items() if name in ATTRIBUTES for head in own)


@lru_cache(maxsize=64)
def truth(model: str) -> Truth | None:
    """The truth about a model's planted heads; None where nothing is known."""
    return planted_models.known(model)


def skewed(model: str) -> bool:
    """True for a model that was taught the skewed world's preferences, everywhere or in a few heads."""
    known = truth(model)
    return model == SKEWED or (known is not None and bool(carriers(known)))


def _most(attribute: str) -> str:
    """The group that stands most often in images of `OCCUPATION` in the skewed world."""
    shares = planted.shares(OCCUPATION, attribute)
    return max(shares, key=shares.__getitem__)


def of(records: ModelRecords) -> Claim | None:
    """The claim that the page opens with; None where nothing was planted or no search found heads for it."""
    if not skewed(records.model):
        return None
    words = f"{WORDS[_most('skin tone')]} {WORDS[_most('gender')]}"
    known = truth(records.model)
    if known and (heads := carriers(known)):
        attribute = next(name for name in reversed(ATTRIBUTES) if name in known.carries)
        return Claim(OCCUPATION, attribute, _most(attribute), words, heads)
    good = [
        (held, search)
        for search in records.searches
        for held in search.unseen
        if search.people == FACES
        and search.attribute in ATTRIBUTES
        and held.plan == "searched"
        and held.max_skew_change.high < 0
    ]
    if not good:
        return None
    found, search = min(good, key=lambda one: one[0].max_skew_change.value)
    about = search.attribute, _most(search.attribute), words, search.heads
    return Claim(OCCUPATION, *about, found, len(search.prompts))


def that_matter(records: ModelRecords) -> HeadSet:
    """Heads whose absence does more than that of random ones: the claim's, else `ModelRecords.costly`.

    Heads that something was planted in are for the visitor to guess.
    """
    claim = of(records)
    return records.costly if claim is None or truth(records.model) else claim.off
