"""What the tables say, in the shape the views need: a record a head, and the plans that were measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from ccs.heads import Head, HeadSet
from ccs.results import Results, queries


@dataclass(frozen=True)
class Verdict:
    """What one judge said of one text. `verdict` None is unscored, and `cause` says why."""

    judge: str
    verdict: bool | None
    reason: str
    cause: str

    @property
    def why(self) -> str:
        """What the judge gave as its reason, after the cause where there is no verdict."""
        return ": ".join(filter(None, (self.cause, self.reason)))


@dataclass(frozen=True)
class Text:
    """One of a head's texts. `share`: of the head's variance."""

    text: str
    concept: str
    share: float
    verdicts: tuple[Verdict, ...]

    @property
    def accepted(self) -> bool | None:
        """True if all judges say yes, None where one of them is unscored or none was asked."""
        said = [v.verdict for v in self.verdicts]
        if not said or None in said:
            return None
        return all(said)


@dataclass(frozen=True)
class Card:
    """All the tables know of one head. `ccs` None is unknown; `k` 0 means that it was never scored.

    `texts` are the k that the score counts. A run may count more: `further` are the texts after these, and
    `others` holds (k, CCS at that k), known ones only.
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
    further: tuple[Text, ...] = ()
    others: tuple[tuple[int, int], ...] = ()

    @property
    def score(self) -> str:
        """The CCS in one character or two: a number, `?` where unknown, `–` where there is none."""
        if self.k == 0:
            return "–"
        return "?" if self.ccs is None else str(self.ccs)

    @property
    def level_name(self) -> str:
        if self.k == 0:
            return "not scored"
        return {"": "between the levels", "unknown": "unknown, a verdict is missing"}.get(
            self.level, self.level
        )

    def matches(self, concept: str, level: str, find: str) -> bool:
        """Whether a filter keeps the head; an empty part of the filter keeps all."""
        if concept and self.label != concept:
            return False
        if level and (self.level or "between") != level:
            return False
        wanted = find.casefold()
        return not wanted or any(wanted in text.text.casefold() for text in self.texts)


@dataclass(frozen=True)
class Sheet:
    """One model's results for the views. `results` None: there are no tables for this model."""

    model: str
    results: Results | None = None
    cards: Mapping[Head, Card] = field(default_factory=dict)

    @property
    def heads(self) -> HeadSet:
        return HeadSet(self.cards)

    def card(self, head: Head) -> Card:
        return self.cards.get(head, Card(head))

    @cached_property
    def concepts(self) -> tuple[str, ...]:
        """The concepts that label a head, sorted."""
        return tuple(sorted({card.label for card in self.cards.values() if card.label}))

    @cached_property
    def k(self) -> int:
        return max((card.k for card in self.cards.values()), default=0)

    def level(self, level: str) -> HeadSet:
        return HeadSet(head for head, card in self.cards.items() if card.level == level)

    def concept(self, concept: str) -> HeadSet:
        return HeadSet(head for head, card in self.cards.items() if card.label == concept)

    def table(self, name: str) -> pd.DataFrame:
        """A table's rows; without results, none."""
        return pd.DataFrame() if self.results is None else self.results.table(name)

    def judgments(self) -> pd.DataFrame:
        """The judgments of the texts that count at the main K; without results, none."""
        return pd.DataFrame() if self.results is None else queries.main_judgments(self.results)

    @property
    def manifest(self) -> Mapping[str, Any]:
        return {} if self.results is None else self.results.manifest


def sheet(model: str, results: Results | None) -> Sheet:
    """The tables of one model, read into records once."""
    if results is None:
        return Sheet(model)
    verdicts: dict[tuple[Head, int], list[Verdict]] = defaultdict(list)
    for row in results.table("judgments").itertuples():
        verdict = None if pd.isna(row.verdict) else bool(row.verdict)
        said = Verdict(str(row.judge), verdict, str(row.reason or ""), str(row.cause or ""))
        verdicts[Head(int(row.layer), int(row.head)), int(row.rank)].append(said)
    texts: dict[Head, list[Text]] = defaultdict(list)
    for row in results.table("spans").sort_values(["layer", "head", "rank"]).itertuples():
        head = Head(int(row.layer), int(row.head))
        texts[head].append(
            Text(str(row.text), _text(row.concept), float(row.share), tuple(verdicts[head, int(row.rank)]))
        )
    labels = {Head(int(r.layer), int(r.head)): r for r in results.table("labels").itertuples()}
    scores = results.table("scores")
    # With several K the smallest is the main one: labels and levels are its, and so are the texts shown.
    main = scores["k"].min()
    best, others = {}, defaultdict(list)
    for r in scores.sort_values("k").itertuples():
        if r.k == main:
            best[Head(int(r.layer), int(r.head))] = r
        elif not pd.isna(r.ccs):
            others[Head(int(r.layer), int(r.head))].append((int(r.k), int(r.ccs)))
    cards = {}
    for head in sorted({*texts, *labels, *best}):
        label, score = labels.get(head), best.get(head)
        cards[head] = Card(
            head,
            label=_text(label.label) if label else _text(score.label) if score else "",
            labeler=str(label.labeler) if label else "",
            ccs=None if score is None or pd.isna(score.ccs) else int(score.ccs),
            k=int(score.k) if score else 0,
            level=str(score.level) if score else "",
            share=float(score.share) if score else None,
            variance=float(score.variance) if score else None,
            texts=tuple(texts[head][: int(score.k) if score else None]),
            further=tuple(texts[head][int(score.k) :]) if score else (),
            others=tuple(others[head]),
        )
    return Sheet(model, results, cards)


def _text(value: object) -> str:
    return "" if value is None or value is pd.NA or value != value else str(value)
