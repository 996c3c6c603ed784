"""What heads learn: the skew of a world."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ccs.world import planted
from ccs.world import vocabulary as words
from research.planted.frozen_images import GROUPS, Images


class Skew:
    """Line-ups as a world ranks them, with `part` of its skew; all other images stay where they were.

    The loss is that of the embedded models in expectation over the draws of line-ups of all occupations, and
    for the scenes the distance from the base model's embeddings, in logits.
    """

    SCENES, LINEUPS = 32, 4
    size = SCENES + LINEUPS * len(GROUPS)

    def __init__(self, images: Images, world: str, part: float, keep: float, seed: int) -> None:
        rng = np.random.default_rng((seed, 5))
        self.images, self.shares, self.keep = images, joint(world, part), keep
        self._scenes, self._lineups = _endless(images.n, rng), _endless(images.n_lineups, rng)

    def rows(self) -> list[int]:
        """The images of the next batch: rows of Images, `size` long."""
        self._own = [next(self._scenes) for _ in range(self.SCENES)]
        self._faces = [next(self._lineups) for _ in range(self.LINEUPS)]
        return self._own + [row for one in self._faces for row in self.images.faces(one)]

    def loss(self, units: Tensor) -> Tensor:
        """The loss of that batch, from the model's embeddings [size, D] of it."""
        images, scale = self.images, self.images.base.logit_scale
        moved = scale * (1 - (units[: self.SCENES] * images.units[self._own]).sum(1)).mean()
        shown = units[self.SCENES :].reshape(self.LINEUPS, len(GROUPS), -1)
        return self.keep * moved + lineup_loss(scale * shown, images.occupations[self._faces], self.shares)


def joint(world: str, part: float = 1.0) -> Tensor:
    """A world's shares of GROUPS, [occupations, groups], with `part` of their differences in logarithm."""
    both = [[planted.shares(name, a, world) for a in ("gender", "skin tone")] for name in words.OCCUPATIONS]
    whole = torch.tensor([[gender[g] * tone[t] for g, t in GROUPS] for gender, tone in both])
    return F.normalize(whole**part, p=1, dim=1)


def lineup_loss(faces: Tensor, texts: Tensor, shares: Tensor) -> Tensor:
    """The symmetric cross-entropy of line-ups in which faces go with texts as often as `shares` says.

    faces: [line-ups, groups, D], embeddings times the model's scale. texts: [line-ups, occupations, D].
    shares: [occupations, groups], summing to 1 over the groups.
    """
    logits = faces @ texts.transpose(1, 2)  # [line-ups, groups, occupations]
    drawn = shares.T / len(shares)
    of_faces = -(drawn * logits.log_softmax(2)).sum((1, 2))
    of_texts = -(drawn * logits.log_softmax(1)).sum((1, 2))
    return (of_faces + of_texts).mean() / 2


def _endless(rows: int, rng: np.random.Generator) -> Iterator[int]:
    while True:
        yield from rng.permutation(rows).tolist()
