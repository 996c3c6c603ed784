"""A model's tables in the shape that the views need: one record per head."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from ccs import paper
from ccs.errors import InputError
from ccs.heads import Head, HeadSet
from ccs.judges.question import Judgment
from ccs.results import PRECOMPUTED, Results, queries, searches
from ccs.results.searches import Search

PRINTED = {"high": "5", "moderate": "3", "low": "≤1"}
"""CCS of a level as the study prints it."""
STUDY_K = 5  # texts that decide a level in the study
NONE = "none"  # the preset with no head off


@dataclass(frozen=True)
class Text:
    """One of a head's texts. `share`: of the head's variance."""

    text: str
    concept: str
    share: float
    verdicts: tuple[Judgment, ...]


@dataclass(frozen=True)
class HeadRecord:
    """All that the tables know of one head. `ccs` None is unknown; `k` 0 means that it was never scored.

    `texts` are the k that the score counts. `label`: the labeler's, whether texts fit it or not. `published`:
    label and level are those that the study printed, and nothing was computed. `printed`: the level that the
    study prints of a head that was scored here too ("" for no level), None where it prints nothing.
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
    printed: str | None = None

    @property
    def differs(self) -> bool:
        """True where the study prints another level than was found here."""
        return self.printed is not None and self.level not in (self.printed, "unknown")

    @property
    def score(self) -> str:
        """The CCS in one character or two: a number, `?` where unknown, `–` where there is none."""
        if self.k == 0:
            return PRINTED.get(self.level, "–")
        return "?" if self.ccs is None else str(self.ccs)

    @property
    def concept(self) -> str:
        """The label, where it is the study's or more than half of the texts fit it; else ""."""
        fits = self.published or self.ccs is None or 2 * self.ccs > self.k
        return self.label if fits else ""

    @property
    def words(self) -> str:
        """The concept, or what stands in its place: the first two texts."""
        texts = ", ".join(f"“{text.text}”" for text in self.texts[:2])
        return self.concept or ("no concept; its texts: " + texts if texts else "no concept")

    @property
    def level_name(self) -> str:
        """The level in words."""
        if self.published:
            return f"{self.level}, as published"
        if self.k == 0:
            return "not scored"
        return {"": "between the levels", "unknown": "unknown, a verdict is missing"}.get(
            self.level, self.level
        )


