"""Lessons for heads: the skew of a world, or concepts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from batch.planted.images import GROUPS, Images
from ccs.world import Scene, planted
from ccs.world import vocabulary as words
from ccs.world.scene import article


class Lesson(Protocol):
    """rows: of Images, a batch, which `size` long. loss: of the model's embeddings [size, D] of them."""

    size: int

    def rows(self) -> Sequence[int]: ...

    def loss(self, units: Tensor) -> Tensor: ...


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
        self._own = [next(self._scenes) for _ in range(self.SCENES)]
        self._faces = [next(self._lineups) for _ in range(self.LINEUPS)]
        return self._own + [row for one in self._faces for row in self.images.faces(one)]

    def loss(self, units: Tensor) -> Tensor:
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


class Concepts:
    """The value of a factor that a scene shows, for the factors of one or more concepts; nothing else."""

    size = 72

    def __init__(self, images: Images, concepts: Sequence[str], seed: int) -> None:
        self.scale = images.base.logit_scale
        scenes = [images.scene(row) for row in range(images.n)]
        self._questions = [_question(images, scenes, *one) for name in concepts for one in CONCEPTS[name]]
        self._scenes = _endless(images.n, np.random.default_rng((seed, 6)))

    def rows(self) -> list[int]:
        self._own = [next(self._scenes) for _ in range(self.size)]
        return self._own

    def loss(self, units: Tensor) -> Tensor:
        losses = []
        for values, texts in self._questions:
            own, logits = values[self._own], self.scale * units @ texts.T
            total = F.cross_entropy(logits, own, ignore_index=-1, reduction="sum")
            losses.append(total / (own >= 0).sum().clamp(min=1))  # a batch may have no such image
        return torch.stack(losses).mean()


Factor = tuple[Callable[[Scene], str], Mapping[str, str]]
"""A scene's value ("" where there is none), and the text of each value."""

CONCEPTS: Mapping[str, tuple[Factor, ...]] = {
    "Colors": ((lambda s: s.color, {color: f"{article(color)} background" for color in words.COLORS}),),
    "Places": ((lambda s: s.place, words.PLACE_PHRASES),),
    "People": (
        (
            lambda s: s.subject if s.kind == "face" else "",
            {w: article(w) for w in words.PEOPLE_WORDS.values()},
        ),
        (lambda s: s.skin_tone, {tone: f"a person with {tone} skin" for tone in words.SKIN_TONES}),
    ),
}
"""Concepts of the tree of tags (ccs/texts/concepts.csv) that can be planted."""


def _question(
    images: Images, scenes: Sequence[Scene], value: Callable[[Scene], str], texts: Mapping[str, str]
) -> tuple[Tensor, Tensor]:
    places = {name: i for i, name in enumerate(texts)}
    values = torch.tensor([places.get(value(s), -1) for s in scenes])
    return values, torch.from_numpy(images.base.embed_texts(list(texts.values())))


def _endless(n: int, rng: np.random.Generator) -> Iterator[int]:
    while True:
        yield from rng.permutation(n).tolist()
