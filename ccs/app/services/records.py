"""A model's results as the views need them: one record per head."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from ccs import paper
from ccs.analysis.task import HeldOut
from ccs.app.services.galleries import world
from ccs.bundled import planted_truth
from ccs.errors import InputError
from ccs.heads import Head, HeadSet
from ccs.judges.question import Judgment
from ccs.results import PRECOMPUTED, Results, queries, searches
from ccs.results.searches import Search

PRINTED = {"high": "5", "moderate": "3", "low": "≤1"}
"""Level -> CCS as the paper prints it."""


@dataclass(frozen=True)
class Text:
    """One of a head's texts, with the share of the head's variance that it explains."""

    text: str
    concept: str
    share: float
    verdicts: tuple[Judgment, ...]


@dataclass(frozen=True)
class HeadRecord:
    """The results for one head.

    Attributes:
        head: Its name.
        label: The labeler's concept, whether the texts fit it or not.
        labeler: The name of the labeler.
        ccs: The number of texts that fit, None if unknown.
        k: The number of texts behind the score; 0 if the head was never scored.
        level: The CCS level, "" between the levels, "unknown" if a verdict is missing.
        share: The share of the head's variance that its texts explain.
        variance: The variance of its contribution.
        texts: The texts behind the score.
        published: Whether label and level are the paper's, and nothing was computed.
    """

    head: Head
    label: str = ""
    labeler: str = ""
    ccs: int | None = None
    k: int = 0
    level: str = ""
    share: float | None = None
    variance: float | None = None
    texts: tuple[Text, ...] = ()
    published: bool = False

    @property
    def score(self) -> str:
        """The CCS in one or two characters: a number, `?` if unknown, `–` if there is none."""
        if self.ccs is not None:
            return str(self.ccs)
        return "?" if self.k else PRINTED.get(self.level, "–")

    @property
    def concept(self) -> str:
        """The label if it is the paper's or more than half of the texts fit it, else ""."""
        return self.label if self.published or self.ccs is None or 2 * self.ccs > self.k else ""


