"""A small gallery of random pictures."""

import numpy as np
import pytest

from ccs.data import BiasSet


@pytest.fixture(scope="module")
def gallery(random_images):
    groups = {"gender": np.array(["woman", "man", "man"] * 20), "race": np.array(["b", "a", "c"] * 20)}
    settings = {"name": "people", "fingerprint": "f", "source": "random", "k": dict.fromkeys(groups, 10)}
    settings |= {"occupations": ("judge", "nurse", "pilot"), "templates": ("a photo of a {}", "a {}")}
    return BiasSet(images=random_images(60), groups=groups, **settings)
