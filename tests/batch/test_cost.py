"""What a run would cost: of whole sets, though only some rows are here, and of all models together."""

from __future__ import annotations

import numpy as np
import pytest

from batch.compute import cost, inputs
from batch.compute.settings import Settings
from ccs.judges.prices import CostEstimate
from ccs.paper import figures as paper
from ccs.specs import open_set


def test_a_set_is_repeated_item_by_item():
    digits = open_set("world/digits", max_images=10)
    whole = inputs.repeated(digits, 25)
    assert (len(whole.images), len(whole.labels)) == (25, 25)
    for row in (3, 13, 23):
        assert np.array_equal(np.asarray(whole.images[row]), np.asarray(digits.images[3]))
        assert whole.labels[row] == digits.labels[3]
    clips = open_set("world/clips", max_images=10)
    assert inputs.repeated(clips, 12).captions[11] == clips.captions[1]
    assert len(inputs.repeated(clips, 12).clips[11]) == 8


def test_pools_of_a_repeated_set_are_those_of_the_study():
    whole = inputs.repeated(open_set("world/counterfactuals"), 4160)
    assert whole.occupations == paper.occupations()
    pools = whole.own_pools(whole.occupations)
    assert pools.sum(axis=1).tolist() == [40] * 104
    assert (pools.sum(axis=0) == 1).all()
    assert len(set(whole.units)) == 832  # sets of five, as there are five skin tones


@pytest.mark.parametrize("dollars", [1.25, None])
def test_what_all_models_need(dollars):
    judge = CostEstimate("openai:gpt", 10, 0, 10, 100, 100, dollars, 2.5)
    parts = (cost.Part("embed cifar10", 10_000, 1.8e17, 5.0), cost.Part("measure cifar10", 0, 1.8e17, 5400.0))
    one = cost.Cost(parts, 10**9, 6 * 10**8, 10**9, (judge,))
    said = cost.needs(
        Settings(suite="paper", images="imagenet"), [one, one], ["msvd", "cifar10-jpeg", "msvd"]
    )
    assert "All 2 models" in said
    assert "1.2 GB of weights, 81." in said  # the two variants of a repository are downloaded once
    assert "20.0 hours of a GPU that sustains 10 TFLOP/s, and 3.0 hours of figures" in said
    assert ("20 requests, 2.50 dollars, at most 5.00" in said) == (dollars is not None)
    assert "not counted, as they could not be opened here: cifar10-jpeg, msvd" in said
