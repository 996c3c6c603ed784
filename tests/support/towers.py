"""Helpers for tests of towers: random pixels and plans, open_clip's own pass, and a count of layers run."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from ccs import Head, HeadSet
from ccs.model.model import Model
from ccs.model.towers.parts import Block

TOLERANCE = 1e-5


def pixels(model: Model, n: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 3, *model.tower.image_size, generator=generator)


def some_plans(model: Model, n: int, seed: int, first_layer: int = 0) -> list[HeadSet]:
    rng = random.Random(seed)
    every = [Head(i, j) for i in range(first_layer, model.n_layers) for j in range(model.n_heads)]
    return [HeadSet(rng.sample(every, rng.randint(0, min(6, len(every))))) for _ in range(n)]


def count_layers(model: Model, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by the number of each layer of the model that is run."""
    passes: list[int] = []
    finish = Block.finish

    def counting(self: Block, x: Tensor, values: Tensor) -> Tensor:
        passes.extend(number for number, layer in enumerate(model.tower.layers) if layer is self)
        return finish(self, x, values)

    monkeypatch.setattr(Block, "finish", counting)
    return passes
