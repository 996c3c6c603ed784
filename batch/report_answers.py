"""The study's questions put to measured results as tests: does pruning high heads hurt, does it lower
skew, and does CCS measure what it says?
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd

from batch.document import Block, Grid, Heading, Text
from ccs import effects, selectivity, stats
from ccs.concepts import tree
from ccs.errors import InputError
from ccs.heads import Head
from ccs.results import Results
from ccs.stats import Effect

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


@dataclass(frozen=True)
class Tested:
    """One test: what was asked of which set, the effect in the measure's units, heads switched off."""

    question: str
    where: str
    effect: Effect
    expected: Literal["above", "below"]
    n_heads: int
    scale: float


def factors_of(concept: str | None) -> tuple[str, ...]:
    """The scene's factors that a label names, by the concept or its nearest ancestor that has any."""
    known = tree()
    while concept:
        if concept in FACTORS:
            return FACTORS[concept]
        concept = known.parent(concept) if concept in known.concepts else None
    return ()


def accuracy_frame(results: Results) -> pd.DataFrame:
    """Top-1 over all classes of every set."""
    frame = results.table("pruning")
    return frame[(frame["metric"] == "top1") & (frame["subset"] == "")].assign(where=frame["dataset"])


def skew_frame(results: Results) -> pd.DataFrame:
    """Mean MaxSkew over occupations by the correct metric, against the pool, of every set and attribute."""
    frame = results.table("bias")
    chosen = (frame["metric"] == "MaxSkew mean") & (frame["mode"] == "correct") & (frame["target"] == "pool")
    return frame[chosen].assign(where=frame["dataset"] + ", " + frame["attribute"])


def against_random(frame: pd.DataFrame) -> Effect | None:
    """High heads against as many random ones; None where either is missing."""
    high = frame.loc[frame["plan"] == "high", "value"]
    random = frame.loc[(frame["plan"] == "random") & frame["seed"].notna(), "value"]
    if not len(high) or not len(random):
        return None
    return stats.against_random(float(high.iloc[0]), random.to_numpy(float))


def tests_of(results: Results) -> list[Tested]:
    """Both questions on every set: accuracy against random heads; skew against no head off and random
    ones.
    """
    found: list[Tested] = []
    for name, frame, scale in (
        ("accuracy (points)", accuracy_frame(results), 100.0),
        ("MaxSkew", skew_frame(results), 1.0),
    ):
        for where, some in frame.groupby("where", sort=False):
            high = some[some["plan"] == "high"]
            if not len(high):
                continue
            row = high.iloc[0]
            size = int(row["n_heads"])
            if pd.notna(row["p_value"]):
                cells = [
                    float(row[key]) for key in ("difference", "difference_low", "difference_high", "p_value")
                ]
                found.append(
                    Tested(
                        f"{name}: high off less none off", str(where), Effect(*cells), "below", size, scale
                    )
                )
            other = against_random(some)
            if other is not None:
                question = f"{name}: high off less random off"
                found.append(Tested(question, str(where), other, "below", size, scale))
    return found


def answers(results: Results) -> Iterator[Block]:
    """The tests of one model as a table, Holm's correction over all of them."""
    found = tests_of(results)
    if not found:
        return
    adjusted = stats.holm([one.effect.p_value for one in found])
    rows = []
    for one, p_value in zip(found, adjusted, strict=True):
        corrected = Effect(one.effect.value, one.effect.low, one.effect.high, float(p_value))
        digits = 1 if one.scale > 1 else 3
        apiece = stats.per_head(one.effect, one.n_heads).value * one.scale
        answer = stats.answer(corrected, expected=one.expected)
        rows.append(
            [
                one.question,
                one.where,
                f"{one.effect.value * one.scale:+.{digits}f}",
                interval(one.effect, one.scale, digits),
                _p(one.effect.p_value),
                _p(float(p_value)),
                f"{apiece:+.{digits + 1}f}",
                {"yes": "yes, lower", "no, the reverse": "no, higher"}.get(answer, answer),
            ]
        )
    yield Heading(3, "Does pruning high heads hurt, and does it lower skew?")
    yield Text(
        "Lower accuracy is harm, lower MaxSkew is what one hopes for. Against no head off: paired bootstrap. "
        "Against random heads: could the high set be one more random set (prediction interval)? p is "
        "adjusted by Holm over the tests of this table."
    )
    columns = ["difference", "where", "effect", "95% interval", "p", "adjusted p", "per head", "lower?"]
    yield Grid(columns, rows, "", frozenset({"where", "lower?"}))


