"""The lean of rankings against its definition, and as a slope."""

from __future__ import annotations

import numpy as np
import pytest

from ccs.measures.ranking import Ranking


def plain(images, prompts, groups, pools):
    """Prompt by prompt and group by group."""
    found = []
    for p, prompt in enumerate(prompts):
        means = [
            np.mean([image @ prompt for i, image in enumerate(images) if groups[i] == g and pools[p][i]])
            for g in sorted(set(groups))
        ]
        found.append(np.mean([(mean - np.mean(means)) ** 2 for mean in means]))
    return np.sqrt(np.mean(found))


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def example():
    rng = np.random.default_rng(0)
    groups = np.array(["a", "b", "c"])[rng.integers(0, 3, 30)]
    pools = rng.random((4, 30)) < 0.7
    return unit(rng.standard_normal((30, 5))), unit(rng.standard_normal((4, 5))), groups, pools


@pytest.mark.parametrize("own", [True, False])
def test_the_lean_is_its_definition_and_its_vectors_sum_to_it_and_are_half_its_slope(example, own):
    images, prompts, groups, pools = example
    asked = Ranking(prompts, groups, 2, pools if own else None)
    whole = plain(images, prompts, groups, pools if own else np.ones_like(pools))
    assert asked.lean(images) == pytest.approx(whole, rel=1e-4)
    vectors = asked.toward(images)
    assert (vectors * images).sum() == pytest.approx(whole**2, rel=1e-4)
    rng = np.random.default_rng(1)
    moved = 1e-2 * rng.standard_normal(images.shape)
    moved -= (moved * images).sum(1, keepdims=True) * images  # along the sphere: cosines ignore lengths
    squares = [asked.lean(images + side * moved) ** 2 for side in (1, -1)]
    assert (vectors * moved).sum() == pytest.approx((squares[0] - squares[1]) / 4, rel=2e-2)
