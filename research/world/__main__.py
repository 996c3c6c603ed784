"""Write the results of the bundled models, or train organism-first: `python -m research.world --help`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from ccs.cli.command_line import Command
from ccs.errors import InputError
from ccs.files import write_text

HERE = Path(__file__).parent
FIGURES, FINDINGS = HERE / "organism.md", HERE / "findings.md"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Write organism.md and findings.md from the bundled models and their tables.

    With --first, train organism-first instead, the model from which all others start. The same command
    continues an interrupted training.
    """

    first: Path | None = None
    """Folder for organism-first, trained again"""
    runs: Path = Path("runs")
    """Folder for checkpoints and logs"""


def _run(args: Settings) -> None:
    from ccs import results
    from ccs.batch.pages import as_markdown
    from ccs.bundled import known_heads
    from ccs.model.model import load
    from research.world import CONTROL, ORGANISM, organism_training
    from research.world.organism_figures import embedded_blocks
    from research.world.paradox import organism_blocks
    from research.world.taught_heads import taught_blocks

    if args.first is not None:
        organism_training.train(organism_training.Settings(), args.runs, args.first)
        print(args.first)
        return
    tables, names = results.load(None), (ORGANISM, CONTROL)
    if missing := [name for name in names if name not in tables.models]:
        raise InputError(f"No tables of {' and '.join(missing)}. Write them with `python -m batch.compute`.")
    known = {name: (load(name), facts) for name in names if (facts := known_heads(name))}
    write_text(FIGURES, as_markdown(embedded_blocks()))
    write_text(FINDINGS, as_markdown([*organism_blocks(tables.models), *taught_blocks(known)]))
    print(f"{FIGURES}\n{FINDINGS}")


main = Command(Settings, _run, interrupted="Stopped; the same command continues where it stopped.")

if __name__ == "__main__":
    sys.exit(main())
