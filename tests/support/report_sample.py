"""Made-up results for the report, and how to find a row or a section in it."""

import re

from ccs.batch.report import main as report
from ccs.heads import Head
from ccs.texts import score
from tests.support.results_sample import interval, sample_rows, write

MODEL = "ViT-B-32/openai"
WEIGHTS = {"weights": "0123456789abcdef"}


def pruning_rows(model, dataset, values):
    """Top-1 of each plan ("random@3" is random with seed 3, "random" their mean), against none."""
    rows = []
    for name, value in values.items():
        plan, _, seed = name.partition("@")
        columns = {"ablation": plan, "seed": int(seed) if seed else None, "heads": "L6.H1"}
        columns |= {"dataset": dataset}
        columns |= {"n_heads": 0, "p_value": None} if plan == "none" else {"n_heads": 8, "p_value": 0.001}
        columns |= interval(value, 0.01) | interval(value - values["none"], 0.01, "difference")
        rows.append(sample_rows(model)["pruning"][0] | columns | {"n": 500, "baseline": values["none"]})
    return rows


def bias_rows(model, dataset, values, mode="correct"):
    columns = {"attribute": "race", "occupation": "", "target": "pool", "mode": mode, "k": 60}
    columns |= {"chance": 0.09, "chance_low": 0.05, "chance_high": 0.2, "ceiling": None}
    rows = pruning_rows(model, dataset, values)
    for row in rows:
        del row["subset"]
    return [{**row, **columns, "metric": f"MaxSkew {of}"} for row in rows for of in ("mean", "sum")]


def score_rows(model):
    sample = sample_rows(model)["scores"][0] | {"k": 5, "majority": 5, "share": 0.5}
    rows = [{**sample, "layer": 4 + n // 6, "head": n % 6, "ccs": n // 2} for n in range(12)]
    return [row | {"level": "high" if row["ccs"] == 5 else ""} for row in rows]


def ccr_rows(model, wording="Colors"):
    """The concept ratio of the two high heads of `score_rows`, one of which may be spelled in another way."""
    high = {Head(5, 4): ("Colors", "Colors"), Head(5, 5): (wording, "Colors")}
    return [{"model": model, **WEIGHTS, **row} for row in score.ccr_rows(high, (4, 5))]


def write_results(folder):
    """Results of an organism and of one of the study's models, whose numbers agree in part."""
    random = {f"random@{seed}": 0.8 + 0.0001 * seed for seed in range(60)}
    accuracy = {"none": 0.9, "high": 0.5, "low": 0.88, **random}
    organism = pruning_rows("organism", "world/subjects", accuracy)
    skew = {"none": 0.6, "high": 0.3}
    skew |= {name: 0.6 + value / 100 for name, value in random.items()}
    tables = {"pruning": organism, "bias": bias_rows("organism", "world/faces", skew)}
    tables |= {"scores": score_rows("organism"), "ccr": ccr_rows("organism")}
    write(folder, "organism", tables)
    study = pruning_rows(MODEL, "cifar100", {"none": 0.6423, "published-high": 0.2, **random})
    study += pruning_rows(MODEL, "cifar10-jpeg", {"none": 0.7568})
    study += pruning_rows(MODEL, "cifar10", {"none": 0.8983})
    faces = bias_rows(MODEL, "fairface-1.25", {"none": 20.0})
    faces += bias_rows(MODEL, "fairface-1.25", {"none": 61.8}, "as-published")
    write(folder, MODEL, {"pruning": study, "bias": faces})
    return folder


def run(folder, out, *options):
    assert report(["--results", str(folder), "--out", str(out), *options]) == 0
    return (out / "report.md").read_text()


def line(text, *beginnings):
    """Cells of the only table row that begins so."""
    start = "| " + " | ".join(beginnings) + " |"
    (row,) = (row for row in text.splitlines() if row.startswith(start))
    return [cell.strip() for cell in row.strip("|").split(" | ")]


def section(text, heading):
    after = text.split(f"{heading}\n", 1)[1]
    return re.split(r"\n#{1,3} ", after)[0]
