"""What a set's figures ask of the text tower."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from batch.compute import evaluate, inputs
from ccs.datasets import open_set
from ccs.heads import HeadSet
from ccs.plans import Plan


class Counting:
    """Random but fixed embeddings of texts; keeps what it was asked to read."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def embed_texts(self, texts: Sequence[str], batch_size: int = 256) -> np.ndarray:
        self.read += texts
        seeds = [sum(text.encode()) for text in texts]
        return np.stack([np.random.default_rng(seed).normal(size=8) for seed in seeds]).astype(np.float32)


@pytest.mark.parametrize("name", ["world/digits", "world/faces", "world/clips"])
def test_texts_are_read_once_and_counted_beforehand(name: str) -> None:
    data = open_set(name, max_images=12)
    images = np.random.default_rng(0).normal(size=(inputs.count(data), 8)).astype(np.float32)
    plans = [Plan("none", None, HeadSet(), "")]

    def rows(model: Counting | evaluate.ReadOnce) -> object:
        return evaluate.rows(model, data, plans, lambda index: images, 0, False)

    tower = Counting()
    once = evaluate.ReadOnce(tower)
    assert rows(once) == rows(once) == rows(Counting())
    assert len(tower.read) == inputs.count_texts(data)
