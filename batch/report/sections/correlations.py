"""Does CCS measure what it says? Its correlation with what a drawn world knows of every head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from batch.report.figures import plane
from batch.report.page import Block, Chart, slug, table
from batch.report.wording import interval, p_text
from ccs.errors import InputError
from ccs.heads import Head
from ccs.measures import selectivity, stats
from ccs.measures.stats import Effect
from ccs.results import Results, queries
from ccs.texts.concepts import tree

FACTORS: Mapping[str, tuple[str, ...]] = {
    "Colors": ("color",),
    "Patterns": ("pattern",),
    "Textures": ("pattern",),
    "Places": ("place",),
    "Countries": ("subject",),
    "Backgrounds": ("color", "pattern", "place"),
    "Ambiance": ("weather",),
    "Styles": ("style",),
    "Professions": ("occupation",),
    "Gender": ("gender",),
    "Ages": ("age",),
    "Hair": ("hair",),
    "Skin tones": ("skin_tone",),
    "People": ("occupation", "gender", "skin_tone", "hair", "age", "kind"),
    "Animals": ("subject",),
    "Nature": ("subject",),
    "Food": ("subject",),
    "Objects": ("subject",),
    "Text": ("kind", "subject"),
    "Counts": ("count",),
}
"""Factors of a drawn scene that a concept names; a concept not listed takes those of its nearest ancestor."""
OWN = "the factor that its label names"
BEST = "its strongest factor"


@dataclass(frozen=True)
class Correlated:
    """A correlation over `n` heads; `effect` is None where there is none, and `why` says so."""

    name: str
    n: int
    effect: Effect | None
    why: str = ""

    def __str__(self) -> str:
        """An answer: is the correlation above zero?"""
        if self.effect is None:
            return f"cannot be asked ({self.why})"
        found = self.effect
        figures = f"rho {found.value:+.2f}, {interval(found, digits=2)}, p {p_text(found.p_value)}"
        answer = stats.answer(found, expected="above")
        return f"{answer} ({figures}, {self.n} heads)"

    @property
    def row(self) -> dict[str, str]:
        """The correlation as a row of a table."""
        found = self.effect
        return {
            "correlation of": self.name,
            "heads": str(self.n),
            "rho": "–" if found is None else f"{found.value:+.2f}",
            "95% interval": self.why if found is None else interval(found, digits=2),
            "p": "–" if found is None else p_text(found.p_value),
        }


def factors_of(concept: str | None) -> tuple[str, ...]:
    """The scene's factors that a label names, by the concept or its nearest ancestor that has any."""
    known = tree()
    while concept:
        if concept in FACTORS:
            return FACTORS[concept]
        concept = known.parent(concept) if concept in known.concepts else None
    return ()


def with_ccs(name: str, results: Results, figures: Mapping[Head, float]) -> Correlated:
    """Spearman's correlation of the heads' CCS with a figure of theirs."""
    ccs = {head: score.ccs for head, score in queries.head_scores(results).items()}
    n = sum(head in figures for head, value in ccs.items() if value is not None)
    try:
        effect = selectivity.agreement(ccs, figures)
    except InputError:
        return Correlated(name, n, None, "too few heads")
    known = bool(np.isfinite(effect.value))
    return Correlated(name, n, effect if known else None, "" if known else "all alike")


def with_selectivity(results: Results) -> list[Correlated]:
    """CCS with the selectivity for what the label names, and with the largest of all factors."""
    scores = queries.head_scores(results)
    frame = queries.selectivity(results)
    if not len(frame) or not scores:
        return []
    best: dict[Head, float] = {}
    own: dict[Head, float] = {}
    for _, row in frame.iterrows():
        head, share = Head(int(row["layer"]), int(row["head"])), float(row["value"])
        best[head] = max(best.get(head, share), share)
        if head in scores and row["factor"] in factors_of(scores[head].label):
            own[head] = max(own.get(head, share), share)
    return [
        with_ccs(f"CCS with selectivity for {name}", results, shares)
        for name, shares in ((OWN, own), (BEST, best))
    ]


def correlation_blocks(results: Results) -> Iterator[Block]:
    """The correlations of one model: CCS with selectivity, direct with total effects."""
    found = with_selectivity(results)
    for _, row in queries.correlations(results).iterrows():
        where = ", ".join(part for part in (row["dataset"], row["metric"], row["factor"]) if part)
        effect = queries.effect(row)
        known = effect if np.isfinite(effect.value) else None
        found.append(Correlated(f"{row['between']}: {where}", int(row["n"]), known, "all alike"))
    if not found:
        return
    yield "### Does CCS measure what it says? Do direct and total effects agree?"
    yield (
        "Selectivity is the share of the variance of a head's contribution that a factor of the scene "
        "explains: the truth, which only a drawn world can give. Direct effect: a head's contribution is "
        "subtracted from the embedding; total effect: its output is zero in the forward pass. Spearman's "
        "correlation over heads; the interval resamples heads."
    )
    yield table(pd.DataFrame([one.row for one in found]))


def selectivity_chart(results: Results) -> Iterator[Block]:
    """Each head's CCS beside the share of its variance that its best factor explains."""
    frame = queries.selectivity(results)
    if not len(frame):
        return
    best = frame.loc[frame.groupby(["layer", "head"])["value"].idxmax()]
    scores = queries.main_scores(results)[["layer", "head", "ccs", "label", "level"]]
    both = best.merge(scores, on=["layer", "head"]).dropna(subset="ccs")
    if not len(both):
        return
    points = [
        {"name": f"L{row['layer']}.H{row['head']}, {row['label']}: {row['factor']}"}
        | {"x": row["ccs"], "y": row["value"], "series": str(row["level"]) or "other"}
        for _, row in both.iterrows()
    ]
    yield "### Selectivity and CCS"
    yield Chart(
        f"{slug(results.model)}-selectivity",
        plane(pd.DataFrame(points), "CCS", "selectivity for its best factor"),
        f"{results.model}: each head's CCS and how much of its variance its best factor explains.",
    )
