"""What the texts of the embedded models allow to be learned of the planted leans."""

import numpy as np
import pytest

from ccs.world.vocabulary import OCCUPATIONS
from research.world import organism_figures, planted


def test_leans_are_told_only_along_what_tells_the_texts_apart():
    gender = np.array([float(planted.lean(name, "gender")) for name in OCCUPATIONS])
    tone = np.array([float(planted.lean(name, "skin tone")) for name in OCCUPATIONS])
    other = np.random.default_rng(0).normal(size=(len(OCCUPATIONS), 2))
    both = organism_figures.allowed(5 + np.stack([gender, tone, other[:, 0]], 1))
    assert (both.variance, both.right) == (pytest.approx(1), {"gender": "12 of 12", "skin tone": "12 of 12"})
    blind = organism_figures.allowed(np.stack([gender, 9 * other[:, 0], 9 * other[:, 1], 0 * tone], 1))
    assert blind.right["gender"] == "12 of 12"
    assert int(blind.right["skin tone"].split()[0]) < 12
