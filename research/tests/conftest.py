"""The tests of the studies share the models of the product's tests, a base, and a few of its images."""

from dataclasses import replace

import pytest

from ccs.data import synthetic
from ccs_benchmark import variants
from research.planted import bench
from research.planted.family import BASE
from research.planted.frozen_images import Images
from tests.conftest import hub, random_images, shared_folder, tiny_folder, tiny_model  # noqa: F401


@pytest.fixture(scope="session")
def base():
    """Return the model that most trainings begin with. It is shared: never write to its weights."""
    return variants.load(BASE)


@pytest.fixture(scope="session")
def images(base, tmp_path_factory):
    """72 scenes, and the faces of four line-ups.

    Args:
        base: The base model, trained on few images.
        tmp_path_factory: Makes fresh folders.
    """
    return Images(base, tmp_path_factory.mktemp("images"), 72, 4)


@pytest.fixture
def few_people(monkeypatch):
    """Return a function that reduces galleries to n people and control sets to 30 subjects and 40 scenes."""
    full_set, things = synthetic.bias_set, synthetic.classification_set("subjects", 30)

    def make(count=40):
        def few(name):
            whole = full_set(name)
            groups = {attribute: labels[:count] for attribute, labels in whole.groups.items()}
            few = replace(whole, images=whole.images[:count], groups=groups, k=dict.fromkeys(groups, 8))
            if whole.pools is None or whole.units is None:
                return few
            pools = whole.pools[:count]
            return replace(few, pools=pools, units=whole.units[:count], occupations=(*dict.fromkeys(pools),))

        monkeypatch.setattr(synthetic, "bias_set", few)

    monkeypatch.setattr(synthetic, "classification_set", lambda _: things)
    monkeypatch.setattr(bench, "SCENES", 40)
    return make
