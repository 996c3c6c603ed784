"""Maps over patches against slow references: one head, one sending token at a time."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

import ccs
from benchmarks.towers import sharpen
from ccs import Head, HeadSet, InputError, Intervention
from ccs.model.tower import ImageTower
from ccs.model.towers.parts import Block
from tests.support import shrunk
from tests.support.towers import pixels, plain_parts

CHOSEN = HeadSet.parse("L5.H3 L2.H1 L4.H0 L4.H2")
TEXTS = ["a photo of a dog", "a red house"]


def test_maps_are_those_of_the_reference(model):
    x, side = pixels(model, 3), ccs.attention(model, pixels(model, 1)).shape[-1]
    against = ["a cat", "a horse"]
    along = model.embed_texts(TEXTS) - model.embed_texts(against).mean(0)
    looks, sent, _ = plain_parts(model, x)
    layers, heads = [head.layer for head in CHOSEN], [head.head for head in CHOSEN]
    looks = looks[:, layers, heads]
    sent = np.einsum("nhtd,ed->neht", sent[:, layers, heads], along)
    shape = (side, side)
    found = ccs.attention(model, x, str(CHOSEN), batch_size=2)
    np.testing.assert_allclose(found, looks[..., 1:].reshape(3, 4, *shape), atol=1e-6)
    apart = ccs.heatmap(model, x, TEXTS, CHOSEN, against=against, apart=True, batch_size=2)
    np.testing.assert_allclose(apart, sent[..., 1:].reshape(3, 2, 4, *shape), atol=1e-6)
    summed = ccs.heatmap(model, model.trunk(x), TEXTS, CHOSEN, against=against)
    np.testing.assert_allclose(summed, apart.sum(2), atol=1e-6)
    assert ccs.heatmap(model, x, TEXTS).shape == (3, 2, *shape)
    assert np.ptp(apart, axis=(-1, -2)).min() > 1e-4


def test_maps_with_heads_off_or_scaled_are_those_of_scaled_weights(model):
    x, off = pixels(model, 3), Intervention.parse("L2.H1=0.3 L4.H3 L4.H0")
    other = copy.copy(model)
    other.tower = ImageTower(copy.deepcopy(model.clip.visual))
    with torch.no_grad():
        for head in off:
            weight, d = other.tower.layers[head.layer].projection.weight, model.head_dim
            weight[:, head.head * d : head.head * d + d] *= off[head].factor
    found = ccs.heatmap(model, x, TEXTS, CHOSEN, apart=True, off=off)
    slow = ccs.heatmap(other, x, TEXTS, CHOSEN, apart=True)
    # A head's share of biases, the same on every patch, is scaled here and not there.
    apart = found - slow
    np.testing.assert_allclose(apart - apart.mean((-1, -2), keepdims=True), 0, atol=1e-6)
    same = [number for number, head in enumerate(CHOSEN) if head not in off]
    np.testing.assert_allclose(found[:, :, same], slow[:, :, same], atol=1e-6)
    assert not found[:, :, list(CHOSEN).index(Head(4, 0))].any()
    assert np.abs(found - ccs.heatmap(model, x, TEXTS, CHOSEN, apart=True)).max() > 1e-4


@pytest.mark.parametrize(
    "name", ["ViT-B-16-SigLIP", "PE-Core-B-16", "coca_ViT-B-32", "RN50", "ViTamin-S", "ViT-L-14-CLIPA"]
)
def test_a_token_sends_what_is_missing_without_its_values(name):
    """Where all tokens are read: a contribution changes by just that when these are taken out."""
    visual = shrunk.tower(name)
    sharpen(visual)
    tower = ImageTower(visual)
    x = torch.randn(2, 3, *tower.image_size, generator=torch.Generator().manual_seed(1))
    along = torch.nn.functional.normalize(torch.randn(3, tower.dim), dim=-1)
    _, readout = tower.embed_and_read(x, entering=True)
    for number, layer in enumerate(tower.layers):
        tokens, head = readout.entering[number], layer.n_heads - 1
        only = HeadSet([Head(number, head)])
        (sent,) = tower.by_token(readout, only, along)
        normed, part = layer.norm(tokens), slice(head * layer.head_dim, (head + 1) * layer.head_dim)
        whole = tower.contributions(readout, only)[0][:, 0] @ along.T
        spread = whole - sent.sum(-1)
        np.testing.assert_allclose(spread, torch.zeros_like(spread), atol=1e-6)
        moved = []
        for token in range(1, 4):
            values = readout.values[number].clone()
            if isinstance(layer, Block):
                q, k, v = layer.heads._qkv(normed)
                scores = q[:, head] @ k[:, head].transpose(1, 2) * layer.head_dim**-0.5
                attended = scores.softmax(-1)[:, :, token]
                gone = attended[..., None] * v[:, head, token, None]
                gone = tower._readout.gather(gone)
            else:
                weight, bias = layer.value()
                v = torch.nn.functional.linear(normed, weight, bias)[:, token, part]
                gone = (layer.attention(tokens)[:, head, token, None] * v)[:, None]
            values[..., part] -= gone
            without = replace(readout, values={**readout.values, number: values})
            moved.append(whole - tower.contributions(without, only)[0][:, 0] @ along.T)
        found, expected = sent[..., 1:4], torch.stack(moved, -1)
        # What no token sent is spread evenly, so tokens differ by what they sent.
        np.testing.assert_allclose(found - found[..., :1], expected - expected[..., :1], atol=1e-6)
        assert float((found - found[..., :1]).abs().max()) > 1e-6


@pytest.mark.parametrize("name", ["EVA02-E-14", "EVA02-B-16"])  # norms after and inside attention
@pytest.mark.parametrize("off", ["L2.H0", "L2.H0=0.3"])
def test_tokens_send_a_heads_contribution_while_others_are_off(name, off):
    visual = shrunk.tower(name)
    sharpen(visual)
    tower = ImageTower(visual)
    x = torch.randn(2, 3, *tower.image_size, generator=torch.Generator().manual_seed(1))
    along, head = torch.eye(tower.dim), HeadSet.parse("L2.H1")
    tower = tower.without(Intervention.parse(off))
    _, readout = tower.embed_and_read(x, entering=True)
    (sent,) = tower.by_token(readout, head, along)
    np.testing.assert_allclose(sent.sum(-1), tower.contributions(readout, head)[0][:, 0], atol=1e-6)


def test_what_has_no_map_is_said(tiny_model):
    x = pixels(tiny_model, 1)
    for heads, message in {"L9.H0": "outside this model", "": "No head is named"}.items():
        with pytest.raises(InputError, match=message):
            ccs.attention(tiny_model, x, heads)
    with pytest.raises(InputError, match="below layer 2"):
        ccs.heatmap(tiny_model, tiny_model.trunk(x), TEXTS, "L1.H0")
    with pytest.raises(InputError, match="must be given as a list"):
        ccs.heatmap(tiny_model, x, "a dog")
