"""Contributions against a slow reference that spells out every share; moments against the full matrix."""

import numpy as np
import pytest

import ccs
from benchmarks.towers import plain, zeroed
from ccs import HeadSet, InputError, Moments
from tests.support.towers import TOLERANCE, count_layers, pixels, plain_parts


def test_contributions_are_those_of_the_reference(model):
    x = pixels(model, 3)
    direct, remainder = model.contributions(x, batch_size=2)
    _, sent, rest = plain_parts(model, x)
    expected = sent.sum(3)
    assert direct.shape == (3, model.n_layers, model.n_heads, model.dim)
    np.testing.assert_allclose(direct, expected, atol=TOLERANCE)
    np.testing.assert_allclose(remainder, rest, atol=TOLERANCE)
    np.testing.assert_allclose(direct.sum((1, 2)) + remainder, model.embed_images(x), atol=TOLERANCE)
    heads = HeadSet.parse("L2.H1 L5.H0")
    found = model.contributions(model.trunk(x), heads, batch_size=2).direct
    np.testing.assert_allclose(found, expected[:, [2, 5], [1, 0]], atol=TOLERANCE)
    for below in (HeadSet.parse("L1.H0"), None):
        with pytest.raises(InputError, match="below layer 2, where this trunk ends"):
            model.contributions(model.trunk(x), below)


@pytest.mark.parametrize("names", ["L5.H3 L2.H1 L4.H0 L4.H2", "L0.H1", ""])
def test_chosen_heads_and_embeddings_come_from_one_pass(model, names, monkeypatch):
    x, heads = pixels(model, 3), HeadSet.parse(names)
    chosen = [plain_parts(model, x)[1].sum(3)[:, head.layer, head.head] for head in heads]
    plans = [HeadSet.parse("L3.H1"), HeadSet.parse("L5.H0 L2.H2")]
    slow = [plain(zeroed(model.clip.visual, off), x) for off in plans]
    everything = plain(model.clip.visual, x)
    passes = count_layers(model, monkeypatch)
    embedded, (direct, remainder) = model.embed_with_contributions(x, plans, heads)
    assert passes.count(0) == 1
    np.testing.assert_allclose(embedded, slow, atol=TOLERANCE)
    assert direct.shape == (3, len(heads), model.dim)
    for row, effect in enumerate(chosen):
        np.testing.assert_allclose(direct[:, row], effect, atol=TOLERANCE)
    np.testing.assert_allclose(direct.sum(1) + remainder, everything, atol=TOLERANCE)
    np.testing.assert_allclose(model.contributions(x, heads, batch_size=2).direct, direct, atol=1e-6)


@pytest.fixture(scope="module")
def collected(tiny_model):
    return ccs.collect_moments(tiny_model, [pixels(tiny_model, 40)])


@pytest.mark.parametrize("tower", ["L", "T"])
def test_moments_are_those_of_the_full_matrix(tiny_model, collected, tower):
    side, inputs, found = tiny_model, pixels(tiny_model, 40), collected
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
    x = pixels(tiny_model, 40)
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
