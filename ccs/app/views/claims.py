"""What is known of a model's heads: where a bias was planted, and what a search found."""

from __future__ import annotations

from dataclasses import dataclass

from ccs.analysis.task import HeldOut
from ccs.app.services.galleries import world
from ccs.app.services.records import ModelRecords
from ccs.bundled import planted_truth
from ccs.heads import HeadSet
from ccs.results.searches import Search


@dataclass(frozen=True)
class Claim:
    """Heads whose ablation lowers the skew of rankings by an attribute.

    Attributes:
        attribute: The attribute of people.
        heads: The heads that the bias was planted in, or that a search found.
        search: The search.
        held_out: Its result on faces, occupations, and control images that it didn't see.
    """

    attribute: str
    heads: HeadSet
    search: Search | None = None
    held_out: HeldOut | None = None

    @property
    def conclusive(self) -> bool:
        """True unless the held-out change can be chance."""
        return self.held_out is None or self.held_out.max_skew_change.high < 0

    @property
    def change(self) -> float:
        """The held-out change of MaxSkew, 0 if it isn't known."""
        return self.held_out.max_skew_change.value if self.held_out else 0.0


def find_claim(records: ModelRecords) -> Claim | None:
    """Return the claim about a model; None if nothing was planted and no search found heads."""
    planted = planted_truth(records.model)
    if planted and planted.heads:
        return Claim([*planted.carries][-1], planted.heads)
    lowered = [claim for claim in _searched(records, world(records.model).people) if claim.change < 0]
    return min(lowered, key=lambda claim: (not claim.conclusive, claim.change), default=None)


def held_out(records: ModelRecords, heads: HeadSet, attribute: str, gallery: str) -> Claim | None:
    """Return the held-out result of the search that found exactly these heads; None without one.

    Args:
        records: The model's records.
        heads: The ablated heads.
        attribute: The attribute of people.
        gallery: The gallery.
    """
    searched = _searched(records, gallery)
    return next((c for c in searched if (c.heads, c.attribute) == (heads, attribute)), None)


def _searched(records: ModelRecords, gallery: str) -> list[Claim]:
    """Return the results of searches among the faces of a gallery."""
    return [
        Claim(search.attribute, search.heads, search, result)
        for search in records.searches
        for result in search.held_out
        if search.gallery == gallery and result.ablation == "searched"
    ]


def that_matter(records: ModelRecords) -> HeadSet:
    """Return heads whose ablation does more than chance: the claim's, else `ModelRecords.costly`."""
    claim = find_claim(records)
    return claim.heads if claim and claim.conclusive else records.costly
