"""The two models that ship whole: upper halves of one seed that differ in the world of their line-ups."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import open_clip
import torch

from ccs.bundled import FILE, KnownHeads
from ccs.files import write_text
from ccs.model.model import Model, load
from research.bases import training
from research.model_files import as_json
from research.planted.frozen_images import Images
from research.world import head_shares
from research.world.organism_training import MODEL_CFG, MODELS, PREPROCESS_CFG, WEIGHTS, write_model

SEED, STRENGTHS = 8, (0.3, 0.22)
"""Of the lessons and weights of both (README.md says why 8); the parts of the world's skew by gender and by
skin tone in the organism's line-ups, in logarithms of its shares: not more, so that its rankings are not at
the ceiling of MaxSkew and can get worse too."""
WORLDS = {"organism": "skewed", "organism-control": "balanced"}


def settings(name: str) -> training.Settings:
    """Return how one of WORLDS is trained: longer than the bases, and but for the last 240 steps alike."""
    strengths = STRENGTHS if WORLDS[name] == "skewed" else (1.0, 1.0)
    return training.Settings(SEED, WORLDS[name], strengths, common=400, own=240, taught=2.0)


def make(
    name: str, first: Model, images: Images, captions: training.Captions, runs: Path, models: Path = MODELS
) -> None:
    """Train one of WORLDS, and write its folder: weights, log, and what is known of its heads.

    Args:
        name: of the model.
        first: the first model.
        images: its activations.
        captions: of its scenes.
        runs: folder for checkpoints.
        models: where to write the folder.
    """
    trainer, folder = training.Trainer(settings(name), first, images, captions), models / name
    logs = trainer.train(runs)
    clip = open_clip.CLIP(**MODEL_CFG)
    clip.load_state_dict(training.folded(trainer.model.state_dict()))
    read = clip.token_embedding.weight.detach().any(1)
    notes = {**asdict(trainer.settings), "below": first.name, "torch": torch.__version__}
    write_model(folder, clip, read, MODEL_CFG, PREPROCESS_CFG, notes)
    write_text(folder / "training_log.csv", logs)
    known = KnownHeads(trainer.lessons.lessons, head_shares.measured(load(str(folder))))
    write_text(folder / FILE, as_json(known, indent=1))


def missing(models: Path = MODELS) -> list[str]:
    """Return those of WORLDS whose weights are not there."""
    return [name for name in WORLDS if not (models / name / WEIGHTS).exists()]
