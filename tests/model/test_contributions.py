"""Contributions of heads against a slow reference that spells out every share."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.towers import plain, zeroed
from ccs import HeadSet, InputError
from ccs.model.model import Model
from tests.support.towers import TOLERANCE, count_layers, pixels


def reference_contributions(model: Model, x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Contributions one head at a time, in float64, from every source token, with all shares spelled out."""
    visual = copy.deepcopy(model.clip.visual).double()
    n_layers, n_heads, d = model.n_layers, model.n_heads, model.head_dim
    terms = 2 * n_layers + 1
    direct = np.zeros((len(x), n_layers, n_heads, model.dim))
    rest = np.zeros((len(x), model.dim))
    with torch.no_grad():
        for i in range(len(x)):
            stream = visual._embeds(x[i : i + 1].double())[0]  # [T, W]
            others = [stream[0]]
            heads = []
            for block in visual.transformer.resblocks:
                y = block.ln_1(stream)
                q, k, v = (y @ block.attn.in_proj_weight.T + block.attn.in_proj_bias).chunk(3, -1)
                out = torch.zeros_like(stream)
                for h in range(n_heads):
                    part = slice(h * d, (h + 1) * d)
                    attention = (q[:, part] @ k[:, part].T / d**0.5).softmax(-1)
                    tokens = torch.einsum("ts,sd->tsd", attention, v[:, part])
                    by_token = tokens @ block.attn.out_proj.weight[:, part].T
                    written = by_token.sum(1) + block.attn.out_proj.bias / n_heads
                    heads.append(written[0])
                    out += written
                stream = stream + out
                mlp = block.mlp(block.ln_2(stream))
                others.append(mlp[0])
                stream = stream + mlp
            length = (visual.ln_post(stream[0]) @ visual.proj).norm()
            for index, term in enumerate(heads):
                effect = _normed_share(visual, term, stream[0], terms * n_heads) / length
                direct[i, index // n_heads, index % n_heads] = effect
            rest[i] = sum(_normed_share(visual, term, stream[0], terms) / length for term in others)
    return direct, rest


def _normed_share(visual: Any, term: Tensor, cls: Tensor, share: int) -> Tensor:
    """One term of the CLS state through ln_post, with one part in `share` of its mean and bias, projected."""
    std = (cls.var(correction=0) + visual.ln_post.eps).sqrt()
    normed = (term - cls.mean() / share) / std * visual.ln_post.weight + visual.ln_post.bias / share
    projected: Tensor = normed @ visual.proj
    return projected


def test_contributions_are_those_of_the_reference(model: Model) -> None:
    x = pixels(model, 3)
    direct, remainder = model.contributions(x, batch_size=2)
    expected, rest = reference_contributions(model, x)
    assert direct.shape == (3, model.n_layers, model.n_heads, model.dim)
    np.testing.assert_allclose(direct, expected, atol=TOLERANCE)
    np.testing.assert_allclose(remainder, rest, atol=TOLERANCE)
    np.testing.assert_allclose(direct.sum((1, 2)) + remainder, model.embed_images(x), atol=TOLERANCE)


@pytest.mark.parametrize("names", ["L5.H3 L2.H1 L4.H0 L4.H2", "L0.H1", ""])
def test_chosen_heads_and_embeddings_come_from_one_pass(
    model: Model, names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, heads = pixels(model, 3), HeadSet.parse(names)
    expected, _ = reference_contributions(model, x)
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
    expected, _ = reference_contributions(model, x)
    direct = model.contributions(model.trunk(x), heads, batch_size=2).direct
    np.testing.assert_allclose(direct, expected[:, [2, 5], [1, 0]], atol=TOLERANCE)
    for below in (HeadSet.parse("L1.H0"), None):
        with pytest.raises(InputError, match="below layer 2, where this trunk ends"):
            model.contributions(model.trunk(x), below)
