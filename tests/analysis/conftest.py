"""Small galleries: random images of people, and synthetic faces."""

from dataclasses import replace

import numpy as np
import pytest

import ccs
from ccs.data import BiasSet


@pytest.fixture(scope="module")
def gallery(random_images):
    groups = {"gender": np.array(["woman", "man", "man"] * 20), "race": np.array(["b", "a", "c"] * 20)}
    settings = {"name": "people", "fingerprint": "f", "source": "random", "k": dict.fromkeys(groups, 10)}
    settings |= {"occupations": ("judge", "nurse", "pilot"), "templates": ("a photo of a {}", "a {}")}
    return BiasSet(images=random_images(60), groups=groups, **settings)


@pytest.fixture(scope="session")
def faces():
    """The first 150 synthetic faces and 8 of their occupations, with a K of 15."""
    faces = ccs.open_gallery("world/faces")
    groups = {attribute: labels[:150] for attribute, labels in faces.groups.items()}
    few = {"images": faces.images[:150], "occupations": faces.occupations[:8]}
    return replace(faces, groups=groups, k=dict.fromkeys(groups, 15), **few)
