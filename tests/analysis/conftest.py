"""Small galleries: random images of people, and synthetic faces."""

from dataclasses import replace

import numpy as np
import pytest

import ccs
from ccs.data import BiasSet
from tests.support.datasets_sample import first_people


@pytest.fixture(scope="module")
def gallery(random_images):
    groups = {"gender": np.array(["woman", "man", "man"] * 20), "race": np.array(["b", "a", "c"] * 20)}
    settings = {"name": "people", "fingerprint": "f", "source": "random", "k": dict.fromkeys(groups, 10)}
    settings |= {"occupations": ("judge", "nurse", "pilot"), "templates": ("a photo of a {}", "a {}")}
    return BiasSet(images=random_images(60), groups=groups, **settings)


@pytest.fixture(scope="session")
def faces():
    """The first 150 synthetic faces and 8 of their occupations, with a K of 15."""
    people = first_people(ccs.open_gallery("world/faces"), 150, k=15)
    return replace(people, occupations=people.occupations[:8])
