"""Sample results for reports, and functions that find a row or a section of a report."""

import re

from tests.support.results_sample import interval_cells, sample_rows

MODEL = "ViT-B-32/openai"


def pruning_rows(model, dataset, values):
    """Make rows of top-1 accuracy ("random@3" is random with seed 3, "random" the mean).

    Args:
        model: Name of the model.
        dataset: Name of the dataset.
        values: Accuracy by ablation set, with that of none.

    Returns:
        The rows.
    """
    rows = []
    for name, value in values.items():
        ablation, _, seed = name.partition("@")
        columns = {"ablation": ablation, "seed": int(seed) if seed else None, "dataset": dataset}
        columns["heads"] = "L6.H1"
        columns |= {"n_heads": 0, "p_value": None} if ablation == "none" else {"n_heads": 8, "p_value": 0.001}
        columns |= interval_cells(value, 0.01) | interval_cells(value - values["none"], 0.01, "difference")
        rows.append(sample_rows(model)["pruning"][0] | columns | {"n": 500, "baseline": values["none"]})
    return rows


def bias_rows(model, dataset, values, mode="correct"):
    """Make rows of MaxSkew, mean and sum.

    Args:
        model: Name of the model.
        dataset: Name of the gallery.
        values: MaxSkew by ablation set, with that of none.
        mode: "correct" or "as-published".

    Returns:
        The rows.
    """
    columns = {"attribute": "race", "occupation": "", "target": "pool", "mode": mode, "k": 60}
    columns |= {"chance": 0.09, "chance_low": 0.05, "chance_high": 0.2, "ceiling": None}
    rows = pruning_rows(model, dataset, values)
    for row in rows:
        del row["subset"]
    return [{**row, **columns, "metric": f"MaxSkew {of}"} for row in rows for of in ("mean", "sum")]


def find_row(text, *beginnings):
    """Find the only row of a Markdown table that begins with some cells.

    Args:
        text: Markdown.
        *beginnings: The first cells.

    Returns:
        All cells of the row.
    """
    start = "| " + " | ".join(beginnings) + " |"
    (row,) = (row for row in text.splitlines() if row.startswith(start))
    return [cell.strip() for cell in row.strip("|").split(" | ")]


def find_section(text, heading):
    """Find a section.

    Args:
        text: Markdown.
        heading: Line of its heading.

    Returns:
        Its text.
    """
    after = text.split(f"{heading}\n", 1)[1]
    return re.split(r"\n#{1,3} ", after)[0]