@dataclass(frozen=True)
class Claim:
    """Heads whose ablation lowers the skew of rankings by an attribute.

    Attributes:
        attribute: The attribute of people.
        heads: The heads with the planted bias, or those from a search.
        search: The search.
        held_out: Its result on held-out faces, occupations, and control images.
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
        """The held-out change of MaxSkew; 0 if unknown."""
        return self.held_out.max_skew_change.value if self.held_out else 0.0


@dataclass(frozen=True)
class ModelRecords(Results):
    """One model's results for the views, which may have no tables."""

    @cached_property
    def heads(self) -> Mapping[Head, HeadRecord]:
        """A record for each head, from the tables or else from the levels that the paper prints."""
        return _heads(self) if self.manifest else _printed(self.model)

    @property
    def published(self) -> bool:
        """Whether the records are the paper's, because there are no tables."""
        return not self.manifest and bool(self.heads)

    def head(self, head: Head) -> HeadRecord:
        """Return a head's record; an empty one if the results lack it."""
        return self.heads.get(head, HeadRecord(head))

    @cached_property
    def presets(self) -> dict[str, HeadSet]:
        """Name -> heads to ablate: none, those of a level, those of a concept."""
        sets = {f"{level} CCS": self.level(level) for level in PRINTED}
        for concept in sorted({record.concept for record in self.heads.values()} - {""}):
            sets[concept] = HeadSet(h for h, record in self.heads.items() if record.concept == concept)
        return {"none": HeadSet(), **{name: heads for name, heads in sets.items() if heads}}

    @cached_property
    def k(self) -> int:
        """The number of texts behind a score; 0 without scores."""
        return max((record.k for record in self.heads.values()), default=0)

    @cached_property
    def claim(self) -> Claim | None:
        """The claim about the model; None if nothing was planted and no search found heads."""
        planted = planted_truth(self.model)
        if planted and planted.heads:
            return Claim([*planted.carries][-1], planted.heads)
        lowered = [claim for claim in self._searched(world(self.model).people) if claim.change < 0]
        return min(lowered, key=lambda claim: (not claim.conclusive, claim.change), default=None)

    def held_out(self, heads: HeadSet, attribute: str, gallery: str) -> Claim | None:
        """Return the held-out result of the search that found exactly these heads; None without one.

        Args:
            heads: The ablated heads.
            attribute: The attribute of people.
            gallery: The gallery.
        """
        searched = self._searched(gallery)
        return next((c for c in searched if (c.heads, c.attribute) == (heads, attribute)), None)

    def _searched(self, gallery: str) -> list[Claim]:
        """Return the results of searches on a gallery."""
        return [
            Claim(search.attribute, search.heads, search, result)
            for search in self.searches
            for result in search.held_out
            if search.gallery == gallery and result.ablation == "searched"
        ]

    @cached_property
    def influential_heads(self) -> HeadSet:
        """Heads whose ablation has a significant effect: the claim's, else the one that costs most accuracy.

        They are the high-CCS heads if no head was ablated alone.
        """
        if (claim := self.claim) and claim.conclusive:
            return claim.heads
        rows = queries.single_heads(queries.top1(self).dropna(subset="difference"))
        worst = rows.sort_values("difference")["heads"].head(1)
        return HeadSet.parse(worst.iloc[0]) if len(worst) else self.level("high")

    def level(self, level: str) -> HeadSet:
        """Return the heads of a CCS level."""
        return HeadSet(head for head, record in self.heads.items() if record.level == level)

    @cached_property
    def searches(self) -> tuple[Search, ...]:
        """The stored searches of these weights: those next to the tables, else the bundled ones.

        Searches are untrusted, so those with heads that the tables lack are left out.
        """
        folders = (self.folder.parent, PRECOMPUTED)
        stored = (searches.beside(folder, self.model, self.weights) for folder in folders)
        return tuple(s for s in next(filter(None, stored), ()) if set(s.heads) <= set(self.heads))

    @property
    def origin(self) -> dict[str, str]:
        """The origin of a figure that uses only these tables: their weights, without ablation."""
        return {"weights": self.weights[:16], "ablated heads": ""}

    @property
    def weights(self) -> str:
        """The hash of the weights that the tables were computed from, "" without tables."""
        return str(self.manifest.get("model", {}).get("weights_hash", ""))


def _printed(model: str) -> dict[Head, HeadRecord]:
    """Return the levels and labels of tables 12 to 14 of the paper; empty for other models."""
    try:
        levels = paper.head_labels(model)
    except InputError:
        return {}
    records = {head: HeadRecord(head) for head in paper.model(model).heads}
    for level, labels in levels.items():
        for head, label in labels.items():
            records[head] = HeadRecord(head, label, level=level, published=True)
    return records


def _rows(table: pd.DataFrame) -> Iterator[tuple[Head, Any]]:
    """Yield each row after its head, with None for missing values."""
    return queries.by_head(table.astype(object).where(table.notna(), None))


def _heads(results: Results) -> dict[Head, HeadRecord]:
    """Return a record for each head in the tables."""
    judgments, texts = defaultdict[Any, list[Judgment]](list), defaultdict[Head, list[Text]](list)
    for head, row in _rows(results.table("judgments")):
        judgments[head, row.rank].append(Judgment(row.judge, row.verdict, row.reason or "", row.cause or ""))
    for head, row in _rows(results.table("spans").sort_values("rank")):
        texts[head].append(Text(row.text, row.concept or "", row.share, tuple(judgments[head, row.rank])))
    values: dict[Head, dict[str, Any]] = {head: {"texts": tuple(texts[head])} for head in texts}
    for head, row in _rows(queries.main_scores(results)):
        score = {name: getattr(row, name) for name in ("ccs", "k", "level", "share", "variance")}
        values[head] = {**score, "label": row.label or "", "texts": tuple(texts[head][: row.k])}
    for head, row in _rows(results.table("labels")):
        values[head] = values.get(head, {}) | {"label": row.given or "", "labeler": row.labeler}
    return {head: HeadRecord(head, **values[head]) for head in sorted(values)}
