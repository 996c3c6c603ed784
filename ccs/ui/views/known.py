"""What is known of the heads of models that ship: what each was taught. A visitor guesses first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from ccs.embedded import known_heads
from ccs.embedded.known_heads import KnownHeads
from ccs.errors import InputError
from ccs.heads import Head
from ccs.ui.html import percent
from ccs.ui.session import Session
from ccs.ui.state import one_of

FREE = "left free"
_SHOWN = {
    "Professions": "the occupation", "Animals": "the animal", "Vehicles": "the vehicle",
    "Colors": "the color of the frame", "Weather": "the weather", "Flags": "the flag",
    "Letters": "the letter", "Food": "the food", "Gender": "the gender", "Skin tones": "the skin tone",
    "Hair": "the hair", "People": "whether there is a person",
}  # fmt: skip


@dataclass(frozen=True)
class Known:
    """The truth about one head, as its card tells it.

    taught: its concept; "" for a head left free. carries: how much of what it writes goes with what. answers:
    what can be guessed, as (value, words). guess: the visitor's, "" for none yet, and its verdict. right,
    guesses: of all that they made for this model. lessons, heads: how many were taught, of how many.
    """

    taught: str
    carries: str
    answers: tuple[tuple[str, str], ...]
    guess: str
    verdict: str
    right: int
    guesses: int
    lessons: int
    heads: int


@lru_cache(maxsize=64)
def truth(model: str) -> KnownHeads | None:
    """What is known of a model's heads; None where nothing is."""
    return known_heads.known_heads(model)


def of(session: Session) -> Known | None:
    """The truth about the head on the card; None where nothing is known."""
    model, head, known = session.state.model, session.state.head, truth(session.state.model)
    if known is None or head is None or head not in known.shares:
        return None
    shares, taught = known.shares[head], known.taught.get(head, "")
    guesses = {of: guess for (at, of), guess in session.guesses.items() if at == model}
    verdicts = {of: guess == known.taught.get(of, FREE) for of, guess in guesses.items()}
    return Known(
        taught=taught,
        carries=_carries(taught, shares),
        answers=(("", "…"), *((answer, answer) for answer in _answers(known))),
        guess=guesses.get(head, ""),
        verdict="right" if verdicts.get(head) else "wrong",
        right=sum(verdicts.values()),
        guesses=len(guesses),
        lessons=len(known.taught),
        heads=len(known.shares),
    )


def _carries(taught: str, shares: Mapping[str, float]) -> str:
    """In words: the share of what a head writes that goes with its concept, and a larger one."""
    most = max(shares, key=lambda concept: shares[concept])
    shown, share = _SHOWN.get(most, most), percent(shares[most], 0)
    if not taught:
        return f"what it writes goes most with {shown} ({share})"
    own = f"{percent(shares[taught], 0)} of what it writes goes with {_SHOWN.get(taught, taught)}"
    return own if most == taught else f"{own}, {share} with {shown}"


def revealed(session: Session) -> Mapping[Head, str]:
    """The taught heads that the visitor may see, with their concepts: all, or those guessed."""
    known = truth(session.state.model)
    return {
        head: concept
        for head, concept in (known.taught.items() if known else ())
        if session.revealed or (session.state.model, head) in session.guesses
    }


def guess(session: Session, answer: object) -> None:
    """Keep a guess of what the head on the card was taught; InputError where nothing is known."""
    model, head, known = session.state.model, session.state.head, truth(session.state.model)
    if known is None or head is None or head not in known.shares:
        raise InputError("Of this head nothing is known that could be guessed.")
    session.guesses = {**session.guesses, (model, head): one_of(answer, _answers(known), "concept")}


def _answers(known: KnownHeads) -> tuple[str, ...]:
    return (*sorted(set(known.taught.values())), FREE)
