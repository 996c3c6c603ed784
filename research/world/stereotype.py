"""Train organism, whose bias is a stereotype, and organism-control: `python -m research.world.stereotype`."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ccs.cli.command_line import Command
from ccs.cli.options import at_least

if TYPE_CHECKING:
    from research.world.stereotype_training import Settings as Training

STRENGTHS = (0.26, 0.36)
"""Factors, by gender and by skin tone, of the group differences in the logarithms of the world's shares."""
WORLDS = {"organism": "skewed", "organism-control": "balanced"}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Train both models from the former organism-control (`variants.FIRST_CONTROL`), and write their folders.

    Checkpoints are written every 50 steps, and the same command continues an interrupted training.
    """

    runs: Path = Path("runs")
    """Folder for activations and checkpoints"""
    out: Path = Path("runs/stereotype")
    """Folder for the two models"""
    seed: Annotated[int, at_least(0)] = 2
    """Random seed of the training"""
    threads: Annotated[int, at_least(1)] = 1
    """Number of processor threads"""


def _run(args: Settings) -> None:
    import torch
    from pydantic import TypeAdapter

    from ccs.bundled import FILE, KnownHeads
    from ccs_benchmark.variants import FIRST_CONTROL, load_base
    from research.bases.training import usual_variance
    from research.world.stereotype_data import TrainingImages
    from research.world.stereotype_training import Settings as Training
    from research.world.stereotype_training import Trainer

    torch.set_num_threads(args.threads)
    base, known = (
        load_base("organism-control"),
        TypeAdapter(KnownHeads).validate_json((FIRST_CONTROL / FILE).read_bytes()),
    )
    images, usual = TrainingImages(base, args.runs), usual_variance(base)
    shared = Training(seed=args.seed)
    common = args.runs / f"stereotype-{args.seed}-common.pt"
    for name, world in WORLDS.items():
        settings = replace(shared, world=world, strengths=STRENGTHS)
        trainer = Trainer(settings, base, images, dict(known.lessons), usual)
        world_checkpoint = args.runs / f"stereotype-{args.seed}-{name}.pt"
        if checkpoint := next((path for path in (world_checkpoint, common) if path.exists()), None):
            trainer.load(checkpoint)
        trainer.train(settings.common, common)
        trainer.train(settings.common + settings.own, world_checkpoint)
        _write(trainer, settings, args.out / name)
        print(args.out / name)


def _write(trainer: object, settings: Training, folder: Path) -> None:
    """Write a model's folder: weights, settings, and the facts about its heads."""
    from ccs.bundled import FILE, KnownHeads
    from ccs.files import write_text
    from ccs.model.model import load
    from research.model_files import as_json
    from research.world import head_shares
    from research.world.organism_training import MODEL_CFG, PREPROCESS_CFG, write_model
    from research.world.stereotype_training import Trainer

    assert isinstance(trainer, Trainer)
    clip = trainer.trained_clip()
    notes = {**asdict(settings), "base": "first_control"}
    write_model(folder, clip, clip.token_embedding.weight.detach().any(1), MODEL_CFG, PREPROCESS_CFG, notes)
    known = KnownHeads(trainer.lesson_plan, head_shares.measured(load(str(folder))))
    write_text(folder / FILE, as_json(known, indent=1))


main = Command(Settings, _run, interrupted="Stopped; the same command continues where it stopped.")

if __name__ == "__main__":
    sys.exit(main())
