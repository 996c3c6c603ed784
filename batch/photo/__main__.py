"""Train the embedded model of photographs: `python -m batch.photo --photographs FILE.parquet`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from batch.options import run
from batch.photo.data import read
from batch.photo.training import MODEL_CFG, PREPROCESS_CFG, Settings, Trainer
from batch.train_organism import write_model
from ccs.errors import InputError


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m batch.photo", description=__doc__)
    parser.add_argument("--photographs", type=Path, required=True, help="parquet with `image` and `wnid`")
    parser.add_argument("--images", type=int, default=1_500_000, help="photographs seen in all")
    parser.add_argument("--seed", type=int, default=Settings.seed)
    parser.add_argument("--batch-size", type=int, default=Settings.batch_size, help="photographs per step")
    parser.add_argument("--rate", type=float, default=Settings.rate, help="peak learning rate of matrices")
    parser.add_argument(
        "--held-out", type=int, default=Settings.held_out, help="photographs of each class never trained on"
    )
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where checkpoints and logs are kept")
    parser.add_argument("--out", type=Path, help="where the model goes (default: ccs/world/models/photo)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args(argv)
    return run(lambda: train(args), "Stopped; the same command resumes from the last checkpoint.")


def train(args: argparse.Namespace) -> None:
    """Train from wherever the checkpoint stands, and write the model."""
    if not 2 <= args.batch_size <= args.images:
        raise InputError(f"--batch-size is {args.batch_size}; it must be at least 2 and at most --images.")
    folder = args.runs / f"photo-{args.seed}"
    data = read(args.photographs, args.runs / "photographs")
    settings = Settings(args.images, args.seed, args.batch_size, args.rate, held_out=args.held_out)
    trainer = Trainer(settings, folder, data, args.device)
    folder.mkdir(parents=True, exist_ok=True)
    last = folder / "last.pt"
    if last.exists():
        trainer.load(last)
    trainer.train(last)
    trainer.settle()
    top1 = trainer.accuracy(trainer.held_out)
    out = args.out or Path(__file__).parents[2] / "ccs" / "world" / "models" / "photo"
    held_out = {"top1": top1, "coarse": trainer.coarse_accuracy(trainer.held_out)}
    notes = {**asdict(settings), "photographs": trainer.seen, **held_out, "torch": torch.__version__}
    write_model(out, trainer.model, trainer.words_seen, MODEL_CFG, PREPROCESS_CFG, notes)
    (out / "training_log.csv").write_text((folder / "log.csv").read_text("utf-8"), "utf-8")
    print(f"Wrote {out}: top-1 {top1:.1%} of {len(trainer.held_out)} photographs held out.")


if __name__ == "__main__":
    sys.exit(main())
