"""`python -m batch.report`: the study's figures beside what was measured, as report.md and report.html.

Without results it shows the published side alone. The counts of the audit go into reproduction.md beside the
folder written to, if that document is there.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from batch.report.figures import write_static
from batch.report.page import Document, Grid, Heading, Items, Text, as_html, as_markdown
from batch.report.sections import agreement as report_agreement
from batch.report.sections import measured as report_measured
from batch.report.sections import published as report_published
from batch.report.sections.audit import audit_blocks, write_counts
from batch.report.sections.organisms import organism_blocks
from batch.report.sections.planted import organisms
from batch.report.sections.questions import in_short
from ccs import paper, results
from ccs.datasets import SOURCES
from ccs.errors import InputError

OUT = Path("docs/report")


def build(collection: results.Collection, agreement: pd.DataFrame | None = None) -> Document:
    """The whole report; `agreement` is what `batch.annotate import` wrote."""
    document = Document()
    document.add(
        Heading(1, "Pruning the paradox, published and measured"),
        Text(
            "The study (arXiv 2503.11103) scores attention heads of CLIP by how consistent their texts are "
            "(CCS), prunes those of high, low or random score, and reports accuracy, retrieval and bias. "
            "Here each of its numbers stands beside what this project measured, and what the study could "
            "not ask is asked of models whose truth is known."
        ),
        Text(f"Results: {collection.source}. Models measured: {', '.join(collection.models) or 'none'}."),
    )
    if collection.notices:
        document.add(Items(tuple(collection.notices)))
    tables = collection.models
    document.add(Heading(2, "In short"), *in_short(collection.models))
    document.add(*report_published.summary(tables))
    document.add(*organism_blocks(collection.models))
    together = organisms(collection.models)
    for name, found in sorted(collection.models.items(), key=lambda item: _order(item[0])):
        document.add(*report_measured.model_sections(name, found, in_organisms=name in together))
    document.add(*report_published.tables_and_figures(tables, agreement))
    document.add(*audit_blocks(tables))
    document.add(*report_published.what_does_not_reproduce(tables))
    document.add(*_sets(collection))
    return document


def _order(name: str) -> tuple[int, str]:
    studied = [model.name for model in paper.models()]
    return (studied.index(name) + 1 if name in studied else 0, name)


def _sets(collection: results.Collection) -> list[Heading | Text | Grid]:
    absent: dict[str, str] = {}
    for name, found in collection.models.items():
        for entry in found.manifest.get("absent") or []:
            if isinstance(entry, dict):
                absent[f"{name}: {entry.get('name')}"] = str(entry.get("reason"))
    rows = [
        [
            source.title,
            source.hub or "local only",
            source.split,
            f"{source.rows:,}",
            source.study or "nothing noted",
        ]
        for source in SOURCES.values()
    ]
    columns = ["set", "on the Hub", "split", "rows", "what the study did differently"]
    blocks: list[Heading | Text | Grid] = [
        Heading(2, "Data sets"),
        Text(
            "docs/datasets.md says how each was verified, under which terms it stands, and how to use a "
            "local copy."
        ),
        Grid(columns, rows, "", frozenset({"on the Hub", "split", "what the study did differently"})),
    ]
    if absent:
        holes = [[name, reason] for name, reason in absent.items()]
        blocks.append(Grid(["asked for, not computed", "why"], holes, "Holes", frozenset({"why"})))
    return blocks


def write(document: Document, folder: Path, *, static: bool = True) -> list[Path]:
    """Write report.md, report.html and, where a Chrome can be found, each chart as SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    images = write_static(document.charts, folder) if static else frozenset()
    written = []
    for name, text in (("report.md", as_markdown(document, images)), ("report.html", as_html(document))):
        aside = folder / f"{name}.tmp"
        aside.write_text(text, encoding="utf-8")
        os.replace(aside, folder / name)
        written.append(folder / name)
    return written + [folder / f"{key}.svg" for key in sorted(images)]


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m batch.report", description=__doc__)
    parser.add_argument("--results", help="folder or hf:// address of results (default: those shipped)")
    parser.add_argument(
        "--agreement",
        type=Path,
        metavar="FILE",
        help=f"what batch.annotate import wrote (default {report_agreement.FILE}, if it is there)",
    )
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder to write to (default {OUT})")
    parser.add_argument("--no-static", action="store_true", help="leave out the charts as SVG files")
    args = parser.parse_args(argv)
    try:
        document = build(results.load(args.results), report_agreement.read(args.agreement))
        written = write(document, args.out, static=not args.no_static)
        write_counts(args.out)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(
            f"error: The report cannot be written to {args.out} ({error.strerror or error}).", file=sys.stderr
        )
        return 2
    print("\n".join(str(path) for path in written))
    if document.charts and len(written) == 2 and not args.no_static:
        print(
            "No Chrome was found, so there are no SVG files of the charts; report.html has them.",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
