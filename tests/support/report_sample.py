"""Made-up results for the report, and how to find a row or a section in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ccs.batch.report.__main__ import main as report
from ccs.heads import Head
from ccs.texts import score
from tests.support.results_sample import write

MODEL = "ViT-B-32/openai"
WEIGHTS = {"weights": "0123456789abcdef"}


def pruning_rows(model: str, dataset: str, values: dict[str, float]) -> list[dict[str, Any]]:
    """Top-1 of each plan ("random@3" is random with seed 3, "random" their mean), against none."""
    rows = []
    for name, value in values.items():
        plan, _, seed = name.partition("@")
        change = value - values["none"]
        rows.append(
            {"model": model, **WEIGHTS, "plan": plan, "seed": int(seed) if seed else None, "heads": "L6.H1"}
            | {"n_heads": 0 if plan == "none" else 8, "dataset": dataset, "subset": "", "metric": "top1"}
            | {"value": value, "low": value - 0.01, "high": value + 0.01, "n": 500}
            | {"baseline": values["none"], "p_value": None if plan == "none" else 0.001}
            | {"difference": change, "difference_low": change - 0.01, "difference_high": change + 0.01}
        )
    return rows


def bias_rows(
    model: str, dataset: str, values: dict[str, float], mode: str = "correct"
) -> list[dict[str, Any]]:
    rows = []
    for row in pruning_rows(model, dataset, values):
        del row["subset"]
        about = {"attribute": "race", "occupation": "", "target": "pool", "mode": mode, "k": 60}
        about |= {"chance": 0.09, "chance_low": 0.05, "chance_high": 0.2, "ceiling": None}
        rows += [{**row, **about, "metric": metric} for metric in ("MaxSkew mean", "MaxSkew sum")]
    return rows


def head_rows(model: str) -> list[dict[str, Any]]:
    """Twelve heads, each of which lowers MaxSkew more than the one before."""
    rows: list[dict[str, Any]] = []
    for index in range(12):
        head = {"model": model, **WEIGHTS, "layer": 4 + index // 6, "head": index % 6}
        value = -0.01 * index
        rows.append(
            {**head, "measure": "total effect", "dataset": "world/faces", "metric": "MaxSkew mean"}
            | {"factor": "gender", "value": value, "low": value - 0.01, "high": value + 0.01}
            | {"p_value": 0.01, "q_value": 0.03 if index == 11 else 0.5}
        )
    return rows


def score_rows(model: str) -> list[dict[str, Any]]:
    return [
        {"model": model, **WEIGHTS, "layer": 4 + index // 6, "head": index % 6, "label": "Colors", "k": 5}
        | {"ccs": index // 2, "level": "high" if index > 9 else ""}
        | {"majority": 5, "share": 0.5, "variance": 0.1}
        for index in range(12)
    ]


def ccr_rows(model: str, given: str = "Colors") -> list[dict[str, Any]]:
    """The concept ratio of the two high heads of `score_rows`, one of which may be spelled in another way."""
    high = {Head(5, 4): ("Colors", "Colors"), Head(5, 5): (given, "Colors")}
    return [{"model": model, **WEIGHTS, **row} for row in score.ccr_rows(high, (4, 5))]


def write_results(folder: Path) -> Path:
    """Results of an organism and of one of the study's models, whose numbers agree in part."""
    random = {f"random@{seed}": 0.8 + 0.0001 * seed for seed in range(60)}
    accuracy = {"none": 0.9, "high": 0.5, "low": 0.88, **random}
    organism = pruning_rows("organism", "world/subjects", accuracy)
    skew = {"none": 0.6, "high": 0.3}
    skew |= {name: 0.6 + value / 100 for name, value in random.items()}
    tables = {"pruning": organism, "bias": bias_rows("organism", "world/faces", skew)}
    tables |= {"heads": head_rows("organism"), "scores": score_rows("organism"), "ccr": ccr_rows("organism")}
    write(folder, "organism", tables)
    study = pruning_rows(MODEL, "cifar100", {"none": 0.6423, "published-high": 0.2, **random})
    study += pruning_rows(MODEL, "cifar10-jpeg", {"none": 0.7568})
    study += pruning_rows(MODEL, "cifar10", {"none": 0.8983})
    faces = bias_rows(MODEL, "fairface-1.25", {"none": 20.0})
    faces += bias_rows(MODEL, "fairface-1.25", {"none": 61.8}, "as-published")
    write(folder, MODEL, {"pruning": study, "bias": faces})
    return folder


def run(folder: Path, out: Path, *more: str) -> str:
    assert report(["--results", str(folder), "--out", str(out), *more]) == 0
    return (out / "report.md").read_text()


def line(text: str, *beginnings: str) -> list[str]:
    """Cells of the only table row that begins so."""
    start = "| " + " | ".join(beginnings) + " |"
    (found,) = (row for row in text.splitlines() if row.startswith(start))
    return [cell.strip() for cell in found.strip("|").split(" | ")]


def section(text: str, heading: str) -> str:
    after = text.split(f"{heading}\n", 1)[1]
    return re.split(r"\n#{1,3} ", after)[0]
