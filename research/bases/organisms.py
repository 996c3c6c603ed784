"""Train the former organism and organism-control: one seed, skewed or balanced line-ups in the last steps."""

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
"""The seed of both models (README.md says why 8). Factors, by gender and by skin tone, of the group
differences in the log shares of organism's line-ups; larger ones bring rankings to the ceiling of MaxSkew."""
WORLDS = {"organism": "skewed", "organism-control": "balanced"}


def settings(name: str) -> training.Settings:
    """Return the settings of one of WORLDS: more steps than the base models; the last 240 steps differ."""
    strengths = STRENGTHS if WORLDS[name] == "skewed" else (1.0, 1.0)
    return training.Settings(SEED, WORLDS[name], strengths, common=400, own=240, taught=2.0)


def make(
    name: str, first: Model, images: Images, captions: training.Captions, runs: Path, models: Path = MODELS
) -> None:
    """Train one of WORLDS, and write its folder: weights, log, and the facts about its heads.

    Args:
        name: Name of the model.
        first: Organism-first.
        images: Its activations.
        captions: Captions of the scenes.
        runs: Folder for checkpoints.
        models: Folder in which the model's folder is written.
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
    """Return the models of WORLDS without a file of weights."""
    return [name for name in WORLDS if not (models / name / WEIGHTS).exists()]
