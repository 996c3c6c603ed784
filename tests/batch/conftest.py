"""One small run of batch.compute for all who only read its results; few draws."""

import pytest

from ccs.metrics import bias
from tests.support.compute_sample import compute_arguments, run_compute, write_small_pool


@pytest.fixture(scope="session")
def texts(shared_folder):
    return shared_folder("pool", write_small_pool) / "pool.csv"


@pytest.fixture(scope="session")
def small_run(shared_folder, tiny_folder, texts):
    """The results of one small run in one process. Copy them to change them."""

    def make(out):
        assert run_compute(compute_arguments(tiny_folder, texts, out)) == 0

    return shared_folder("small_run", make)


@pytest.fixture
def few_draws(monkeypatch):
    """Intervals of bias from 40 draws, for those who read none."""
    monkeypatch.setitem(bias.Measuring.__init__.__kwdefaults__, "draws", 40)
    monkeypatch.setattr(bias, "DRAWS", 40)
    monkeypatch.setattr("ccs.analysis.bias.DRAWS", 40)
    monkeypatch.setattr(bias, "CHANCE_DRAWS", 40)
