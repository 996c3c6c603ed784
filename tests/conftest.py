"""Fixtures for all tests: tiny CLIP models, random images, and a local Hub; and the rule on skipped tests.

A test may be skipped for two reasons only: it reads ../shared, which is not in git (`@pytest.mark.shared`),
or it needs a GPU (`@pytest.mark.gpu`). Where CI is set, any other skipped test fails the run.
"""

import os

import numpy as np
import pytest
import torch
from filelock import FileLock
from huggingface_hub import constants
from hypothesis import settings
from PIL import Image

import ccs
from tests.support.hub_server import TOKEN, Hub
from tests.support.tiny_model import write_tiny_model

torch.set_num_threads(1)
# Use the same examples on every run, without a deadline, because machines may be busy.
settings.register_profile("ccs", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("ccs")


def pytest_addoption(parser):
    parser.addoption("--weekly", action="store_true", help="also run tests that are long or need a network")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--weekly"):
        weekly = [item for item in items if item.get_closest_marker("weekly")]
        config.hook.pytest_deselected(items=weekly)
        items[:] = [item for item in items if item not in weekly]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    unexplained = [report for report in skipped if not {"shared", "gpu"} & set(report.keywords)]
    if os.environ.get("CI") and unexplained and session.exitstatus == pytest.ExitCode.OK:
        reporter.write_line("In CI, tests may be skipped only if they need ../shared or a GPU.", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def use_one_fresh_gallery(monkeypatch):
    """Measure held-out results on one new gallery in place of eight."""
    monkeypatch.setattr("ccs.analysis.task.GALLERIES", 1)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory):
    """`shared_folder(name, make)`: a folder that `make` fills once for all workers. Never write to it."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent / "once" if "PYTEST_XDIST_WORKER" in os.environ else root / "once"

    def find(name, make):
        folder, marker = root / name, root / f"{name}.made"
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f"{name}.lock"):
            if not marker.exists():
                make(folder)
                marker.touch()
        return folder

    return find


@pytest.fixture(scope="session")
def tiny_folder(shared_folder):
    """The folder of `tiny_model`."""
    return shared_folder("models", lambda folder: write_tiny_model(folder / "tiny")) / "tiny"


@pytest.fixture(scope="session")
def tiny_model(tiny_folder):
    """A random ViT with six layers of four heads, 32 px. Never write to its weights."""
    return ccs.load(str(tiny_folder))


@pytest.fixture(scope="session")
def tiny_quick_model(tmp_path_factory):
    """`tiny_model` with QuickGELU."""
    folder = tmp_path_factory.mktemp("models") / "quick"
    return ccs.load(str(write_tiny_model(folder, quick_gelu=True, seed=1)))


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A local server in place of the Hub, with a write token and an empty cache."""
    with Hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        address = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address)  # constants are read at import
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        yield server


@pytest.fixture(scope="session")
def random_images():
    """`random_images(n)`: the first n of a fixed sequence of images, in sizes other than the model's."""

    def make(n):
        rng = np.random.default_rng(7)
        sizes = [(40, 30), (32, 48), (64, 64)]
        shapes = [(*sizes[i % 3], 3) for i in range(n)]
        return [Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)) for shape in shapes]

    return make
