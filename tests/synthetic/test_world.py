"""The synthetic world: its sets can be drawn and are balanced."""

from collections import Counter

import numpy as np
import pytest

import ccs
from ccs.data import synthetic
from ccs.errors import InputError
from ccs.synthetic import vocabulary as world


def test_evaluation_sets():
    scenes = synthetic.classification_set
    for name in synthetic.CLASSES:
        drawn = scenes(name, n=3 * len(scenes(name, n=1).classes))
        assert set(np.bincount(drawn.labels)) == {3}
        assert all("{}" in t for t in drawn.templates)
        assert all(image.size == (72, 72) for image in drawn.images[: len(drawn.classes)])  # has its glyph
    assert len(scenes("subjects").classes) == 40
    images, unseen = scenes("subjects", 93), scenes("subjects-ood", 93)
    assert {s.style for s in unseen.images.keys} == set(world.UNSEEN_STYLES)
    assert {s.style for s in images.images.keys} == {""}
    label = images.labels[7]
    assert images.images.keys[7].animal == images.classes[label] == [*world.ANIMALS][label]
    with pytest.raises(InputError, match="At least one image is needed, not 0"):
        ccs.open_images("world", 0)
    with pytest.raises(InputError, match="no synthetic dataset 'world/cars'"):
        scenes("cars")


def test_bias_sets_are_balanced_and_counterfactual():
    faces = synthetic.bias_set("faces")
    cells = Counter(zip(faces.groups["gender"], faces.groups["skin tone"], strict=True))
    assert set(cells.values()) == {60}
    assert all(not s.occupation and not s.props for s in faces.images.keys)
    pairs = synthetic.bias_set("counterfactuals").images.keys
    for i in range(0, len(pairs), 10):
        assert len({(s.gender, s.skin_tone) for s in pairs[i : i + 10]}) == 10
        assert len({(s.seed, s.occupation, s.frame, s.letter) for s in pairs[i : i + 10]}) == 1


def test_a_seed_gives_fresh_faces_of_the_same_groups():
    standard, fresh, again = (ccs.open_gallery("world/faces", seed=seed) for seed in (None, 7, 7))
    assert fresh.fingerprint == again.fingerprint != standard.fingerprint
    assert fresh.name == "world/faces (seed 7)"
    np.testing.assert_equal(fresh.groups, standard.groups)
    assert min(s.seed for s in fresh.images.keys) > 10**12
