"""The natural track: graded truth, and the two figures of a ranking."""

import numpy as np
import pytest

from ccs import Head
from ccs.benchmark import natural, scoring
from ccs.locate import METHODS, RANDOM
from tests.benchmark.test_scoring import small  # noqa: F401 - a fixture

SHARES = {Head(4, n): share for n, share in enumerate((0.5, 0.3, 0.1, 0.05, 0.03, 0.02))}


def test_agreement_is_of_the_whole_order_and_most_of_the_heads_that_carry_most():
    right = tuple(SHARES)
    assert natural.agreement(right, SHARES) == pytest.approx(1)
    assert natural.agreement(right[::-1], SHARES) == pytest.approx(-1)
    first, last = [right[1], right[0], *right[2:]], [*right[:4], right[5], right[4]]
    assert natural.agreement(first, SHARES) < natural.agreement(last, SHARES) < 1
    rng = np.random.default_rng(0)
    drawn = [natural.agreement([right[i] for i in rng.permutation(6)], SHARES) for _ in range(2000)]
    assert abs(np.mean(drawn)) < 0.05


def test_whoever_names_the_truth_takes_all_of_the_area_away_and_chance_little(tmp_path):
    name, file = "organism-natural-0-attention", tmp_path / "cells.parquet"
    attribute, shares = next(iter(natural.truth(name).items()))
    methods = {"told": lambda _: dict(shares), RANDOM: METHODS[RANDOM]}
    about = {"track": scoring.NATURAL, "attributes": [attribute], "file": file}
    cells, failed = scoring.run(methods, [name], 1, **about)
    assert not failed
    table = scoring.table(cells, "told", scoring.NATURAL)
    assert table.index[0] == natural.TRUTH
    figures = table.loc["told", ["area", "agreement"]].tolist()
    assert figures == pytest.approx([1, 1], abs=0.01)  # equal shares have no order
    assert table.loc["told", "max_skew_taken"] == table.loc[natural.TRUTH, "max_skew_taken"] > 0
    assert table.loc[RANDOM, "area"] < 0.6
    assert table.loc[RANDOM, "difference"] > 0
    assert list(scoring.kept(file)["method"]) == sorted([natural.TRUTH, "told", RANDOM])


def test_the_truth_is_of_heads_and_of_attributes_that_heads_carry():
    assert natural.located()
    for name in natural.located():
        for shares in natural.truth(name).values():
            assert len(shares) == 24
            assert natural.CARRIED <= sum(shares.values()) < 1.2
