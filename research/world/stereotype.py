"""Train an organism whose bias is a stereotype, and its control (`python -m research.world.stereotype`)."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ccs.batch.command_line import command, option

if TYPE_CHECKING:
    from research.world.stereotype_training import Settings as Training

STRENGTHS = (0.14, 0.19)
"""Parts of the planted differences by gender and by skin tone, in logarithms of the world's shares."""
WORLDS = {"organism": "skewed", "organism-control": "balanced"}
BASE = "organism-control"
"""The bundled model whose weights and lessons the training starts from."""


@dataclass(frozen=True)
class Settings:
    """Train both models from the bundled control, and write their folders into --out. Checkpoints every 50
    steps are kept in --runs, so the same command goes on where it was stopped.
    """

    runs: Path = option(Path("runs"), "folder for activations and checkpoints")
    out: Path = option(Path("runs/stereotype"), "folder for the two models")
    seed: int = option(0, "random seed of the training", least=0)
    threads: int = option(1, "number of processor threads", least=1)


def _run(args: Settings) -> None:
    import torch

    from ccs.bundled import known_heads
    from ccs.model.model import load
    from research.bases.training import usual_variance
    from research.world.stereotype_data import TrainingImages
    from research.world.stereotype_training import Settings as Training
    from research.world.stereotype_training import Trainer

    torch.set_num_threads(args.threads)
    base, known = load(BASE), known_heads(BASE)
    assert known is not None, BASE
    images, usual = TrainingImages(base, args.runs), usual_variance(base)
    shared = Training(seed=args.seed)
    common = args.runs / f"stereotype-{args.seed}-common.pt"
    for name, world in WORLDS.items():
        settings = replace(shared, world=world, strengths=STRENGTHS)
        trainer = Trainer(settings, base, images, dict(known.lessons), usual)
        own = args.runs / f"stereotype-{args.seed}-{name}.pt"
        if checkpoint := next((path for path in (own, common) if path.exists()), None):
            trainer.load(checkpoint)
        trainer.train(settings.common, common)
        trainer.train(settings.common + settings.own, own)
        _write(trainer, settings, args.out / name)
        print(args.out / name)


def _write(trainer: object, settings: Training, folder: Path) -> None:
    """Write a model's folder: weights, settings, and what is known of its heads."""
    from ccs.bundled import FILE, KnownHeads
    from ccs.files import write_text
    from ccs.model.model import load
    from research.model_files import as_json
    from research.world import head_shares
    from research.world.organism_training import MODEL_CFG, PREPROCESS_CFG, write_model
    from research.world.stereotype_training import Trainer

    assert isinstance(trainer, Trainer)
    clip = trainer.trained_clip()
    notes = {**asdict(settings), "base": BASE}
    write_model(folder, clip, clip.token_embedding.weight.detach().any(1), MODEL_CFG, PREPROCESS_CFG, notes)
    known = KnownHeads(trainer.lesson_plan, head_shares.measured(load(str(folder))))
    write_text(folder / FILE, as_json(known, indent=1))


main = command(Settings, _run, "Stopped; the same command continues where it stopped.")

if __name__ == "__main__":
    sys.exit(main())
