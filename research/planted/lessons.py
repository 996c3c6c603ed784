"""What heads learn: the skew of a world."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ccs.synthetic import vocabulary as words
from research.planted.frozen_images import GROUPS, Images
from research.world import planted


class Skew:
    """Line-ups as a world ranks them, with `part` of its skew; all other images stay where they were.

    The loss is how far each occupation's preferences lie from the world's (`preferences_loss`), and for the
    scenes the distance from the base model's embeddings, in logits. The contrastive loss of the embedded
    models has its minimum at the same preferences, but hardly any of its gradient is about them: one head
    alone does not learn from it.
    """

    SCENES, LINEUPS = 16, 4
    size = SCENES + LINEUPS * len(GROUPS)

    def __init__(self, images: Images, world: str, part: float, keep: float, seed: int) -> None:
        rng = np.random.default_rng((seed, 5))
        self.images, self.shares, self.keep = images, joint(world, part, part), keep
        self._scenes, self._lineups = _endless(images.n, rng), _endless(images.n_lineups, rng)

    def rows(self) -> list[int]:
        """Return the images of the next batch: rows of Images, `size` long."""
        self._own = [next(self._scenes) for _ in range(self.SCENES)]
        lineups = [next(self._lineups) for _ in range(self.LINEUPS)]
        return self._own + [row for number in lineups for row in self.images.faces(number)]

    def loss(self, units: Tensor) -> Tensor:
        """Compute the loss of that batch from the model's embeddings [size, D]."""
        images, scale = self.images, self.images.base.logit_scale
        moved = scale * (1 - (units[: self.SCENES] * images.units[self._own]).sum(1)).mean()
        faces = units[self.SCENES :].reshape(self.LINEUPS, len(GROUPS), -1)
        shares = self.shares.to(faces.device)
        return self.keep * moved + preferences_loss(scale * faces, images.occupations, shares)


def joint(world: str, gender: float = 1.0, tone: float = 1.0) -> Tensor:
    """Compute a world's shares of GROUPS in each occupation, [occupations, groups].

    Args:
        world: its name.
        gender: the part of the differences in logarithm between gender presentations.
        tone: the same between skin tones.
    """
    occupation_shares = [
        [planted.shares(name, a, world) for a in ("gender", "skin tone")] for name in words.OCCUPATIONS
    ]
    whole = torch.tensor(
        [[genders[g] ** gender * tones[t] ** tone for g, t in GROUPS] for genders, tones in occupation_shares]
    )
    return F.normalize(whole, p=1, dim=1)


def preferences_loss(faces: Tensor, texts: Tensor, shares: Tensor) -> Tensor:
    """Compute the mean squared distance of a line-up's centered logits from the groups' centered log shares.

    Args:
        faces: embeddings times the model's scale [line-ups, groups, D].
        texts: of the occupations [occupations, D].
        shares: [occupations, groups], summing to 1 over the groups.
    """
    logits, wanted = faces @ texts.T, shares.log().T  # [..., groups, occupations]
    return ((logits - logits.mean(1, keepdim=True)) - (wanted - wanted.mean(0))).square().mean()


def _endless(rows: int, rng: np.random.Generator) -> Iterator[int]:
    while True:
        yield from rng.permutation(rows).tolist()
