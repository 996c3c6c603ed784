"""Train a base model on line-ups of a skewed world with the contrastive loss.

A line-up has forty faces for four occupations, with groups drawn from the world's shares. Only the groups
distinguish its captions, so the whole gradient is about them. Scenes are held to the base's embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from ccs.model.model import Model
from ccs_benchmark import variants
from research.bases.training import FIRST, lineup_loss
from research.gradient_steps import OWN_OF_HEADS, learn, parameter_names
from research.planted.frozen_images import Images
from research.planted.lessons import joint
from research.world.forward_pass import upper_embeddings

Trained = Literal["attention", "all", "MLPs"]
TRAINED: tuple[Trained, ...] = ("attention", "all", "MLPs")
STRENGTHS = (1.0, 0.7, 0.4)
BASES = 5
_SIDE_BY_SIDE = 4  # occupations of a line-up
_WARMUP = 50  # steps


@dataclass(frozen=True)
class Natural:
    """A model to train.

    Attributes:
        name: Name of the model.
        base: Name of its base model.
        seed: Random seed for the order of images.
        trained: Weights of the last four layers that are trained.
        world: World of the line-ups.
        strength: Factor of the group differences in the world's log shares.
        steps: Number of steps.
        rate: Peak learning rate.
        scenes: Scenes per step.
        lineups: Line-ups per step.
        keep: Weight of the change on scenes, in logits.
    """

    name: str
    base: str
    seed: int
    trained: Trained
    world: str = "skewed"
    strength: float = 1.0
    steps: int = 1_000
    rate: float = 1e-3
    scenes: int = 16
    lineups: int = 4
    keep: float = 0.05


def family() -> tuple[Natural, ...]:
    """List a model of each kind per base model, in three strengths, and a control with balanced line-ups."""
    models = []
    for base in range(BASES):
        name = f"organism-base-{base}"
        for place, kind in enumerate(TRAINED):
            strength = STRENGTHS[(base + place) % len(STRENGTHS)]
            seed = 100 * base + place
            models.append(
                Natural(f"organism-natural-{base}-{kind.lower()}", name, seed, kind, "skewed", strength)
            )
        models.append(
            Natural(f"organism-natural-{base}-control", name, 100 * base + 99, "attention", "balanced")
        )
    return tuple(models)


def fresh(seed: int) -> Natural:
    """Draw base, kind, and strength of a model from a seed."""
    rng = np.random.default_rng((seed, 14))
    base, kind, strength = (int(rng.integers(n)) for n in (BASES, len(TRAINED), len(STRENGTHS)))
    name = f"natural-seed-{seed}"
    return Natural(name, f"organism-base-{base}", 10_000 + seed, TRAINED[kind], "skewed", STRENGTHS[strength])


def parameters(model: Model, trained: Trained) -> list[str]:
    """List the trained parameters: those of single heads or MLPs, without those that heads share.

    Shared are the bias of the output projection, and the norms.

    Args:
        model: The model.
        trained: Kind of parts.
    """
    ends = {"attention": OWN_OF_HEADS, "MLPs": (".mlp.",), "all": (*OWN_OF_HEADS, ".mlp.")}[trained]
    return parameter_names(model, "visual.transformer.resblocks.", ends, FIRST)


def train(settings: Natural, images: Images, runs: Path) -> Model:
    """Train a model, or continue from its last checkpoint.

    Args:
        settings: Description of the model.
        images: Images as activations of the base model.
        runs: Folder for checkpoints.
    """
    base, model = (variants.load(settings.base, device=images.device) for _ in range(2))
    shares = joint(settings.world, settings.strength, settings.strength).numpy().astype(np.float64)

    def loss_of(step: int) -> torch.Tensor:
        return _loss(settings, model, base, images, shares, np.random.default_rng((settings.seed, 15, step)))

    return learn(
        model,
        parameters(model, settings.trained),
        loss_of,
        settings.name,
        steps=settings.steps,
        rate=settings.rate,
        warmup=_WARMUP,
        checkpoint=runs / f"{settings.name}.pt",
    )


def _loss(
    settings: Natural, model: Model, base: Model, images: Images, shares: np.ndarray, rng: np.random.Generator
) -> torch.Tensor:
    scene_rows = np.sort(rng.choice(images.n, settings.scenes, replace=False))
    picked = rng.choice(images.n_lineups, settings.lineups, replace=False)
    rows = np.concatenate([scene_rows, *(images.faces(int(lineup)) for lineup in picked)])
    tokens = images.trunk(rows).tokens
    units = upper_embeddings(model.clip, tokens, FIRST)[0]
    with torch.no_grad():
        held = upper_embeddings(base.clip, tokens[: settings.scenes], FIRST)[0]
    loss = settings.keep * base.logit_scale * (1 - (units[: settings.scenes] * held).sum(1)).mean()
    for faces in units[settings.scenes :].reshape(settings.lineups, -1, units.shape[1]):
        names = rng.permutation(len(images.occupations))[:_SIDE_BY_SIDE]
        texts = images.occupations[names]
        loss = loss + lineup_loss(faces, texts, shares[names], base.logit_scale, rng) / settings.lineups
    return loss
