"""Set what was measured beside what was published: `clip-ccs report --help`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from ccs import results
from ccs.batch.command_line import FOLDER, command, option, to_folder
from ccs.batch.pages import as_markdown
from ccs.batch.report import build, published
from ccs.errors import InputError
from ccs.files import write_text


@dataclass(frozen=True)
class Settings:
    """Write the study's figures beside what was measured, as report.md."""

    results: str | None = option(None, f"hf:// address or {FOLDER}")
    agreement: Path | None = option(
        None,
        f"what clip-ccs annotate import wrote (default {published.AGREEMENT}, if it exists)",
        metavar="FILE",
    )
    out: Path = option(Path("report"), "folder to write to", read=to_folder)


def _write(args: Settings) -> None:
    place = args.results or results.default_folder()
    print(f"Results: {place}", file=sys.stderr)
    collection = results.load(None if place == results.PRECOMPUTED else place, instead=False)
    for notice in collection.notices:
        print(f"left out: {notice}", file=sys.stderr)
    if not collection.models:
        raise InputError(f"{place} holds no results; compute some with clip-ccs compute.")
    blocks = build(collection, published.read_agreement(args.agreement))
    write_text(args.out / "report.md", as_markdown(blocks))
    print(args.out / "report.md")


main = command(Settings, _write)

if __name__ == "__main__":
    sys.exit(main())
