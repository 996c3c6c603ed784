"""The generated parts of the site: columns of the tables of results, and options of the commands."""

from __future__ import annotations

from ccs.cli.command_line import COMMANDS, command
from ccs.results.schema import MANIFEST, TABLES


def results_schema() -> str:
    """Return every table of results with its columns, and the keys of the manifest, in Markdown."""
    lines: list[str] = []
    for table in TABLES.values():
        lines += [f"## {table.name}", "", table.meaning, ""]
        lines += [f"One row per {', '.join(table.key[2:])} of a model.", ""]
        lines += ["| column | type | may be empty | meaning |", "|---|---|---|---|"]
        for column in table.columns:
            empty = "yes" if column.nullable else ""
            lines.append(f"| {column.name} | {column.kind} | {empty} | {column.meaning} |")
        lines.append("")
    lines += ["## manifest.json", "", "| key | meaning |", "|---|---|"]
    lines += [f"| {key} | {meaning} |" for key, meaning in MANIFEST.items()]
    return "\n".join(lines) + "\n"


def command_reference() -> str:
    """Return the help of every command, in Markdown."""
    parts = []
    for name in COMMANDS:
        subcommand = command(name)
        text = subcommand.app().generate_docs(heading_level=2, usage_name="clip-ccs")
        examples = "\n".join(("```sh", *subcommand.examples, "```"))
        parts.append(f"{text.strip()}\n\n**Examples**:\n\n{examples}\n")
    return "\n".join(parts)
