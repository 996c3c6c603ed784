"""Print the table of docs/datasets.md: `python -m scripts.datasets_table`."""

from __future__ import annotations

from ccs.data import SOURCES


def as_markdown() -> str:
    """Return the table of the registered datasets in Markdown."""
    lines = [
        "| name | set | on the Hub | split | rows | license | how it was verified |",
        "|---|---|---|---|---|---|---|",
    ]
    for record in SOURCES.values():
        at = "" if record.revision == "main" else f"at {record.revision[:12]}"
        location = " ".join(filter(None, (record.hub or "local only", record.config, at)))
        cells = (record.name, record.title, location, record.split, f"{record.sample or record.rows:,}")
        lines.append("| " + " | ".join((*cells, record.license, record.verified)) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(as_markdown(), end="")
