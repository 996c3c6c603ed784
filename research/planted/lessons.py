"""The loss that plants the bias of a world in heads."""

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
    """Train line-ups to a world's group preferences, and hold other images to the base model's embeddings.

    The loss is the distance of each occupation's preferences from the world's (`preferences_loss`), plus, for
    scenes, the distance from the base model's embeddings in logits. The contrastive loss has its minimum at
    the same preferences, but they contribute so little to its gradient that a single head doesn't learn them.

    Args:
        images: All training images.
        world: Name of the world.
        part: Factor of the group differences in the world's log shares.
        keep: Weight of the scenes.
        seed: Random seed for the batches.
    """

    SCENES, LINEUPS = 16, 4
    size = SCENES + LINEUPS * len(GROUPS)

    def __init__(self, images: Images, world: str, part: float, keep: float, seed: int) -> None:
        rng = np.random.default_rng((seed, 5))
        self.images, self.shares, self.keep = images, joint(world, part, part), keep
        self._scenes, self._lineups = _endless(images.n, rng), _endless(images.n_lineups, rng)

    def rows(self) -> list[int]:
        """Return the `size` rows of Images for the next batch."""
        self._scene_rows = [next(self._scenes) for _ in range(self.SCENES)]
        lineups = [next(self._lineups) for _ in range(self.LINEUPS)]
        return self._scene_rows + [row for number in lineups for row in self.images.faces(number)]

    def loss(self, units: Tensor) -> Tensor:
        """Compute the loss of that batch from the model's embeddings [size, D]."""
        images, scale = self.images, self.images.base.logit_scale
        moved = scale * (1 - (units[: self.SCENES] * images.units[self._scene_rows]).sum(1)).mean()
        faces = units[self.SCENES :].reshape(self.LINEUPS, len(GROUPS), -1)
        shares = self.shares.to(faces.device)
        return self.keep * moved + preferences_loss(scale * faces, images.occupations, shares)


def joint(world: str, gender: float = 1.0, tone: float = 1.0) -> Tensor:
    """Compute a world's shares of GROUPS in each occupation, [occupations, groups].

    Args:
        world: Name of the world.
        gender: Factor of the differences between gender presentations in the log shares.
        tone: Factor of the differences between skin tones in the log shares.
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
        faces: Embeddings times the model's logit scale [line-ups, groups, D].
        texts: Embeddings of the occupations [occupations, D].
        shares: Target shares [occupations, groups], which sum to 1 over groups.
    """
    logits, targets = faces @ texts.T, shares.log().T  # [..., groups, occupations]
    return ((logits - logits.mean(1, keepdim=True)) - (targets - targets.mean(0))).square().mean()


def _endless(rows: int, rng: np.random.Generator) -> Iterator[int]:
    while True:
        yield from rng.permutation(rows).tolist()
