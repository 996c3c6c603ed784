"""Results of one small run for all tests that only read them, and fewer bootstrap draws."""

from functools import partial

import pytest

from ccs.data import synthetic
from ccs.metrics import bias
from tests.support.compute_sample import compute_arguments, run_compute, write_small_pool
from tests.support.datasets_sample import first_people


@pytest.fixture(scope="session")
def texts(shared_folder):
    """The file of a small text pool."""
    return shared_folder("pool", write_small_pool) / "pool.csv"


@pytest.fixture(scope="session")
def small_arguments(tiny_folder, texts):
    """`small_arguments(out, *options)`: the command line of a small run."""
    return partial(compute_arguments, tiny_folder, texts)


@pytest.fixture(scope="session")
def small_run(shared_folder, small_arguments):
    """The results of one small run in one process. Copy them to change them."""

    def compute(out):
        assert run_compute(small_arguments(out)) == 0

    return shared_folder("small_run", compute)


@pytest.fixture
def few_bias_draws(monkeypatch):
    """Intervals of bias from 40 draws, for tests that compare them only with each other."""
    monkeypatch.setitem(bias.Measuring.__init__.__kwdefaults__, "draws", 40)
    monkeypatch.setattr(bias, "DRAWS", 40)
    monkeypatch.setattr("ccs.analysis.bias.DRAWS", 40)
    monkeypatch.setattr(bias, "CHANCE_DRAWS", 40)


@pytest.fixture(scope="module")
def few_people():
    """100 of the 600 people of world/faces, ten of each crossed group."""
    people = first_people(synthetic.bias_set("faces"), 100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic, "bias_set", lambda *_: people)
        yield
