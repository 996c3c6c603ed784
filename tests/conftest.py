"""Fixtures that all tests share: tiny CLIP models of random weights, and random pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings
from PIL import Image

import ccs
from ccs.model.model import Model
from tests.support.tiny_model import write_tiny_model

torch.set_num_threads(1)
# The same examples on every run, and no deadline: a busy machine is no failure.
settings.register_profile("ccs", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("ccs")


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `tiny_model`."""
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def tiny_model(tiny_folder: Path) -> Model:
    """A random ViT of six layers of four heads, 32 px. Shared: never write to its weights."""
    return ccs.load(str(tiny_folder))


@pytest.fixture(scope="session")
def tiny_quick_model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """The same with QuickGELU."""
    folder = tmp_path_factory.mktemp("models") / "quick"
    return ccs.load(str(write_tiny_model(folder, quick_gelu=True, seed=1)))


@pytest.fixture(scope="session")
def pictures() -> Callable[[int], list[Image.Image]]:
    """`pictures(n)`: n random pictures, always the same, of sizes that are not the model's."""

    def make(n: int) -> list[Image.Image]:
        rng = np.random.default_rng(7)
        sizes = [(40, 30), (32, 48), (64, 64)]
        shapes = [(*sizes[i % 3], 3) for i in range(n)]
        return [Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)) for shape in shapes]

    return make
