"""How the two organisms were made, and what they show: `python -m research.world --help`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from ccs.batch.options import command, option
from ccs.errors import InputError
from ccs.files import read_text, write_text

HERE = Path(__file__).parent
FIGURES, FINDINGS = HERE / "organism.md", HERE / "findings.md"


@dataclass(frozen=True)
class Settings:
    """Train organism and control where their weights are missing, measure what their heads carry, and write
    organism.md and findings.md. What exists is kept, so the same command goes on where it was stopped.
    """

    out: Path | None = option(None, "folder of the two models (default: that of the shipped ones)")
    runs: Path = option(Path("runs"), "folder for checkpoints and logs")
    pages: bool = option(False, "train nothing: write the pages from what was measured")


def _run(args: Settings) -> None:
    from ccs import results
    from ccs.batch.pages import as_markdown
    from ccs.embedded.known_heads import FILE, KnownHeads, Lesson
    from ccs.model.model import load
    from research.world import head_shares, organism_training
    from research.world.head_lessons import taught
    from research.world.organism_figures import embedded_blocks
    from research.world.paradox import organism_blocks
    from research.world.taught_heads import taught_blocks

    models, known = args.out or organism_training.MODELS, {}
    for world, name in organism_training.OUTPUT_NAMES.items():
        folder = models / name
        if not args.pages and not (folder / organism_training.WEIGHTS).exists():
            organism_training.train(organism_training.Settings(world), args.runs, folder)
        model, file = load(str(folder)), folder / FILE
        if not file.exists():
            lessons = {head: Lesson({concept: 1.0}) for head, concept in taught().items()}
            write_text(file, KnownHeads(lessons, head_shares.measured(model)).to_json())
        known[name] = (model, KnownHeads.from_json(read_text(file)))
    tables = results.load(None)
    if missing := sorted(set(organism_training.OUTPUT_NAMES.values()) - set(tables.models)):
        raise InputError(
            f"There are no tables of {' and '.join(missing)}; `python -m batch.compute` writes them."
        )
    write_text(FIGURES, as_markdown(embedded_blocks()))
    write_text(FINDINGS, as_markdown([*organism_blocks(tables.models), *taught_blocks(known)]))
    print(f"{FIGURES}\n{FINDINGS}")


main = command(Settings, _run, "Stopped; the same command continues where it stopped.")

if __name__ == "__main__":
    sys.exit(main())
