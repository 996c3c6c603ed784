"""The tests of the studies share the models of the product's tests, a base, and a few of its images."""

import pytest

from ccs.benchmark import variants
from research.planted.family import BASE
from research.planted.frozen_images import Images
from tests.conftest import once, pictures, tiny_folder, tiny_model  # noqa: F401


@pytest.fixture(scope="session")
def base():
    """What most trainings begin with. Shared: never write to its weights."""
    return variants.load(BASE)


@pytest.fixture(scope="session")
def images(base, tmp_path_factory):
    """72 scenes, and the faces of four line-ups."""
    return Images(base, tmp_path_factory.mktemp("images"), 72, 4)
