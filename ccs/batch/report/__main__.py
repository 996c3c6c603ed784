"""Set what was measured beside what was published: `clip-ccs report --help`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ccs import results
from ccs.batch.command_line import Command
from ccs.batch.options import DATA, OUTPUT, describe, read, to_folder
from ccs.batch.pages import as_markdown
from ccs.batch.report import build, published
from ccs.errors import InputError
from ccs.files import write_text


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Write report.md: the paper's numbers next to your results."""

    results: Annotated[
        str | None,
        DATA,
        describe(
            "Folder of results, or hf://datasets/USER/NAME",
            "results/ if it holds any, else the bundled results",
        ),
    ] = None
    agreement: Annotated[
        Path | None,
        DATA,
        describe("File from `clip-ccs annotate import`", f"{published.AGREEMENT} if it exists"),
    ] = None
    out: Annotated[Path, OUTPUT, read(to_folder)] = Path("report")
    """Folder for report.md"""


def write_report(args: Settings) -> None:
    """Write the file and print its path."""
    place = args.results or results.default_folder()
    print(f"Results: {place}", file=sys.stderr)
    collection = results.load(None if place == results.PRECOMPUTED else place, instead=False)
    for notice in collection.notices:
        print(f"Skipped: {notice}", file=sys.stderr)
    if not collection.models:
        raise InputError(f"{place} holds no results; compute some with clip-ccs compute.")
    blocks = build(collection, published.read_agreement(args.agreement))
    write_text(args.out / "report.md", as_markdown(blocks))
    print(args.out / "report.md")


main = Command(Settings, write_report, ("clip-ccs report --results results --out report",))

if __name__ == "__main__":
    sys.exit(main())