def overall(models: Mapping[str, Results]) -> Iterator[Block]:
    """Each question once a model (means over sets) and over all models."""
    rows = []
    for name, make, scale, digits in (
        ("accuracy (points): high off less random off", accuracy_frame, 100.0, 1),
        ("MaxSkew: high off less random off", skew_frame, 1.0, 3),
    ):
        found: list[Effect] = []
        for model, results in models.items():
            frame = make(results)
            means = frame.groupby(["plan", "seed"], dropna=False)["value"].mean().reset_index()
            effect = against_random(means)
            if effect is not None and np.isfinite(effect.p_value):
                found.append(effect)
                cells = [f"{effect.value * scale:+.{digits}f}", interval(effect, scale, digits)]
                rows.append([name, model, *cells, _p(effect.p_value)])
        if len(found) > 1:
            whole = stats.overall(found)
            cells = [f"{whole.value * scale:+.{digits}f}", interval(whole, scale, digits)]
            rows.append([name, "**all models**", *cells, _p(whole.p_value)])
    if rows:
        yield Text("The study's two questions, each model's mean over its sets, and all models together:")
        yield Grid(["difference", "model", "effect", "95% interval", "p"], rows, "", frozenset({"model"}))


def ccs_and_truth(results: Results) -> Iterator[Block]:
    """Does CCS go with how much of a head's variance its factor explains, and direct with total effects?"""
    heads, scores = results.table("heads"), results.table("scores")
    rows: list[list[str]] = []
    frame = heads[heads["measure"] == "selectivity"]
    if len(frame) and len(scores):
        least = scores[scores["k"] == scores["k"].min()]
        known = {Head(int(row["layer"]), int(row["head"])): row for _, row in least.iterrows()}
        ccs = {head: None if pd.isna(row["ccs"]) else int(row["ccs"]) for head, row in known.items()}
        labels = {head: None if pd.isna(row["label"]) else str(row["label"]) for head, row in known.items()}
        best: dict[Head, float] = {}
        own: dict[Head, float] = {}
        for _, row in frame.iterrows():
            head = Head(int(row["layer"]), int(row["head"]))
            best[head] = max(best.get(head, -1.0), float(row["value"]))
            if row["factor"] in factors_of(labels.get(head)):
                own[head] = max(own.get(head, -1.0), float(row["value"]))
        for name, shares in (("the factor its label names", own), ("its strongest factor", best)):
            count = sum(head in shares for head, score in ccs.items() if score is not None)
            _correlated(
                rows, f"CCS with selectivity for {name}", count, partial(selectivity.agreement, ccs, shares)
            )
    for (dataset, metric, factor), some in heads[heads["metric"] != ""].groupby(
        ["dataset", "metric", "factor"]
    ):
        both = [_effects(some[some["measure"] == f"{kind} effect"]) for kind in ("direct", "total")]
        shared = both[0].keys() & both[1].keys()
        if len(shared) >= 4:
            where = ", ".join(part for part in (dataset, metric, factor) if part)
            parts = [{head: one[head] for head in shared} for one in both]
            _correlated(
                rows,
                f"direct with total effect: {where}",
                len(shared),
                partial(_spearman, *parts),
            )
    if not rows:
        return
    yield Heading(3, "Does CCS measure what it says? Do direct and total effects agree?")
    yield Text(
        "Selectivity is the share of the variance of a head's contribution that a factor of the scene "
        "explains: the truth, which only a drawn world can give. Spearman's correlation over heads; the "
        "interval draws heads anew."
    )
    yield Grid(["correlation of", "heads", "rho", "95% interval", "p"], rows)


def _correlated(rows: list[list[str]], name: str, count: int, compute: Callable[[], Effect]) -> None:
    try:
        effect = compute()
    except InputError:
        rows.append([name, str(count), "–", "too few heads", "–"])
        return
    if not np.isfinite(effect.value):
        rows.append([name, str(count), "–", "all alike", "–"])
        return
    rows.append([name, str(count), f"{effect.value:+.2f}", interval(effect, 1, 2), _p(effect.p_value)])


def _spearman(direct: Mapping[Head, Effect], total: Mapping[Head, Effect]) -> Effect:
    return effects.agreement(direct, total)["spearman"]


def _effects(frame: pd.DataFrame) -> dict[Head, Effect]:
    return {
        Head(int(row["layer"]), int(row["head"])): Effect(
            float(row["value"]), float(row["low"]), float(row["high"]), float(row["p_value"])
        )
        for _, row in frame.iterrows()
        if pd.notna(row["low"]) and pd.notna(row["p_value"])
    }


def interval(effect: Effect, scale: float, digits: int) -> str:
    """ "-3.2 to -1.0", or a dash."""
    if not np.isfinite([effect.low, effect.high]).all():
        return "–"
    return f"{effect.low * scale:+.{digits}f} to {effect.high * scale:+.{digits}f}"


def _p(value: float) -> str:
    if not np.isfinite(value):
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
