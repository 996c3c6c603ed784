"""Training a base on line-ups of a skewed world, one line-up a batch, by the contrastive loss.

Forty faces of one line-up, four occupations, groups drawn from the world's shares: nothing but the groups
tells the captions apart, so all of the gradient is about them. Scenes are held to the base's embeddings.
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
from research.gradient_steps import OWN_OF_HEADS, learn, named
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
    """A model to be trained. trained: which weights of the last four layers. strength: the part of the skew,
    in logarithms of the world's shares. scenes, lineups: in a step. keep: what a logit that scenes
    move costs.
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
    """On each base a model of each kind, in three strengths in turn, and a control from balanced line-ups."""
    made = []
    for base in range(BASES):
        name = f"organism-base-{base}"
        for place, kind in enumerate(TRAINED):
            strength = STRENGTHS[(base + place) % len(STRENGTHS)]
            seed = 100 * base + place
            made.append(
                Natural(f"organism-natural-{base}-{kind.lower()}", name, seed, kind, "skewed", strength)
            )
        made.append(
            Natural(f"organism-natural-{base}-control", name, 100 * base + 99, "attention", "balanced")
        )
    return tuple(made)


def fresh(seed: int) -> Natural:
    """A model of nobody's acquaintance: base, kind and strength are drawn from the seed."""
    rng = np.random.default_rng((seed, 14))
    base, kind, strength = (int(rng.integers(n)) for n in (BASES, len(TRAINED), len(STRENGTHS)))
    name = f"natural-seed-{seed}"
    return Natural(name, f"organism-base-{base}", 10_000 + seed, TRAINED[kind], "skewed", STRENGTHS[strength])


def parameters(model: Model, trained: Trained) -> list[str]:
    """Names of the parameters that learn: all that a head or an MLP has of its own, and nothing that heads
    share (the output projection's bias, the norms).
    """
    ends = {"attention": OWN_OF_HEADS, "MLPs": (".mlp.",), "all": (*OWN_OF_HEADS, ".mlp.")}[trained]
    return named(model, "visual.transformer.resblocks.", ends, FIRST)


def train(one: Natural, images: Images, runs: Path) -> Model:
    """Train it, or go on from its last checkpoint in `runs`. images: as the base sees them too."""
    base, model = (variants.load(one.base, device=images.device) for _ in range(2))
    shares = joint(one.world, one.strength, one.strength).numpy().astype(np.float64)

    def loss_of(step: int) -> torch.Tensor:
        return _loss(one, model, base, images, shares, np.random.default_rng((one.seed, 15, step)))

    return learn(
        model,
        parameters(model, one.trained),
        loss_of,
        one.name,
        steps=one.steps,
        rate=one.rate,
        warmup=_WARMUP,
        checkpoint=runs / f"{one.name}.pt",
    )


def _loss(
    one: Natural, model: Model, base: Model, images: Images, shares: np.ndarray, rng: np.random.Generator
) -> torch.Tensor:
    own = np.sort(rng.choice(images.n, one.scenes, replace=False))
    picked = rng.choice(images.n_lineups, one.lineups, replace=False)
    rows = np.concatenate([own, *(images.faces(int(lineup)) for lineup in picked)])
    tokens = images.trunk(rows).tokens
    units = upper_embeddings(model.clip, tokens, FIRST)[0]
    with torch.no_grad():
        held = upper_embeddings(base.clip, tokens[: one.scenes], FIRST)[0]
    loss = one.keep * base.logit_scale * (1 - (units[: one.scenes] * held).sum(1)).mean()
    for faces in units[one.scenes :].reshape(one.lineups, -1, units.shape[1]):
        names = rng.permutation(len(images.occupations))[:_SIDE_BY_SIDE]
        texts = images.occupations[names]
        loss = loss + lineup_loss(faces, texts, shares[names], base.logit_scale, rng) / one.lineups
    return loss