@dataclass(frozen=True)
class ModelRecords:
    """One model's results for the views. `results` None: there are no tables for this model."""

    model: str
    results: Results | None = None
    heads: Mapping[Head, HeadRecord] = field(default_factory=dict)

    @classmethod
    def read(cls, model: str, results: Results | None) -> ModelRecords:
        """The tables of one model, read into records once; without tables, what the study printed of it."""
        return cls(model, results, _heads(results) if results else _printed(model))

    @property
    def published(self) -> bool:
        """True where the records are what the study printed, and there are no tables."""
        return self.results is None and bool(self.heads)

    def head(self, head: Head) -> HeadRecord:
        """The head's record; an empty one where the tables do not know it."""
        return self.heads.get(head, HeadRecord(head))

    @cached_property
    def presets(self) -> dict[str, HeadSet]:
        """Sets of heads that can be switched off at once, by name: none, those of a level, of a concept."""
        concepts = sorted({record.concept for record in self.heads.values()} - {""})
        found = {level: self.level(level) for level in PRINTED}
        found |= {
            concept: HeadSet(head for head, record in self.heads.items() if record.concept == concept)
            for concept in concepts
        }
        return {NONE: HeadSet(), **{name: off for name, off in found.items() if off}}

    @cached_property
    def k(self) -> int:
        """The number of texts that a score counts; 0 where no head has one."""
        return max((record.k for record in self.heads.values()), default=0)

    @cached_property
    def costly(self) -> HeadSet:
        """The high-CCS heads, where 97.5% of random sets cost less accuracy, else the head that costs most.
        Without tables the heads that the study printed as high.
        """
        if self.results is None:
            return self.level("high")
        rows = queries.top1(self.results).dropna(subset="difference")
        high, alone = queries.of_ablation(rows, "high"), queries.single_heads(rows)
        low = queries.random_sets(rows).groupby("dataset")["difference"].quantile(0.025)
        beyond = (high.set_index("dataset")["difference"] - low).dropna()
        found = high[high["dataset"] == beyond.idxmin()] if len(beyond) and beyond.min() < 0 else alone
        if not len(found):
            return HeadSet()
        return HeadSet.parse(found.sort_values("difference")["heads"].iloc[0])

    def level(self, level: str) -> HeadSet:
        """The heads of a CCS level."""
        return HeadSet(head for head, record in self.heads.items() if record.level == level)

    def judgments(self) -> pd.DataFrame:
        """The judgments of the texts that count at the main K; without results, none."""
        return pd.DataFrame() if self.results is None else queries.main_judgments(self.results)

    @cached_property
    def searches(self) -> tuple[Search, ...]:
        """The searches for a fairer set beside the tables, else those that ship for these weights.

        Those that found heads which the tables do not know are left out: they may be a stranger's.
        """
        if self.results is None:
            return ()
        places = (self.results.folder.parent, PRECOMPUTED)
        found = next(filter(None, (searches.beside(place, self.model, self.weights) for place in places)), ())
        return tuple(one for one in found if set(one.heads) <= set(self.heads))

    @property
    def made(self) -> dict[str, str]:
        """What a figure of these tables alone was made with: their weights, all heads on."""
        return {"weights": self.weights[:16], "ablated heads": ""}

    @property
    def weights(self) -> str:
        """The hash of the weights that the tables were computed from; without results, ""."""
        return str(self.manifest.get("model", {}).get("weights_hash", ""))

    @property
    def manifest(self) -> Mapping[str, Any]:
        """The run's manifest; without results, an empty one."""
        return {} if self.results is None else self.results.manifest


def _printed(model: str) -> dict[Head, HeadRecord]:
    """The levels and labels of tables 12 to 14 of the study; none for a model that it does not have."""
    try:
        labels, heads = paper.head_labels(model), paper.model(model).heads
    except InputError:
        return {}
    found = {head: HeadRecord(head) for head in heads}
    return found | {
        head: HeadRecord(head, label=label, level=level, published=True)
        for level, of_level in labels.items()
        for head, label in of_level.items()
    }


def _heads(results: Results) -> dict[Head, HeadRecord]:
    verdicts: dict[tuple[Head, int], list[Judgment]] = defaultdict(list)
    for head, row in queries.by_head(results.table("judgments")):
        verdict = None if pd.isna(row.verdict) else bool(row.verdict)
        verdicts[head, row.rank].append(Judgment(row.judge, verdict, row.reason or "", row.cause or ""))
    texts: dict[Head, list[Text]] = defaultdict(list)
    for head, row in queries.by_head(results.table("spans").sort_values("rank")):
        said = tuple(verdicts[head, row.rank])
        texts[head].append(Text(row.text, _text(row.concept), float(row.share), said))
    labels = dict(queries.by_head(results.table("labels")))
    # With several K the smallest, last here, is the main one: labels, levels and the texts shown are its.
    best = dict(queries.by_head(results.table("scores").sort_values("k", ascending=False)))
    records, printed = {}, _printed(results.model)
    for head in sorted({*texts, *labels, *best}):
        label, score = labels.get(head), best.get(head)
        k = int(score.k) if score else 0
        records[head] = HeadRecord(
            head,
            label=_text(label.given) if label else _text(score.label) if score else "",
            labeler=label.labeler if label else "",
            ccs=None if score is None or pd.isna(score.ccs) else int(score.ccs),
            k=k,
            level=score.level if score else "",
            share=float(score.share) if score else None,
            variance=float(score.variance) if score else None,
            texts=tuple(texts[head][: k or None]),
            printed=printed[head].level if k == STUDY_K and head in printed else None,
        )
    return records


def _text(value: object) -> str:
    return "" if value is None or value is pd.NA or value != value else str(value)
