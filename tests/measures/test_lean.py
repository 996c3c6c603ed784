"""How far rankings lean: against the definition written out, and as a slope."""

from __future__ import annotations

import numpy as np
import pytest

from ccs.measures.ranking import lean, toward


def plain(images, prompts, groups, pools):
    """Prompt by prompt and group by group: variance between the groups' means, and mean variance within."""
    between, within = [], []
    for p, prompt in enumerate(prompts):
        own = [
            [image @ prompt for i, image in enumerate(images) if groups[i] == g and pools[p][i]]
            for g in sorted(set(groups))
        ]
        between.append(np.var([np.mean(cosines) for cosines in own]))
        within.append(np.mean([np.var(cosines) for cosines in own]))
    return np.array(between), np.array(within)


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def example():
    rng = np.random.default_rng(0)
    groups = np.array(["a", "b", "c"])[rng.integers(0, 3, 30)]
    pools = rng.random((4, 30)) < 0.7
    return unit(rng.standard_normal((30, 5))), unit(rng.standard_normal((4, 5))), groups, pools


@pytest.mark.parametrize("own", [True, False])
def test_the_lean_is_its_definition(example, own):
    images, prompts, groups, pools = example
    every = pools if own else np.ones_like(pools)
    between, within = plain(images, prompts, groups, every)
    found = lean(images, prompts, groups, pools if own else None)
    assert found == pytest.approx(np.sqrt(np.mean(between / within)), rel=1e-4)


@pytest.mark.parametrize("own", [True, False])
def test_its_vectors_sum_to_the_variance_between_groups_and_are_its_slope(example, own):
    images, prompts, groups, pools = example
    every = pools if own else np.ones_like(pools)
    vectors = toward(images, prompts, groups, pools if own else None)
    assert (vectors * images).sum() == pytest.approx(
        plain(images, prompts, groups, every)[0].mean(), rel=1e-4
    )
    moved = 1e-3 * np.random.default_rng(1).standard_normal(images.shape)
    up, down = (plain(images + side * moved, prompts, groups, every)[0].mean() for side in (1, -1))
    assert (vectors * moved).sum() == pytest.approx((up - down) / 4, rel=1e-3)


def test_what_shrinks_all_differences_alike_makes_no_ranking_fairer(example):
    images, prompts, groups, _ = example
    middle = images.mean(axis=0)
    nearer = middle + 0.1 * (images - middle)
    before, after = (lean(one, prompts, groups) for one in (images, nearer))
    assert after > 0.5 * before


def test_groups_treated_alike_do_not_lean():
    images = unit(np.random.default_rng(0).standard_normal((10, 4)))
    twice = np.concatenate([images, images])
    assert lean(twice, np.eye(4), ["a"] * 10 + ["b"] * 10) == pytest.approx(0, abs=1e-7)
