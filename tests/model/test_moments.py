"""Moments against the full matrix of contributions; merging changes nothing."""

import numpy as np
import pytest
import torch

import ccs
from ccs import HeadSet, InputError, Moments


def pixels(n, seed=0):
    return torch.randn(n, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def collected(tiny_model):
    return ccs.collect_moments(tiny_model, [pixels(40)])


@pytest.mark.parametrize("tower", ["L", "T"])
def test_moments_are_those_of_the_full_matrix(tiny_model, collected, tower):
    side, inputs, found = tiny_model, pixels(40), collected
    if tower == "T":
        side, inputs = tiny_model.texts, [f"a {'very ' * (i % 4)}odd photo of {i} cats" for i in range(40)]
        found = ccs.collect_moments(side, [inputs[:7], inputs[7:]])
    direct = side.contributions(inputs).direct.astype(np.float64)  # the matrix of every head's contributions
    matrix = np.stack([direct[:, head.layer, head.head] for head in side.heads])
    basis = np.stack(found.basis).astype(np.float64)
    assert found.count == 40
    assert found.heads == side.heads
    means = np.einsum("hr,hrd->hd", np.stack(found.total) / 40, basis)
    np.testing.assert_allclose(means, matrix.mean(1), atol=1e-7)
    second = np.einsum("hrd,hrs,hse->hde", basis, np.stack(found.products) / 40, basis)
    np.testing.assert_allclose(second, np.einsum("hnd,hne->hde", matrix, matrix) / 40, atol=1e-8)
    np.testing.assert_allclose(found.variance(), matrix.var(1).sum(1), rtol=1e-5)


def test_batches_shards_and_their_order_change_nothing(tiny_model, collected):
    x = pixels(40)
    parts = [x[:1], x[1:1], x[1:20], x[20:]]
    streamed = ccs.collect_moments(tiny_model, iter(parts))
    shards = [ccs.collect_moments(tiny_model, [part]) for part in parts]
    merged = shards[3] + shards[1] + shards[0] + shards[2] + Moments.empty(tiny_model)
    for other in (streamed, merged):
        assert other.count == 40
        np.testing.assert_allclose(other.total, collected.total, rtol=1e-6, atol=1e-5)
        np.testing.assert_allclose(other.products, collected.products, rtol=1e-6, atol=1e-5)
    assert shards[0].count == 1  # adding leaves the parts as they were


def test_moments_of_different_models_or_heads_do_not_add(tiny_model, tiny_quick_model, collected):
    for other in (Moments.empty(tiny_quick_model), Moments.empty(tiny_model, HeadSet.parse("L5.H0"))):
        with pytest.raises(InputError, match="different models or heads"):
            _ = collected + other
