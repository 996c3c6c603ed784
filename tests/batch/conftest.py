"""One small run of batch.compute for all who only read its results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.compute_sample import arguments, run, small_pool


@pytest.fixture(scope="session")
def texts(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """A file with forty texts."""
    return once("pool", small_pool) / "pool.csv"


@pytest.fixture(scope="session")
def small_run(once: Callable[[str, Callable[[Path], object]], Path], tiny_folder: Path, texts: Path) -> Path:
    """The results of one small run in one process. Copy them to change them."""

    def make(out: Path) -> None:
        assert run(arguments(tiny_folder, texts, out)) == 0

    return once("small_run", make)
