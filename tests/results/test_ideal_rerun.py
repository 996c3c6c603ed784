"""The paper's printed numbers, given as measurements, agree with every printed number and claim."""

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


def head_rows(model):
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


def make_results(model):
    """Results whose numbers are the printed ones, in the rows that the report compares with them."""
    tables = {measure: [] for measure in METRICS}
    for claim in (claim for key in (*report.TABLES, "section4.4") for claim in report.claims(key)):
        # Section 4.4 has numbers for the L-14 models that figure 4 has for another model.
        misprinted = claim.table == "section4.4" and "L-14" in claim.row
        if claim.model == model.name and claim.measure in METRICS and not misprinted:
            row = {"ablation": report.ablation_names(claim)[0], "dataset": report.dataset_names(claim)[0]}
            row |= {"metric": METRICS[claim.measure], "direction": "text-to-clip", "target": "pool"}
            row |= {"subset": claim.subset, "attribute": claim.attribute}
            is_bias = claim.measure == "bias"
            row["value"] = claim.published / (1 if is_bias else 100)
            modes = ("correct", "as-published") if is_bias else ("",)
            tables[claim.measure] += [row | {"mode": mode} for mode in modes]
    heads = head_rows(model)
    high_rows = (row for row in heads if row["ccs"] == 5)
    high = {Head(row["layer"], row["head"]): (row["label"], row["normal"]) for row in high_rows}
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
def ideal_results():
    return {model.name: make_results(model) for model in paper.models()}


@pytest.fixture(scope="module")
def comparisons(ideal_results):
    keys = (*report.TABLES, *report.REPEATED)
    claims = (claim for key in keys for claim in report.claims(key))
    return {claim: report.compare_claim(claim, ideal_results[claim.model]) for claim in claims}


def test_every_printed_number_agrees(comparisons):
    for claim, comparison in comparisons.items():
        if claim.table in report.TABLES:
            assert comparison.agrees is True, (claim, comparison.measured)


def test_overlap_with_published_heads_is_complete(ideal_results):
    rows = report.overlaps(ideal_results)
    assert len(rows) == 18
    for row in rows:
        assert row["shared"] == row["same label"] == row["printed"]
        assert row["Jaccard"] == "1.00"
    model = "ViT-B-32/openai"
    collection = results.Collection({model: ideal_results[model]}, "here")
    assert "| ViT-B-32-OpenAI | high | 48 | 8 | 8 | 8 | 8 | 1.00 |" in report.build(collection)


def test_rescored_comparison_uses_measured_heads(ideal_results):
    model = "ViT-B-32/openai"
    cell = (model, "cifar100", "high")
    (claim,) = (c for c in report.claims("table5") if (c.model, c.dataset, c.ablation) == cell)
    table = ideal_results[model].table("pruning")
    published = (table["ablation"] == "published-high") & (table["dataset"] == "cifar100-joined")
    row_of_measured_heads = table[published].iloc[:1].assign(ablation="high", value=0.5)
    tables = ideal_results[model].tables | {"pruning": pd.concat([table, row_of_measured_heads])}
    rerun = replace(ideal_results[model], tables=tables)
    assert report.compare_claim(claim, rerun).agrees is True
    rescored = report.compare_claim(claim, rerun, rescored=True)
    assert (rescored.measured.ablation, rescored.measured.value, rescored.agrees) == ("high", 50.0, False)


def test_claims_hold_as_for_the_printed_numbers(ideal_results, comparisons, monkeypatch):
    monkeypatch.setattr(audit, "compare_claim", lambda claim, *_: comparisons[claim])  # takes seconds
    agreement_rows = [
        {"model": row, "people": "someone", "judges": judges, "metric": metric, "value": value}
        for key, judges in (("table4", "panel"), ("v1-table2", "openai:gpt-4o"))
        for row, metric, value in paper.table(key).cells()
    ]
    values = audit.measured(ideal_results, pd.DataFrame(agreement_rows))
    for printed, measured in zip(audit.audit(), audit.audit(values), strict=True):
        assert (measured.holds, measured.of) == (printed.holds, printed.of), printed.statement


def test_concept_ratios_and_counts_follow_from_table_12():
    """Appendix B's ratios, and our own numbers of merged labels and of concepts."""
    for model in paper.models():
        high = paper.head_labels(model.name)["high"]
        spellings = {head: (label, labels.normalize(label)) for head, label in high.items()}
        layers = range(model.layers - 4, model.layers)
        rows = {(row["labels"], row["layer"]): row["ccr"] for row in score.ccr_rows(spellings, layers)}
        by_layer = [rows["as given", layer] for layer in layers]
        printed = paper.table("appendix-b").rows[model.paper_name]
        assert [None if ratio is None else round(ratio, 3) for ratio in by_layer] == list(printed)
        merged = paper.table("table11-merged")
        assert (model.paper_name, "CCR", round(rows["normalized", None], 3)) in merged.cells()
        assert rows["as given", None] == score.ccr(list(high.values()))
        for concept, name in report.LABELS.items():
            count = list(high.values()).count(name)
            assert (model.paper_name, concept, count) in paper.table("concepts").cells()
