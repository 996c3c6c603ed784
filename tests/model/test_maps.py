"""Contributions of heads, maps over patches, and head statistics, against slow references."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import ccs
from benchmarks.families import plain, sharpen, zeroed
from ccs import Head, HeadSet, InputError, Intervention, Moments
from ccs.model.encoder import Encoder
from ccs.model.encoders.parts import Block
from tests.support import small_architectures
from tests.support.reference_encoder import TOLERANCE, random_pixels, record_layers, reference_parts

CHOSEN = HeadSet.parse("L5.H3 L2.H1 L4.H0 L4.H2")
TEXTS = ["a photo of a dog", "a red house"]


def test_contributions_match_reference(model, monkeypatch):
    """Contributions of some heads come from one pass with the embeddings of ablations."""
    x, ablations = random_pixels(model, 3), [HeadSet.parse("L3.H1"), HeadSet.parse("L5.H0 L2.H2")]
    direct, remainder = model.contributions(x, batch_size=2)
    _, sent, expected_remainder = reference_parts(model, x)
    expected = sent.sum(3)
    np.testing.assert_allclose(direct, expected, atol=TOLERANCE)
    np.testing.assert_allclose(remainder, expected_remainder, atol=TOLERANCE)
    with pytest.raises(InputError, match="below layer 2, where this trunk ends"):
        model.contributions(model.trunk(x))
    units, *ablated_units = (plain(zeroed(model.clip.visual, of), x) for of in (HeadSet(), *ablations))
    layers_run = record_layers(model, monkeypatch)
    for names in (str(CHOSEN), "L0.H1", ""):
        heads = HeadSet.parse(names)
        layers_run.clear()
        embedded, (direct, remainder) = model.embed_with_contributions(x, ablations, heads)
        assert layers_run.count(0) == 1
        np.testing.assert_allclose(embedded, torch.stack(ablated_units), atol=TOLERANCE)
        chosen = expected[:, [head.layer for head in heads], [head.head for head in heads]]
        np.testing.assert_allclose(direct, chosen, atol=TOLERANCE)
        np.testing.assert_allclose(direct.sum(1) + remainder, units, atol=TOLERANCE)
        np.testing.assert_allclose(model.contributions(x, heads, batch_size=2).direct, direct, atol=1e-6)


@pytest.fixture(scope="module")
def statistics(tiny_model):
    return ccs.collect_moments(tiny_model, [random_pixels(tiny_model, 40)])


@pytest.mark.parametrize("encoder", ["L", "T"])
def test_head_statistics_match_full_matrix(tiny_model, statistics, encoder):
    side, inputs = tiny_model, random_pixels(tiny_model, 40)
    if encoder == "T":
        side, inputs = tiny_model.texts, [f"a {'very ' * (i % 4)}odd photo of {i} cats" for i in range(40)]
        statistics = ccs.collect_moments(side, [inputs[:7], inputs[7:]])
    direct = side.contributions(inputs).direct.astype(np.float64)
    matrix = np.stack([direct[:, head.layer, head.head] for head in side.heads])
    basis = np.stack(statistics.basis).astype(np.float64)
    assert (statistics.count, statistics.heads) == (40, side.heads)
    means = np.einsum("hr,hrd->hd", np.stack(statistics.total) / 40, basis)
    np.testing.assert_allclose(means, matrix.mean(1), atol=1e-7)
    second = np.einsum("hrd,hrs,hse->hde", basis, np.stack(statistics.products) / 40, basis)
    np.testing.assert_allclose(second, np.einsum("hnd,hne->hde", matrix, matrix) / 40, atol=1e-8)
    np.testing.assert_allclose(statistics.variance(), matrix.var(1).sum(1), rtol=1e-5)


def test_head_statistics_do_not_depend_on_batches_or_shards(tiny_model, tiny_quick_model, statistics):
    x = random_pixels(tiny_model, 40)
    parts = [x[:1], x[1:1], x[1:20], x[20:]]
    streamed = ccs.collect_moments(tiny_model, iter(parts))
    shards = [ccs.collect_moments(tiny_model, [part]) for part in parts]
    merged = shards[3] + shards[1] + shards[0] + shards[2] + Moments.empty(tiny_model)
    for other in (streamed, merged):
        assert other.count == 40
        np.testing.assert_allclose(other.total, statistics.total, rtol=1e-6, atol=1e-5)
        np.testing.assert_allclose(other.products, statistics.products, rtol=1e-6, atol=1e-5)
    assert shards[0].count == 1  # adding does not change the parts
    for other in (Moments.empty(tiny_quick_model), Moments.empty(tiny_model, HeadSet.parse("L5.H0"))):
        with pytest.raises(InputError, match="different models or heads"):
            _ = statistics + other


def test_maps_match_reference(model):
    x, against = random_pixels(model, 3), ["a cat", "a horse"]
    along = model.embed_texts(TEXTS) - model.embed_texts(against).mean(0)
    attention, sent, _ = reference_parts(model, x)
    layers, heads = [head.layer for head in CHOSEN], [head.head for head in CHOSEN]
    attention = attention[:, layers, heads]
    sent = np.einsum("nhtd,ed->neht", sent[:, layers, heads], along)
    maps = ccs.attention(model, x, str(CHOSEN), batch_size=2)
    np.testing.assert_allclose(maps, attention[..., 1:].reshape(3, 4, 4, 4), atol=1e-6)
    apart = ccs.heatmap(model, x, TEXTS, CHOSEN, against=against, apart=True, batch_size=2)
    np.testing.assert_allclose(apart, sent[..., 1:].reshape(3, 2, 4, 4, 4), atol=1e-6)
    summed = ccs.heatmap(model, model.trunk(x), TEXTS, CHOSEN, against=against)
    np.testing.assert_allclose(summed, apart.sum(2), atol=1e-6)
    assert ccs.heatmap(model, x, TEXTS).shape == (3, 2, 4, 4)
    assert np.ptp(apart, axis=(-1, -2)).min() > 1e-4


READ_ALL_TOKENS = ["ViT-B-16-SigLIP", "PE-Core-B-16", "coca_ViT-B-32", "RN50", "ViTamin-S", "ViT-L-14-CLIPA"]


@pytest.mark.parametrize("name", READ_ALL_TOKENS)
def test_map_matches_contribution_lost_without_token(name):
    visual = small_architectures.build_image_encoder(name)
    sharpen(visual)
    encoder = Encoder(visual)
    x = torch.randn(2, 3, *encoder.image_size, generator=torch.Generator().manual_seed(1))
    along = torch.nn.functional.normalize(torch.randn(3, encoder.dim), dim=-1)
    _, readout = encoder.embed_and_read(x, entering=True)
    for number, layer in enumerate(encoder.layers):
        tokens, head = readout.entering[number], layer.n_heads - 1
        only = HeadSet([Head(number, head)])
        (sent,) = encoder.by_token(readout, only, along)
        normed, part = layer.norm(tokens), slice(head * layer.head_dim, (head + 1) * layer.head_dim)
        contribution = encoder.contributions(readout, only)[0][:, 0] @ along.T
        spread = contribution - sent.sum(-1)
        np.testing.assert_allclose(spread, torch.zeros_like(spread), atol=1e-6)
        lost = []
        for token in range(1, 4):
            values = readout.values[number].clone()
            if isinstance(layer, Block):
                q, k, v = layer.queries_keys_values(normed)
                scores = q[:, head] @ k[:, head].transpose(1, 2) * layer.head_dim**-0.5
                removed = scores.softmax(-1)[:, :, token][..., None] * v[:, head, token, None]
                removed = encoder._readout.pool_tokens(removed)
            else:
                weight, bias = layer.separate_projections()[2]
                v = torch.nn.functional.linear(normed, weight, bias)[:, token, part]
                removed = (layer.attention_weights(tokens)[:, head, token, None] * v)[:, None]
            values[..., part] -= removed
            changed_readout = replace(readout, values={**readout.values, number: values})
            lost.append(contribution - encoder.contributions(changed_readout, only)[0][:, 0] @ along.T)
        maps, expected = sent[..., 1:4], torch.stack(lost, -1)
        # The rest of a contribution is spread evenly, so only differences between tokens are compared.
        np.testing.assert_allclose(maps - maps[..., :1], expected - expected[..., :1], atol=1e-6)
        assert float((maps - maps[..., :1]).abs().max()) > 1e-6


def test_maps_of_unknown_and_ablated_heads(tiny_model, tiny_folder):
    x = random_pixels(tiny_model, 1)
    for heads, message in {"L9.H0": "outside this model", "": "Expected at least one head"}.items():
        with pytest.raises(InputError, match=message):
            ccs.attention(tiny_model, x, heads)
    assert ccs.heatmap(tiny_model, x, []).shape == (1, 0, 4, 4)
    by_name = ccs.attention(str(tiny_folder), x, ["L5.H1"], ablate="L4.H0")
    ablated, plain = (ccs.attention(tiny_model, x, "L5.H1", ablate=heads) for heads in ("L4.H0", None))
    np.testing.assert_array_equal(by_name, ablated)
    assert np.abs(ablated - plain).max() > 1e-4


@pytest.mark.parametrize("name", ["ViT-B-16-SigLIP", "EVA02-B-16", "ViT-L-14-CLIPA"])
def test_maps_of_edited_heads_sum_to_contributions(name):
    encoder = Encoder(small_architectures.build_image_encoder(name))
    x, along = torch.randn(2, 3, *encoder.image_size), torch.randn(3, encoder.dim)
    edit = torch.randn(encoder.head_dim + 1, encoder.head_dim)
    block, pool = (HeadSet([Head(layer - 1, 1)]) for layer in (encoder._n_blocks, encoder.n_layers))

    def edited(heads):
        edits = Intervention(dict.fromkeys(heads, "erase:kind"), {"erase:kind": dict.fromkeys(heads, edit)})
        changed = encoder.ablated(edits)
        readout = changed.embed_and_read(x, entering=True)[1]
        return changed, readout, changed.contributions(readout, block)[0] @ along.T

    changed, readout, expected = edited(block)
    (sent,) = changed.by_token(readout, block, along)
    np.testing.assert_allclose(sent.sum(-1), expected[:, 0], atol=1e-5)
    assert not np.allclose(expected, edited(HeadSet())[2])
    if pool != block:
        with pytest.raises(InputError, match="edited heads of a pool"):
            edited(pool)
