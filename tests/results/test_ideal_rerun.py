"""The audit's own test: the study's printed figures, fed in as if measured, come out as printed."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from ccs import Head, paper, results
from ccs.batch import report
from ccs.results.schema import TABLES
from ccs.texts import labels, score
from research.paper import audit

CCS = {"high": 5, "moderate": 3}
METRICS = {"pruning": "top1", "retrieval": "R@1", "bias": "MaxSkew sum"}


def heads_of(model):
    """A row per head: those of tables 12 to 14 with their labels, others with CCS 2 and 4 as in table 10."""
    levels = paper.head_labels(model.name)
    listed = {head: (level, label) for level, by_head in levels.items() for head, label in by_head.items()}
    shares = paper.table("table10").rows[model.paper_name]
    twos, zeros = (round((shares[ccs] or 0) * len(model.heads)) for ccs in (2, 0))
    others = iter([2] * twos + [4] * len(model.heads))
    low = iter([0] * zeros + [1] * len(model.heads))
    rows = []
    for head in model.heads:
        level, label = listed.get(head, ("", "Places"))
        ccs = CCS.get(level) or next(low if level == "low" else others)
        key = {"model": model.name, "layer": head.layer, "head": head.head, "k": 5}
        rows.append(key | {"ccs": ccs, "level": level, "label": label, "normal": labels.normalize(label)})
    return rows


def measured(model):
    """Results whose every figure is the printed one, under the plan and the set that answer it."""
    tables = {measure: [] for measure in METRICS}
    for claim in (claim for key in (*report.TABLES, "section4.4") for claim in report.claims(key)):
        # The L-14s of section 4.4 have figures that are another model's in figure 4.
        misprinted = claim.table == "section4.4" and "L-14" in claim.row
        if claim.model == model.name and claim.measure in METRICS and not misprinted:
            row = {"ablation": report.ablation_names(claim)[0], "dataset": report.dataset_names(claim)[0]}
            row |= {"metric": METRICS[claim.measure], "direction": "text-to-clip", "target": "pool"}
            row |= {"subset": claim.subset, "attribute": claim.attribute}
            is_bias = claim.measure == "bias"
            row["value"] = claim.published / (1 if is_bias else 100)
            modes = ("correct", "as-published") if is_bias else ("",)
            tables[claim.measure] += [row | {"mode": mode} for mode in modes]
    heads = heads_of(model)
    five = (row for row in heads if row["ccs"] == 5)
    high = {Head(row["layer"], row["head"]): (row["label"], row["normal"]) for row in five}
    tables["ccr"] = score.ccr_rows(high, sorted({head.layer for head in model.heads}))
    tables["scores"] = heads
    tables["labels"] = [row | {"label": row["normal"], "given": row["label"]} for row in heads]
    tables["judgments"] = [
        {"judge": "openai:gpt-4o", "layer": row["layer"], "head": row["head"], "rank": rank, "verdict": fits}
        for row in heads
        for rank, fits in enumerate([True] * row["ccs"] + [False] * (5 - row["ccs"]))
    ]
    for name, rows in tables.items():
        tables[name] = pd.DataFrame(rows, columns=[column.name for column in TABLES[name].columns])
    return results.Results(model.name, Path(), tables, {})


@pytest.fixture(scope="module")
def ideal():
    return {model.name: measured(model) for model in paper.models()}


@pytest.fixture(scope="module")
def compared(ideal):
    keys = (*report.TABLES, *report.REPEATED)
    claims = (claim for key in keys for claim in report.claims(key))
    return {claim: report.compare_claim(claim, ideal[claim.model]) for claim in claims}


def test_every_printed_figure_is_answered_and_agrees(compared):
    for claim, comparison in compared.items():
        if claim.table in report.TABLES:
            assert comparison.agrees is True, (claim, comparison.measured)


def test_the_studys_heads_are_found_again(ideal):
    rows = report.overlaps(ideal)
    assert len(rows) == 18
    for row in rows:
        assert row["shared"] == row["same label"] == row["printed"]
        assert row["Jaccard"] == "1.00"
    row = "| ViT-B-32-OpenAI | high | 48 | 8 | 8 | 8 | 8 | 1.00 |"
    assert row in report.build(results.Collection(ideal, "here"))


def test_figures_of_the_heads_found_here_are_not_those_of_the_printed_heads(ideal):
    """Results of a rerun whose TEXTSPAN or scores are wrong: its printed heads agree all the same."""
    model = "ViT-B-32/openai"
    cell = (model, "cifar100", "high")
    (claim,) = (c for c in report.claims("table5") if (c.model, c.dataset, c.ablation) == cell)
    table = ideal[model].table("pruning")
    row = table[(table["ablation"] == "published-high") & (table["dataset"] == "cifar100-joined")].iloc[:1]
    wrong = pd.concat([table, row.assign(ablation="high", value=0.5)])
    rerun = replace(ideal[model], tables={**ideal[model].tables, "pruning": wrong})
    assert report.compare_claim(claim, rerun).agrees is True
    rescored = report.compare_claim(claim, rerun, rescored=True)
    assert (rescored.measured.ablation, rescored.measured.value, rescored.agrees) == ("high", 50.0, False)


def test_every_sentence_comes_out_as_in_print(ideal, compared, monkeypatch):
    monkeypatch.setattr(audit, "compare_claim", lambda claim, *_: compared[claim])  # it takes seconds
    people = [
        {"model": row, "people": "someone", "judges": judges, "metric": metric, "value": value}
        for key, judges in (("table4", "panel"), ("v1-table2", "openai:gpt-4o"))
        for row, metric, value in paper.table(key).cells()
    ]
    values = audit.measured(ideal, pd.DataFrame(people))
    for printed, ours in zip(audit.audit(), audit.audit(values), strict=True):
        assert (ours.holds, ours.of) == (printed.holds, printed.of), (printed.statement, printed.source)


def test_ratios_by_layer_and_of_merged_labels_follow_from_table_12():
    """What tables.json holds of appendix B, of merged labels and of concepts is counted, not printed."""
    for model in paper.models():
        high = paper.head_labels(model.name)["high"]
        spelled = {head: (label, labels.normalize(label)) for head, label in high.items()}
        layers = range(model.layers - 4, model.layers)
        rows = {(row["labels"], row["layer"]): row["ccr"] for row in score.ccr_rows(spelled, layers)}
        by_layer = [rows["as given", layer] for layer in layers]
        printed = paper.table("appendix-b").rows[model.paper_name]
        assert [None if ratio is None else round(ratio, 3) for ratio in by_layer] == list(printed)
        merged = paper.table("table11-merged")
        assert (model.paper_name, "CCR", round(rows["normalized", None], 3)) in merged.cells()
        assert rows["as given", None] == score.ccr(list(high.values()))
        for concept, name in report.LABELS.items():
            count = list(high.values()).count(name)
            assert (model.paper_name, concept, count) in paper.table("concepts").cells()
