"""The study's figures beside what was measured, and the measurements of each model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from ccs import paper, results
from ccs.analysis.ablation_sets import PlanName
from ccs.batch.pages import Block, at_ceiling, fill, in_brackets, interval, signed
from ccs.batch.report import published
from ccs.batch.report.questions import in_short, tests_of
from ccs.bundled import planted_truth
from ccs.heads import Head, HeadSet
from ccs.results import Results, queries

Rows = list[dict[str, str]]


def build(collection: results.Collection, people: pd.DataFrame | None) -> list[Block]:
    """The whole report. `people`: what `clip-ccs annotate import` wrote."""
    models = collection.models
    trained = {name: found for name, found in models.items() if planted_truth(name) is None}
    blocks = fill(
        "report",
        source=collection.source,
        models=list(models),
        notices=list(collection.notices),
        printed=published.summary(models),
        **in_short(trained),
    )
    studied = [model.name for model in paper.models()]
    for name in sorted(models, key=lambda name: (studied.index(name) + 1 if name in studied else 0, name)):
        blocks += model_sections(models[name])
    blocks += [*published.tables_and_figures(models, people), *published.sentences(trained, people)]
    return [*blocks, *fill("not_reproduced"), *published.holes(models)]


def model_sections(results: Results) -> Iterator[Block]:
    manifest = results.manifest
    judges = [*manifest["judges"], manifest["labeler"] or {}]
    accuracy = queries.group_plans(queries.top1(results, subset=None))
    recall = queries.group_plans(queries.recall(results, ("R@1", "R@10")))
    skew = queries.with_full(results, queries.group_plans(queries.max_skew(results)))
    scores = queries.main_scores(results)
    yield from fill(
        "model",
        name=results.model,
        weights=str(manifest["model"].get("weights_hash", "")),
        manifest=manifest,
        layers=_layers(manifest["model"]),
        decided=queries.decided_by(manifest),
        moved=queries.moved_by_precision(manifest),
        stand_ins=sorted({one["name"] for one in judges if one.get("stand_in")}),
        tests=[one.row("where") for one in tests_of(results)],
        levels=_levels(scores, queries.high_labels(results)),
        redundancy=_redundancy(results),
        control=bool(len(queries.of_plan(accuracy, str(PlanName("random").published())))),
        counts=_counts(scores),
        chance=[f"{share:.1%} of CCS {value}" for value, share in enumerate(manifest["chance_ccs"])],
        accuracy=_by_plan(accuracy, ["dataset", "subset"], _changed(100, 1)),
        retrieval=_by_plan(recall, ["dataset", "direction", "metric"], _changed(100, 1)),
        skew=_by_plan(skew, ["dataset", "attribute"], _changed(1, 3)),
        chance_levels=_chance_levels(skew),
    )


def _layers(model: Mapping[str, Any]) -> str:
    scored = sorted({head.layer for head in HeadSet.parse(str(model.get("heads", "")))})
    return f"{', '.join(f'L{layer}' for layer in scored)} of {model.get('layers')} layers"


def _redundancy(results: Results) -> Rows:
    """The Concentrated Concept Ratio over all layers and layer by layer, by both spellings of labels."""
    rows: dict[str, dict[str, str]] = {}
    for _, row in results.table("ccr").iterrows():
        layer = "all" if pd.isna(row["layer"]) else f"L{row['layer']}"
        cells = rows.setdefault(layer, {"layer": layer, "high heads": str(row["high"])})
        ratio = "–" if pd.isna(row["ccr"]) else f"{row['ccr']:.3f}"
        cells |= {f"shared, {row['labels']}": str(row["shared"]), f"CCR, {row['labels']}": ratio}
    return list(rows.values()) if rows and rows["all"]["high heads"] != "0" else []


def _levels(scores: pd.DataFrame, given: Mapping[Head, tuple[str | None, str | None]]) -> Rows:
    """Each head's concept and score, the most consistent first; of high heads the normalized label too."""
    spelled = {head: f"{own} (normalized: {label})" for head, (own, label) in given.items() if own != label}
    return [
        {
            "head": str(head),
            "concept": spelled.get(head, "–" if pd.isna(row.label) else str(row.label)),
            "CCS": "unknown" if pd.isna(row.ccs) else f"{int(row.ccs)} of {row.k}",
            "level": str(row.level) or "–",
            "variance explained by its texts": f"{row.share:.2f}",
        }
        for head, row in queries.by_head(scores.sort_values(["ccs", "share"], ascending=False))
    ]


def _counts(scores: pd.DataFrame) -> list[str]:
    k = int(scores["k"].max()) if len(scores) else 0
    counts = scores["ccs"].value_counts()
    unknown = int(scores["ccs"].isna().sum())
    known = [f"{int(counts.get(value, 0))} of CCS {value}" for value in range(k + 1)]
    return [*known, *([f"{unknown} unknown"] if unknown else [])]


def _by_plan(frame: pd.DataFrame, columns: list[str], cell: Callable[[pd.Series], str]) -> Rows:
    """One row per plan, one column per value of `columns`."""
    rows: dict[str, dict[str, str]] = {}
    for _, row in frame.iterrows():
        plan = f"{row['ablation']} ({row['n_heads']})"
        column = " ".join(row[name] for name in columns if row[name])
        rows.setdefault(plan, {"plan (heads off)": plan})[column] = cell(row)
    return list(rows.values())


def _changed(scale: float, digits: int) -> Callable[[pd.Series], str]:
    """Makes a row's value and its change from nothing off, with an interval, the text of a cell."""

    def cell(row: pd.Series) -> str:
        text, change = f"{row['value'] * scale:.{digits}f}", queries.difference(row)
        text += at_ceiling(row.get("full", 0))
        if row["ablation"] == "none" or np.isnan(change.value):
            return text
        around = "" if np.isnan(change.low) else f": {interval(change, scale, digits)}"
        return f"{text} ({signed(change.value, digits, scale)}{around})"

    return cell


def _chance_levels(skew: pd.DataFrame) -> list[str]:
    return [
        f"{row['dataset']}, {row['attribute']} (K = {row['k']} of {row['n']}): "
        f"{in_brackets(queries.chance(row))}"
        for _, row in skew.drop_duplicates(["dataset", "attribute", "k"]).iterrows()
    ]
