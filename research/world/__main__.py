"""How the two organisms were made, and what they show: `python -m research.world --help`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from batch.options import command, option
from ccs.errors import InputError
from ccs.files import write_text

HERE = Path(__file__).parent
FIGURES, FINDINGS = HERE / "organism.md", HERE / "findings.md"


@dataclass(frozen=True)
class Settings:
    """Train organism and control where their weights are missing, train both again from further seeds,
    measure what their heads are selective for, and write organism.md and findings.md. What exists is kept, so
    the same command goes on where it was stopped.
    """

    out: Path | None = option(None, "folder of the two models (default: that of the shipped ones)")
    seeds: int = option(4, "further trainings of each", least=0)
    runs: Path = option(Path("runs"), "folder for checkpoints, logs and further trainings")
    pages: bool = option(False, "train nothing: write the pages from what was measured")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; its exit status (see batch.options)."""
    return command(Settings, argv, _run, "Stopped; the same command continues where it stopped.")


def _run(args: Settings) -> None:
    import pandas as pd

    from batch.report.document import as_markdown
    from ccs import results
    from ccs.model.model import load
    from research.world import organism_training, repeated_trainings, selective_heads
    from research.world.organism_figures import embedded_blocks
    from research.world.paradox import organism_blocks
    from research.world.training_spread import training_blocks

    models = args.out or organism_training.MODELS
    if not args.pages:
        for world, name in organism_training.OUTPUT_NAMES.items():
            if not (models / name / organism_training.WEIGHTS).exists():
                organism_training.train(organism_training.Settings(world), args.runs, models / name)
        if args.seeds:
            repeated_trainings.train_and_measure(args.seeds, args.runs / "trainings")
    tables = results.load(None)
    if missing := sorted(set(organism_training.OUTPUT_NAMES.values()) - set(tables.models)):
        raise InputError(
            f"There are no tables of {' and '.join(missing)}; `python -m batch.compute` writes them."
        )
    shares = pd.concat(
        [selective_heads.kept(load(str(models / name))) for name in organism_training.OUTPUT_NAMES.values()]
    )
    write_text(FIGURES, as_markdown(embedded_blocks()))
    found = [*organism_blocks(tables.models, shares), *training_blocks(repeated_trainings.read())]
    write_text(FINDINGS, as_markdown(found))
    print(f"{FIGURES}\n{FINDINGS}")


if __name__ == "__main__":
    sys.exit(main())
