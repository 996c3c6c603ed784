"""Contributions of heads against a slow reference that spells out every share."""

import numpy as np
import pytest

from benchmarks.towers import plain, zeroed
from ccs import HeadSet, InputError
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
