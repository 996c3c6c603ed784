"""Contributions of heads against a slow reference that spells out every share."""

from __future__ import annotations

import numpy as np
import pytest
from torch import Tensor

from benchmarks.towers import plain, zeroed
from ccs import HeadSet, InputError
from ccs.model.model import Model
from tests.support.towers import TOLERANCE, count_layers, pixels, plain_parts


def reference(model: Model, x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Contributions [n, L, H, D] from every source token, and the remainder [n, D]."""
    _, sent, rest = plain_parts(model, x)
    return sent.sum(3), rest


def test_contributions_are_those_of_the_reference(model: Model) -> None:
    x = pixels(model, 3)
    direct, remainder = model.contributions(x, batch_size=2)
    expected, rest = reference(model, x)
    assert direct.shape == (3, model.n_layers, model.n_heads, model.dim)
    np.testing.assert_allclose(direct, expected, atol=TOLERANCE)
    np.testing.assert_allclose(remainder, rest, atol=TOLERANCE)
    np.testing.assert_allclose(direct.sum((1, 2)) + remainder, model.embed_images(x), atol=TOLERANCE)


@pytest.mark.parametrize("names", ["L5.H3 L2.H1 L4.H0 L4.H2", "L0.H1", ""])
def test_chosen_heads_and_embeddings_come_from_one_pass(
    model: Model, names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, heads = pixels(model, 3), HeadSet.parse(names)
    expected, _ = reference(model, x)
    chosen = [expected[:, head.layer, head.head] for head in heads]
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


def test_contributions_of_a_trunk(model: Model) -> None:
    x, heads = pixels(model, 3), HeadSet.parse("L2.H1 L5.H0")
    expected, _ = reference(model, x)
    direct = model.contributions(model.trunk(x), heads, batch_size=2).direct
    np.testing.assert_allclose(direct, expected[:, [2, 5], [1, 0]], atol=TOLERANCE)
    for below in (HeadSet.parse("L1.H0"), None):
        with pytest.raises(InputError, match="below layer 2, where this trunk ends"):
            model.contributions(model.trunk(x), below)
