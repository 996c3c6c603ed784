"""What is known of a model's heads: those without which its rankings are fairer, and what each was taught."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ccs.analysis.search import HeldOut
from ccs.benchmark import planted_models
from ccs.bundled import KnownHeads, Lesson, known_heads
from ccs.errors import InputError
from ccs.heads import Head, HeadSet
from ccs.ui.actions import action
from ccs.ui.html import percent
from ccs.ui.service.galleries import world
from ccs.ui.service.records import ModelRecords
from ccs.ui.session import Screen, Session
from ccs.ui.state import one_of

truth = planted_models.known  # of a model's planted heads; None where nothing is known
taught = known_heads  # what a model's heads were taught; None where nothing is known
FREE, SEVERAL, NONE = "left free", "several concepts", "things with nothing in common"
_SHOWN = {
    "Professions": "the occupation", "Animals": "the animal", "Vehicles": "the vehicle",
    "Colors": "the color of the frame", "Weather": "the weather", "Flags": "the flag",
    "Letters": "the letter", "Food": "the food", "Gender": "the gender", "Skin tones": "the skin tone",
    "Hair": "the hair", "People": "whether there is a person",
}  # fmt: skip


@dataclass(frozen=True)
class Claim:
    """Heads without which people are ranked with less skew by an attribute.

    off: the heads that the skew was planted in, or that a search found; then `found` is the search's answer
    on the half of the faces, of the occupations (`prompts` of them) and of the set `things` that it did not
    see.
    """

    attribute: str
    off: HeadSet
    found: HeldOut | None = None
    prompts: int = 0
    things: str = ""

    @property
    def shown(self) -> bool:
        """Whether the faces that the search did not see agree beyond chance."""
        return self.found is None or self.found.max_skew_change.high < 0


def of(records: ModelRecords) -> Claim | None:
    """The claim about a model; None where nothing was planted and no search found heads."""
    known = truth(records.model)
    if known and known.heads:
        return Claim([*known.carries][-1], known.heads)

    def rank(claim: Claim) -> tuple[bool, float]:
        return not claim.shown, claim.found.max_skew_change.value if claim.found else 0.0

    good = [claim for claim in _searched(records) if rank(claim)[1] < 0]
    return min(good, key=rank, default=None)


def held_out(records: ModelRecords, off: HeadSet, attribute: str) -> Claim | None:
    """What the search that found just these heads says of faces that it did not see; None without one."""
    found = (claim for claim in _searched(records) if (claim.off, claim.attribute) == (off, attribute))
    return next(found, None)


def _searched(records: ModelRecords) -> list[Claim]:
    """What searches among the model's usual faces found."""
    return [
        Claim(search.attribute, search.heads, held, len(search.prompts) // 2, search.things)
        for search in records.searches
        for held in search.unseen
        if search.people == world(records.model).people and held.plan == "searched"
    ]


def that_matter(records: ModelRecords) -> HeadSet:
    """Heads whose absence does more than chance: the claim's, where shown, else `ModelRecords.costly`.

    Heads that something was planted in are for the visitor to guess.
    """
    claim = of(records)
    return claim.off if claim and claim.shown and not truth(records.model) else records.costly


def first_texts(records: ModelRecords) -> list[str]:
    """The first text of every head that has one."""
    return [one.texts[0].text for one in records.heads.values() if one.texts]


def card(session: Session) -> dict[str, Any] | None:
    """The truth about the head on the card, as heads.html tells it; None where nothing is known.

    taught: what, in words; "" for a head left free. carries: how much of what it writes goes with what.
    guess: the visitor’s, "" for none yet, and its verdict; right and guesses: of all that they made for this
    model.
    """
    model, head, known = session.state.model, session.state.head, taught(session.state.model)
    if known is None or head is None or head not in known.shares:
        return None
    lesson = known.lessons.get(head)
    guesses = {of: guess for (at, of), guess in session.guesses.items() if at == model}
    verdicts = {of: guess == _answer(known.lessons.get(of)) for of, guess in guesses.items()}
    return {
        "taught": words(lesson) if lesson else "",
        "carries": _carries(known.taught.get(head, ""), known.shares[head]),
        "answers": (("", "…"), *((answer, answer) for answer in _answers(known))),
        "guess": guesses.get(head, ""),
        "verdict": "right" if verdicts.get(head) else "wrong",
        "right": sum(verdicts.values()),
        "guesses": len(guesses),
        "counts": counts(known),
    }


def counts(known: KnownHeads) -> str:
    """What its heads were taught, and how many of them: "one concept (6), left free (18)"."""
    kinds = Counter(known.lessons[head].kind if head in known.lessons else "" for head in known.shares)
    said = {"one": "one concept", "several": "two or more", "none": NONE, "": FREE}
    return ", ".join(f"{text} ({kinds[kind]})" for kind, text in said.items() if kinds[kind])


def words(lesson: Lesson) -> str:
    """What a lesson asks for, in words."""
    if lesson.kind == "none":
        return f"{NONE} ({', '.join(lesson.values)})"
    if lesson.kind == "one":
        return next(iter(lesson.parts))
    return ", ".join(f"{concept} ({percent(part, 0)})" for concept, part in lesson.parts.items())


def _answer(lesson: Lesson | None) -> str:
    """What is right to guess of a head."""
    if lesson is None or lesson.kind == "none":
        return FREE if lesson is None else NONE
    return next(iter(lesson.parts)) if lesson.kind == "one" else SEVERAL


def _carries(taught: str, shares: Mapping[str, float]) -> str:
    """In words: the share of what a head writes that goes with its concept, and a larger one."""
    most = max(shares, key=lambda concept: shares[concept])
    shown, share = _SHOWN.get(most, most), percent(shares[most], 0)
    if not taught:
        return f"what it writes goes most with {shown} ({share})"
    own = f"{percent(shares[taught], 0)} of what it writes goes with {_SHOWN.get(taught, taught)}"
    return own if most == taught else f"{own}, {share} with {shown}"


def revealed(session: Session) -> Mapping[Head, str]:
    """The taught heads that the visitor may see, with their lessons in words: all, or those guessed."""
    known = taught(session.state.model)
    return {
        head: words(lesson)
        for head, lesson in (known.lessons.items() if known else ())
        if session.revealed or (session.state.model, head) in session.guesses
    }


@action("guess")
def _guess(screen: Screen, value: str) -> None:
    """Keep a guess of what the head on the card was taught; InputError where nothing is known."""
    session = screen.session
    model, head, known = session.state.model, session.state.head, taught(session.state.model)
    if known is None or head is None or head not in known.shares:
        raise InputError("Of this head nothing is known that could be guessed.")
    session.guesses = {**session.guesses, (model, head): one_of(value, _answers(known), "concept")}


def _answers(known: KnownHeads) -> tuple[str, ...]:
    """What can be guessed: what some head was taught."""
    every = {_answer(known.lessons.get(head)) for head in known.shares}
    return (*sorted(set(known.taught.values())), *(one for one in (SEVERAL, NONE, FREE) if one in every))
