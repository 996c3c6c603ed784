"""Does CCS measure what it says? Its correlation with what a drawn world knows of every head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from batch.report.figures import plane
from batch.report.page import Block, Chart, Grid, Heading, Text
from batch.report.wording import interval, p_text
from ccs.errors import InputError
from ccs.heads import Head
from ccs.measures import selectivity
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

    @property
    def cells(self) -> list[str]:
        if self.effect is None:
            return [self.name, str(self.n), "–", self.why, "–"]
        e = self.effect
        return [self.name, str(self.n), f"{e.value:+.2f}", interval(e, 1, 2), p_text(e.p_value)]


def factors_of(concept: str | None) -> tuple[str, ...]:
    """The scene's factors that a label names, by the concept or its nearest ancestor that has any."""
    known = tree()
    while concept:
        if concept in FACTORS:
            return FACTORS[concept]
        concept = known.parent(concept) if concept in known.concepts else None
    return ()


def scored(results: Results) -> tuple[dict[Head, int | None], dict[Head, str | None]]:
    """Each head's CCS and label at the main K; None where unknown."""
    rows = {
        Head(int(row["layer"]), int(row["head"])): row for _, row in queries.main_scores(results).iterrows()
    }
    ccs = {head: None if pd.isna(row["ccs"]) else int(row["ccs"]) for head, row in rows.items()}
    return ccs, {head: None if pd.isna(row["label"]) else str(row["label"]) for head, row in rows.items()}


def correlated(name: str, left: Mapping[Head, int | None], right: Mapping[Head, float]) -> Correlated:
    """Spearman's correlation of CCS with a figure of the same heads."""
    n = sum(head in right for head, value in left.items() if value is not None)
    try:
        effect = selectivity.agreement(left, right)
    except InputError:
        return Correlated(name, n, None, "too few heads")
    if not np.isfinite(effect.value):
        return Correlated(name, n, None, "all alike")
    return Correlated(name, n, effect)


def with_selectivity(results: Results) -> list[Correlated]:
    """CCS with the selectivity for what the label names, and with the largest of all factors."""
    heads = results.table("heads")
    frame = heads[heads["measure"] == "selectivity"]
    ccs, labels = scored(results)
    if not len(frame) or not ccs:
        return []
    best: dict[Head, float] = {}
    own: dict[Head, float] = {}
    for _, row in frame.iterrows():
        head = Head(int(row["layer"]), int(row["head"]))
        best[head] = max(best.get(head, -1.0), float(row["value"]))
        if row["factor"] in factors_of(labels.get(head)):
            own[head] = max(own.get(head, -1.0), float(row["value"]))
    return [
        correlated(f"CCS with selectivity for {name}", ccs, shares)
        for name, shares in ((OWN, own), (BEST, best))
    ]


def said(one: Correlated) -> str:
    """What a correlation comes to, in words."""
    if one.effect is None:
        return f"cannot be asked ({one.why})"
    e = one.effect
    figures = f"rho {e.value:+.2f}, {interval(e, 1, 2)}, p {p_text(e.p_value)}, {one.n} heads"
    if e.p_value > 0.05:
        return f"not shown ({figures})"
    return f"{'yes' if e.value > 0 else 'no, the reverse'} ({figures})"


def ccs_and_truth(results: Results) -> Iterator[Block]:
    """The correlations of one model: CCS with selectivity, direct with total effects."""
    rows = [one.cells for one in with_selectivity(results)]
    both = results.table("correlations")
    for _, row in both[both["method"] == "spearman"].iterrows():
        where = ", ".join(part for part in (row["dataset"], row["metric"], row["factor"]) if part)
        figures = [float(row[key]) for key in ("value", "low", "high", "p_value")]
        effect = Effect(*figures) if np.isfinite(figures[0]) else None
        rows.append(Correlated(f"{row['between']}: {where}", int(row["n"]), effect, "all alike").cells)
    if not rows:
        return
    yield Heading(3, "Does CCS measure what it says? Do direct and total effects agree?")
    yield Text(
        "Selectivity is the share of the variance of a head's contribution that a factor of the scene "
        "explains: the truth, which only a drawn world can give. Direct effect: a head's contribution "
        "subtracted from the embedding; total effect: its output at zero in the forward pass. Spearman's "
        "correlation over heads; the interval draws heads anew."
    )
    yield Grid(["correlation of", "heads", "rho", "95% interval", "p"], rows)


def selectivity_chart(name: str, key: str, results: Results) -> Iterator[Block]:
    """Each head's CCS beside the share of its variance that its best factor explains."""
    heads = results.table("heads")
    frame = heads[heads["measure"] == "selectivity"]
    if not len(frame):
        return
    best = frame.loc[frame.groupby(["layer", "head"])["value"].idxmax()]
    both = best.merge(
        queries.main_scores(results)[["layer", "head", "ccs", "label", "level"]], on=["layer", "head"]
    )
    both = both[both["ccs"].notna()]
    if not len(both):
        return
    points = [
        (
            f"L{row['layer']}.H{row['head']}, {row['label']}: {row['factor']}",
            row["ccs"],
            row["value"],
            str(row["level"]) or "other",
        )
        for _, row in both.iterrows()
    ]
    yield Heading(3, "Selectivity and CCS")
    yield Chart(
        f"{key}-selectivity",
        plane(points, "CCS", "selectivity for its best factor"),
        f"{name}: each head's CCS and how much of its variance its best factor explains.",
    )
