"""Train the bundled model *photo*: `python -m research.photographs --photographs FILE.parquet`."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from ccs.cli.command_line import Command
from ccs.errors import InputError
from research.photographs.photograph_data import read
from research.photographs.photograph_training import COUNTERS, MODEL_CFG, PREPROCESS_CFG, Settings, Trainer
from research.training_state import load_state
from research.world.organism_training import MODELS, write_model


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train the bundled model *photo*."""

    photographs: Path
    """Parquet file with columns `image` and `wnid`"""
    images: int = 900_000
    """Total number of training photographs, repeats included"""
    seed: int = Settings.seed
    """Random seed"""
    batch_size: int = Settings.batch_size
    """Photographs per step"""
    rate: float = Settings.rate
    """Peak learning rate of Muon, for matrices"""
    held_out: int = Settings.held_out
    """Held-out photographs per class"""
    runs: Path = Path("runs")
    """Folder for checkpoints and logs"""
    out: Path = MODELS / "photo"
    """Folder of the model"""
    device: str = "cuda" if torch.cuda.is_available() else "cpu"
    """Device, such as cpu or cuda"""


def train(args: Options) -> None:
    """Train from the last checkpoint, and write the model."""
    if not 2 <= args.batch_size <= args.images:
        raise InputError(f"--batch-size must be from 2 to --images ({args.images}); got {args.batch_size}.")
    folder = args.runs / f"photo-{args.seed}"
    data = read(args.photographs, args.runs / "photographs")
    settings = Settings(args.images, args.seed, args.batch_size, args.rate, held_out=args.held_out)
    trainer = Trainer(settings, folder, data, args.device)
    folder.mkdir(parents=True, exist_ok=True)
    last = folder / "last.pt"
    if last.exists():
        load_state(trainer, last, COUNTERS)
    trainer.train(last)
    trainer.settle()
    top1 = trainer.accuracy(trainer.held_out)
    held_out = {
        "top1": top1,
        "coarse": trainer.coarse_accuracy(trainer.held_out),
        "same_answer_at_500_pixels": trainer.steadiness(trainer.held_out[:1000]),
    }
    notes = {**asdict(settings), "photographs": trainer.seen, **held_out, "torch": torch.__version__}
    write_model(args.out, trainer.model, trainer.words_seen, MODEL_CFG, PREPROCESS_CFG, notes)
    (args.out / "training_log.csv").write_text((folder / "log.csv").read_text("utf-8"), "utf-8")
    print(f"Wrote {args.out}: top-1 {top1:.1%} on {len(trainer.held_out)} held-out photographs.")


main = Command(Options, train, interrupted="Stopped. The same command resumes from the last checkpoint.")

if __name__ == "__main__":
    sys.exit(main())
