"""The tests of the benchmark share the models of the product's tests, and few people and things."""

from dataclasses import replace
from functools import cache

import pytest

from benchmark.tests.locate_sample import evidence  # noqa: F401
from ccs_benchmark import scoring
from tests.conftest import hub, random_images, shared_folder, tiny_folder, tiny_model, use_one_fresh_gallery  # noqa: F401


@pytest.fixture(scope="module")
def small():
    """Few people and things, as the benchmark's own take seconds."""
    people, controls = scoring.synthetic_sets()
    groups = {name: labels[::6] for name, labels in people.groups.items()}
    people = replace(people, images=list(people.images[::6]), groups=groups, k=dict.fromkeys(groups, 10))
    controls = replace(controls, images=controls.images[:20], labels=controls.labels[:20])
    with pytest.MonkeyPatch.context() as patch:
        tracks = {"PLANTED_HEADS": scoring.PLANTED_HEADS, "NATURAL": scoring.NATURAL}
        for name, track in tracks.items():  # a model is loaded once; no method writes to its weights
            patch.setattr(scoring, name, replace(track, load=cache(track.load)))
        patch.setattr(scoring, "synthetic_sets", lambda: (people, controls))
        patch.setattr("ccs.analysis.evidence.READ_IMAGES", 30)
        yield
