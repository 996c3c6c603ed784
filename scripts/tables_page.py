"""Prints docs/tables.md from the schema: `python -m scripts.tables_page`."""

from __future__ import annotations

from ccs.results.schema import MANIFEST, TABLES, VERSION


def as_markdown() -> str:
    """The text of docs/tables.md."""
    lines = [
        "# Tables",
        "",
        f"Schema version {VERSION}. A model's results are a folder `<model>/` with one parquet file per",
        "table and a `manifest.json`. pandas, DuckDB and `datasets` read them as they are:",
        "",
        "```python",
        "import pandas as pd, datasets",
        "",
        'pd.read_parquet("precomputed/organism/scores.parquet")',
        'datasets.load_dataset("USER/NAME", "scores")  # after clip-ccs publish --repo USER/NAME',
        "# DuckDB:  select * from 'precomputed/*/scores.parquet'",
        "```",
        "",
        "Every row names its model and the model's weights, so that tables of several models can be",
        "concatenated. A table that a run did not compute has no file. Empty means unknown or not",
        "applicable, never zero. Intervals are 95%. Shares and accuracies are of 1, not of 100.",
        "This page is printed by `python -m scripts.tables_page`.",
        "",
    ]
    for table in TABLES.values():
        lines += [f"## {table.name}", "", table.meaning, ""]
        lines += [f"One row per {', '.join(table.key[2:])} of a model.", ""]
        lines += ["| column | type | may be empty | meaning |", "|---|---|---|---|"]
        lines += [
            f"| {c.name} | {c.kind} | {'yes' if c.nullable else ''} | {c.meaning} |" for c in table.columns
        ]
        lines.append("")
    lines += ["## manifest.json", "", "How the tables were made.", "", "| key | meaning |", "|---|---|"]
    lines += [f"| {key} | {meaning} |" for key, meaning in MANIFEST.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(as_markdown(), end="")
