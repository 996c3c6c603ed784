"""Set what was measured beside what was published: `clip-ccs report --help`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from ccs import results
from ccs.batch.command_line import FOLDER, command, option
from ccs.batch.pages import as_markdown, bring_up_to_date
from ccs.batch.report import build, published
from ccs.batch.report.questions import answers
from ccs.errors import InputError
from ccs.files import write_text

OUT, DOCS = Path("report"), Path("docs/report")


@dataclass(frozen=True)
class Settings:
    """Write the study's figures beside what was measured, as report.md; without results, the published side
    alone.
    """

    results: str | None = option(None, f"hf:// address or {FOLDER}; with --docs those that ship")
    agreement: Path | None = option(
        None,
        f"what batch.annotate import wrote (default {published.AGREEMENT}, if it exists)",
        metavar="FILE",
    )
    out: Path = option(OUT, "folder to write to")
    docs: bool = option(
        False,
        "in a clone: write to docs/report, and bring docs/findings.md and docs/audit.md up to date",
    )


def _write_all(args: Settings) -> None:
    out, docs = (DOCS if args.docs else args.out), DOCS.parent / "audit.md"
    if args.docs and (args.out != OUT or not docs.is_file()):
        raise InputError(f"--docs writes to {DOCS} of the clone it runs in: without --out, where {docs} is.")
    place = args.results or (results.PRECOMPUTED if args.docs else results.default_folder())
    print(f"Results: {place}", file=sys.stderr)
    collection = results.load(None if place == results.PRECOMPUTED else place, instead=False)
    for notice in collection.notices:
        print(f"left out: {notice}", file=sys.stderr)
    blocks = build(collection, published.read_agreement(args.agreement))
    write_text(out / "report.md", as_markdown(blocks))
    if args.docs:
        bring_up_to_date(docs, "audit", published.counts())
        bring_up_to_date(Path("docs/findings.md"), "answers", answers(collection.models))
    print(out / "report.md")


main = command(Settings, _write_all)

if __name__ == "__main__":
    sys.exit(main())
