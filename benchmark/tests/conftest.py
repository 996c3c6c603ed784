"""Fixtures of the product's tests, and few synthetic people and control images for the benchmark."""

from dataclasses import replace
from functools import cache

import pytest

from benchmark.tests.locate_sample import evidence  # noqa: F401
from ccs.data import synthetic
from ccs_benchmark import scoring
from tests.conftest import hub, random_images, shared_folder, tiny_folder, tiny_model, use_one_fresh_gallery  # noqa: F401
from tests.support.datasets_sample import first_people


@pytest.fixture(scope="module")
def small():
    """Galleries of 100 people, 20 control images, and models that are loaded once."""
    faces, controls = synthetic.bias_set, synthetic.classification_set("subjects", 20)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PLANTED_HEADS", "NATURAL"):
            track = getattr(scoring, name)
            patch.setattr(scoring, name, replace(track, load=cache(track.load)))
        patch.setattr(synthetic, "bias_set", cache(lambda *args: first_people(faces(*args), 100)))
        patch.setattr(synthetic, "classification_set", lambda *_: controls)
        patch.setattr("ccs.analysis.evidence.READ_IMAGES", 30)
        yield
