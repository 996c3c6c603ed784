"""Results of too few images say so."""

import pytest

import ccs
from ccs.analysis.sample_size import SMALLEST, warn_if_small


def test_too_few_images_are_warned_of():
    for result, (smallest, _) in SMALLEST.items():
        assert warn_if_small(result, smallest) is None
        with pytest.warns(UserWarning, match=f"{smallest - 1}. Results mean little below {smallest}"):
            assert warn_if_small(result, smallest - 1)
    with pytest.warns(UserWarning, match="Too few images for accuracy: 2"):
        table = ccs.accuracy("organism", "world/subjects", max_images=2)
    assert "below 30" in table.doubt
