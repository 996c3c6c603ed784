"""Heads without which a model's rankings of people are known to be fairer, and heads that matter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ccs.benchmark import planted_models
from ccs.benchmark.planted_models import Truth
from ccs.heads import HeadSet
from ccs.pruning.search import HeldOut
from ccs.ui.service.galleries import world
from ccs.ui.service.records import ModelRecords


@dataclass(frozen=True)
class Claim:
    """Heads without which people are ranked with less skew by an attribute.

    off: the heads that the skew was planted in, or that a search found; then `found` is the search's answer
    on the half of the faces that it did not see, for `prompts` occupations.
    """

    attribute: str
    off: HeadSet
    found: HeldOut | None = None
    prompts: int = 0


@lru_cache(maxsize=64)
def truth(model: str) -> Truth | None:
    """The truth about a model's planted heads; None where nothing is known."""
    return planted_models.known(model)


def of(records: ModelRecords) -> Claim | None:
    """The claim about a model; None where nothing was planted and no search found heads."""
    known = truth(records.model)
    if known and known.heads:
        return Claim([*known.carries][-1], known.heads)
    good = [
        (held, search)
        for search in records.searches
        for held in search.unseen
        if search.people == world(records.model).people
        and held.plan == "searched"
        and held.max_skew_change.high < 0
    ]
    if not good:
        return None
    found, search = min(good, key=lambda one: one[0].max_skew_change.value)
    return Claim(search.attribute, search.heads, found, len(search.prompts))


def that_matter(records: ModelRecords) -> HeadSet:
    """Heads whose absence does more than that of random ones: the claim's, else `ModelRecords.costly`.

    Heads that something was planted in are for the visitor to guess.
    """
    claim = of(records)
    return records.costly if claim is None or truth(records.model) else claim.off
