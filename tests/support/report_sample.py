"""Made-up results for reports, and how to find a row or a section in one."""

import re

from tests.support.results_sample import interval, sample_rows

MODEL = "ViT-B-32/openai"
WEIGHTS = {"weights": "0123456789abcdef"}


def pruning_rows(model, dataset, values):
    """Top-1 of each plan ("random@3" is random with seed 3, "random" their mean), against none."""
    rows = []
    for name, value in values.items():
        plan, _, seed = name.partition("@")
        columns = {
            "ablation": plan,
            "seed": int(seed) if seed else None,
            "heads": "L6.H1",
            "dataset": dataset,
        }
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


def line(text, *beginnings):
    """Cells of the only table row that begins so."""
    start = "| " + " | ".join(beginnings) + " |"
    (row,) = (row for row in text.splitlines() if row.startswith(start))
    return [cell.strip() for cell in row.strip("|").split(" | ")]


def section(text, heading):
    after = text.split(f"{heading}\n", 1)[1]
    return re.split(r"\n#{1,3} ", after)[0]
