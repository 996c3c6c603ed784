"""Which heads of a model carry a bias, by a method, and what they do on the half that it did not see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ccs.benchmark.protocol import Reached, Subject, reached
from ccs.heads import Head, HeadSet
from ccs.locate import Evidence
from ccs.locate.base import Method, ranking
from ccs.plans import Plan, matched
from ccs.search import HeldOut, held_out_figures

MOST, LEAST = 8, 0.05
"""The most heads of an answer, and the share of the lean that each of them must take away."""
SETS = 20
"""Random sets beside an answer."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Heads found by a method, in its order; people, prompts: how many are in the half that it did not see.

    held_out: the figures there of no head off, of these heads off, and of random sets with as many heads of
    each layer, if there are any. before, after: Cramér's V among others, without and with these heads off.
    """

    subject: Subject
    attribute: str
    method: str
    heads: tuple[Head, ...]
    people: int
    prompts: int
    held_out: tuple[HeldOut, ...]
    before: Reached
    after: Reached


def answer(subject: Subject, attribute: str, name: str, method: Method, seed: int = 0) -> Answer:
    """The heads that a method finds; seed: of the halves and random sets. InputError as in `halves`."""
    evidence, unseen = subject.split(attribute, seed)
    heads = enough(evidence, ranking(method(evidence), seed))
    off = HeadSet(heads)
    plans = [Plan("none", None, HeadSet(), "nothing is off"), Plan("found", None, off, f"found by {name}")]
    drawn = matched(off, subject.model.heads, SETS, seed, "layers") if off else []
    plans += [Plan("random:layers", i, one, "drawn at random") for i, one in enumerate(drawn)]
    before, after = reached(subject.model, unseen, [HeadSet(), off])
    return Answer(
        subject=subject,
        attribute=attribute,
        method=name,
        heads=heads,
        people=len(unseen.people),
        prompts=len(np.asarray(unseen.prompts)),
        held_out=held_out_figures(subject.model, unseen, plans, seed, 1000),
        before=before,
        after=after,
    )


def enough(evidence: Evidence, order: Sequence[Head]) -> tuple[Head, ...]:
    """The first heads of a ranking, as long as each takes LEAST of the lean away on the half that is seen."""
    sets = [HeadSet(order[:size]) for size in range(min(MOST, len(order)) + 1)]
    leans = [evidence.task.lean(one) for one in evidence.model.embed_images(evidence.people, sets)]
    size = 0
    while size + 1 < len(leans) and leans[size] - leans[size + 1] >= LEAST * leans[0] > 0:
        size += 1
    return tuple(order[:size])
