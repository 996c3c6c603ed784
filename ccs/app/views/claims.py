"""What is known of a model's heads: where a bias was planted, what a search found, and training targets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ccs.analysis.search import HeldOut
from ccs.app.html import percent
from ccs.app.services.galleries import world
from ccs.app.services.records import ModelRecords
from ccs.bundled import KnownHeads, Lesson, known_heads, planted_truth
from ccs.heads import Head, HeadSet

truth = planted_truth  # of a model's planted heads; None if nothing is known
known = known_heads  # what a model's heads were trained to encode; None if nothing is known
FREE, NONE = "left free", "unrelated things"
_SHOWN = {
    "Professions": "the occupation", "Animals": "the animal", "Vehicles": "the vehicle",
    "Colors": "the color of the frame", "Weather": "the weather", "Flags": "the flag",
    "Letters": "the letter", "Food": "the food", "Gender": "the gender", "Skin tones": "the skin tone",
    "Hair": "the hair", "People": "whether there is a person",
}  # fmt: skip


@dataclass(frozen=True)
class Claim:
    """Heads whose ablation lowers the skew of rankings by an attribute.

    Attributes:
        attribute: of people.
        heads: those that the bias was planted in, or that a search found.
        held_out: the search's result on faces, occupations, and control images that it didn't see.
        prompts: the number of held-out occupations.
        control: the control dataset.
    """

    attribute: str
    heads: HeadSet
    held_out: HeldOut | None = None
    prompts: int = 0
    control: str = ""

    @property
    def conclusive(self) -> bool:
        """True unless the held-out change can be chance."""
        return self.held_out is None or self.held_out.max_skew_change.high < 0


def of(records: ModelRecords) -> Claim | None:
    """Return the claim about a model; None if nothing was planted and no search found heads."""
    planted = truth(records.model)
    if planted and planted.heads:
        return Claim([*planted.carries][-1], planted.heads)

    def rank(claim: Claim) -> tuple[bool, float]:
        return not claim.conclusive, claim.held_out.max_skew_change.value if claim.held_out else 0.0

    return min((claim for claim in _searched(records) if rank(claim)[1] < 0), key=rank, default=None)


def held_out(records: ModelRecords, heads: HeadSet, attribute: str) -> Claim | None:
    """Return the held-out result of the search that found exactly these heads; None without one."""
    claims = (claim for claim in _searched(records) if (claim.heads, claim.attribute) == (heads, attribute))
    return next(claims, None)


def _searched(records: ModelRecords) -> list[Claim]:
    """Return the results of searches among the model's usual faces."""
    return [
        Claim(search.attribute, search.heads, held, len(search.prompts) // 2, search.things)
        for search in records.searches
        for held in search.unseen
        if search.people == world(records.model).people and held.plan == "searched"
    ]


def that_matter(records: ModelRecords) -> HeadSet:
    """Return heads whose ablation does more than chance: the claim's, else `ModelRecords.costly`."""
    claim = of(records)
    return claim.heads if claim and claim.conclusive else records.costly


def first_texts(records: ModelRecords) -> list[str]:
    """Return the first text of every head that has one."""
    return [head.texts[0].text for head in records.heads.values() if head.texts]


def lessons(model: str) -> Mapping[Head, str]:
    """Return what heads were trained to encode, in words."""
    heads = known(model)
    return {head: words(lesson) for head, lesson in heads.lessons.items()} if heads else {}


def panel(model: str, head: Head) -> str:
    """Return what is known of a head, in a sentence; "" if nothing is."""
    heads = known(model)
    if heads is None or head not in heads.shares:
        return ""
    lesson = heads.lessons.get(head)
    trained = f"was trained to encode {words(lesson)}" if lesson else "was left free while the model trained"
    return f"{head} {trained}; {_carries(heads.taught.get(head, ''), heads.shares[head])}."


def counts(heads: KnownHeads) -> str:
    """Say what a model's heads were trained to encode, and how many: "one concept (6), left free (18)"."""
    kinds = Counter(heads.lessons[head].kind if head in heads.lessons else "" for head in heads.shares)
    names = {"one": "one concept", "several": "two or more", "none": NONE, "": FREE}
    return ", ".join(f"{text} ({kinds[kind]})" for kind, text in names.items() if kinds[kind])


def words(lesson: Lesson) -> str:
    """Return a training target in words."""
    if lesson.kind == "none":
        return f"{NONE} ({', '.join(lesson.values)})"
    if lesson.kind == "one":
        return next(iter(lesson.parts))
    return ", ".join(f"{concept} ({percent(part, 0)})" for concept, part in lesson.parts.items())


def _carries(taught: str, shares: Mapping[str, float]) -> str:
    """Say which share of a head's output goes with its concept, and with another that is larger."""
    largest = max(shares, key=lambda concept: shares[concept])
    shown, share = _SHOWN.get(largest, largest), percent(shares[largest], 0)
    if not taught:
        return f"its output goes most with {shown} ({share} of the variance)"
    own = f"{percent(shares[taught], 0)} of its output’s variance goes with {_SHOWN.get(taught, taught)}"
    return own if largest == taught else f"{own}, {share} with {shown}"
