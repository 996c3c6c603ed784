"""The encoder against open_clip's forward pass with columns of `out_proj` zeroed."""

import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import ccs
from benchmarks.families import plain, zeroed
from ccs import Head, HeadSet, InputError, Intervention
from ccs.model.encoder import Encoder
from tests.support.reference_encoder import TOLERANCE, random_pixels, record_layers, reference_pass
from tests.support.tiny_model import write_tiny_model

ABLATIONS = ("", "L2.H1", "L2.H3 L4.H0 L4.H1", "L3.H2 L5.H0 L5.H1 L5.H3")


def test_heads_are_of_last_four_or_chosen_layers(tiny_folder, tiny_model):
    assert tiny_model.heads == HeadSet(Head(i, j) for i in range(2, 6) for j in range(4))
    assert len(ccs.load(str(tiny_folder), layers="all").heads) == 24
    model = ccs.load(str(tiny_folder), layers=[1, 4])
    assert model.heads == HeadSet(Head(i, j) for i in (1, 4) for j in range(4))
    assert model.trunk(random_pixels(model, 1)).layer == 1
    for layers in ([6], []):
        with pytest.raises(InputError, match="but must be some of 0 to 5, or all"):
            ccs.load(str(tiny_folder), layers=layers)


def test_ablations_share_layers_until_they_differ(tiny_model, monkeypatch):
    layers_run = record_layers(tiny_model, monkeypatch)
    texts = ["L4.H0", "L4.H0 L5.H1", "L4.H0 L5.H2", "L3.H1", "", ""]
    tiny_model.embed_images(random_pixels(tiny_model, 2), [HeadSet.parse(text) for text in texts])
    assert [layers_run.count(layer) for layer in range(6)] == [1, 1, 1, 2, 3, 5]


def test_trunk_serves_all_ablations(model):
    x = random_pixels(model, 5)
    ablations = [HeadSet.parse(heads) for heads in ABLATIONS]
    trunk = model.trunk(x, batch_size=2)
    assert (trunk.layer, len(trunk)) == (2, 5)
    units = model.embed_images(trunk, ablations, batch_size=3)
    np.testing.assert_allclose(units, model.embed_images(x, ablations), atol=1e-6)
    np.testing.assert_allclose(model.embed_images(trunk), plain(model.clip.visual, x), atol=TOLERANCE)
    with pytest.raises(InputError, match="Layer 1 lies below layer 2"):
        model.embed_images(trunk, HeadSet.parse("L1.H0"))
    assert model.embed_images(model.trunk(x[:0]), ablations).shape == (4, 0, model.dim)


@pytest.mark.parametrize("shares", [[1 / 6] * 6, [1 / 3, 1 / 9, 1 / 9, 1 / 9, 1 / 6, 1 / 6]])
def test_mean_ablation_matches_replaced_outputs(model, shares):
    x, changed = random_pixels(model, 6), Intervention.parse("L2.H1=mean L3.H2=0.4 L5.H0=mean")
    visual, means = model.clip.visual, model.at_means(changed, x, np.array(shares))
    units = model.embed_images(x, means)
    with ccs.ablate(model.clip, means):
        np.testing.assert_allclose(plain(visual, x), units, atol=1e-6)
    tokens = model.encoder.trunk(x, 0).tokens
    _, outputs_by_layer = reference_pass(visual, tokens)

    def replace(layer, outputs):
        for head in changed.of_layer(layer):
            mean = torch.einsum("n,ntd->td", torch.tensor(shares), outputs_by_layer[layer][head.head])
            outputs[head.head] = 0.4 * outputs[head.head] if layer == 3 else mean.expand(6, -1, -1)

    expected, _ = reference_pass(visual, tokens, replace)
    np.testing.assert_allclose(units, expected.detach(), atol=1e-6)
    assert np.abs(units - model.embed_images(x)).max() > 1e-4


def test_mean_ablation_needs_inputs(model):
    x = random_pixels(model, 2)
    for text, message in {"L2.H1=mean": "needs images", "L2.H9=0.5": "outside this model"}.items():
        with pytest.raises(InputError, match=message):
            model.embed_images(x, Intervention.parse(text))
    with pytest.raises(InputError, match="at least one image or text"):
        model.at_means("L2.H1=mean", x[:0])
    text_mean = model.texts.at_means("T1.H1=mean", ["a dog", "two cats at a house"])
    assert model.embed_texts(["a dog"], ablate=text_mean).shape == (1, model.dim)


def test_threads_with_different_ablations_do_not_interfere(tiny_model):
    x, ablations = random_pixels(tiny_model, 4), [HeadSet.parse(heads) for heads in ABLATIONS]

    def embed_repeatedly(heads):
        return [tiny_model.embed_images(x, heads) for _ in range(10)]

    with ThreadPoolExecutor(len(ablations)) as pool:
        for heads, units in zip(ablations, pool.map(embed_repeatedly, ablations), strict=True):
            expected = plain(zeroed(tiny_model.clip.visual, heads), x)
            np.testing.assert_allclose(units, [expected] * 10, atol=TOLERANCE)


def test_unsupported_modules_are_rejected(tiny_model, tmp_path):
    visual = copy.deepcopy(tiny_model.clip.visual)
    visual.pool_type = "none"
    with pytest.raises(InputError, match="pooling is 'none'"):
        Encoder(visual)
    visual.transformer.resblocks[1].attn.ln_q = torch.nn.LayerNorm(8)  # as in open_clip 4
    with pytest.raises(InputError, match="because its MultiheadAttention norms or scales its heads"):
        Encoder(visual)
    with pytest.raises(InputError, match="Linear can't be decomposed by head because it isn't built of"):
        Encoder(torch.nn.Linear(2, 2))
    with pytest.raises(InputError, match="custom ones"):
        ccs.load(str(write_tiny_model(tmp_path, qk_norm=True)))
