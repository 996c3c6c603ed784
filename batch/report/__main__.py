"""`python -m batch.report`: the study's figures beside what was measured, as report.md and report.html.

Without results it shows the published side alone. The counts of the audit go into reproduction.md beside the
folder written to, if that document is there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from batch.report.embedded import embedded_blocks
from batch.report.figures import write_static
from batch.report.page import Block, Chart, as_html, as_markdown, listing
from batch.report.sections import agreement, datasets, published
from batch.report.sections.audit import audit_blocks, write_counts
from batch.report.sections.model import model_sections
from batch.report.sections.organisms import organism_blocks
from batch.report.sections.planted import organisms
from batch.report.sections.questions import in_short
from ccs import results
from ccs.errors import InputError
from ccs.files import atomic_write
from ccs.paper import figures as paper

OUT = Path("docs/report")
ORGANISM_PAGE = "organism.md"


def build(collection: results.Collection, people: pd.DataFrame | None = None) -> list[Block]:
    """The whole report; `people` is what `batch.annotate import` wrote."""
    models = collection.models
    blocks: list[Block] = [
        "# Pruning the paradox, published and measured",
        "The study (arXiv 2503.11103) scores attention heads of CLIP by how consistent their texts are "
        "(CCS), prunes those of high, low or random score, and reports accuracy, retrieval and bias. "
        "Here each of its numbers stands beside what this project measured, and what the study could "
        "not ask is asked of models whose truth is known.",
        f"Results: {collection.source}. Models measured: {', '.join(models) or 'none'}.",
    ]
    if collection.notices:
        blocks.append(listing(collection.notices))
    together = organisms(models)
    blocks += ["## In short", *in_short(models), *published.summary(models), *organism_blocks(models)]
    for name in sorted(models, key=_order):
        blocks += model_sections(models[name], with_searches=name not in together)
    blocks += [*published.tables_and_figures(models, people), *audit_blocks(models)]
    return [*blocks, *published.what_does_not_reproduce(models), *datasets.dataset_blocks(models)]


def _order(name: str) -> tuple[int, str]:
    studied = [model.name for model in paper.models()]
    return (studied.index(name) + 1 if name in studied else 0, name)


def write(blocks: Sequence[Block], folder: Path, *, static: bool = True) -> list[Path]:
    """Write report.md, report.html and, where a Chrome can be found, each chart as SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    charts = [block for block in blocks if isinstance(block, Chart)]
    images = write_static(charts, folder) if static else frozenset()
    written = []
    for name, text in (("report.md", as_markdown(blocks, images)), ("report.html", as_html(blocks))):
        with atomic_write(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
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
        help=f"what batch.annotate import wrote (default {agreement.FILE}, if it is there)",
    )
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder to write to (default {OUT})")
    parser.add_argument("--no-static", action="store_true", help="leave out the charts as SVG files")
    parser.add_argument(
        "--organism",
        action="store_true",
        help=f"also measure both embedded models on all drawn sets (minutes), and write {ORGANISM_PAGE} "
        "beside the folder",
    )
    args = parser.parse_args(argv)
    try:
        blocks = build(results.load(args.results), agreement.read(args.agreement))
        written = write(blocks, args.out, static=not args.no_static)
        write_counts(args.out)
        if args.organism:
            written.append(args.out.parent / ORGANISM_PAGE)
            page = as_markdown(list(embedded_blocks()))
            with atomic_write(written[-1]) as temporary:
                temporary.write_text(page, encoding="utf-8")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(
            f"error: The report cannot be written to {args.out} ({error.strerror or error}).", file=sys.stderr
        )
        return 2
    print("\n".join(str(path) for path in written))
    if not args.no_static and not any(path.suffix == ".svg" for path in written):
        print("No SVG files of the charts: no Chrome was found. report.html has them.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
