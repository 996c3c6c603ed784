"""Encoders inside vision-language models, and registered families of encoders."""

import numpy as np
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch.nn import functional as F

import ccs
from benchmarks.families import plain, zeroed
from ccs import HeadSet, InputError, results
from ccs.batch import heads as heads_command
from ccs.model import encoders
from ccs.model.encoders.parts import Block, heads_of
from ccs.model.encoders.readouts import Linear, OneNorm, Parts
from ccs.model.export import export
from tests.support import vision_language_models as vlms
from tests.support.checkpoint import write_clip, write_siglip
from tests.support.compute_sample import run_compute, write_small_pool
from tests.support.tiny_model import randomize_weights

HEADS = HeadSet.parse("L0.H1 L1.H0")


class SmallViT(VisionTransformer):
    """A Vision Transformer of an unknown class, which pools the mean of all tokens."""

    def __init__(self):
        sizes = {"img_size": 24, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4}
        super().__init__(**sizes, num_classes=24, class_token=False, global_pool="avg")


def decompose_block(layer):
    return Block(
        **heads_of(layer.attn),
        projections=lambda: [(layer.attn.qkv.weight, layer.attn.qkv.bias)],
        norm=layer.norm1,
        mlp=lambda x: layer.mlp(layer.norm2(x)),
        scale=lambda: None,
    )


def decompose(vit):
    linear = Linear(lambda: vit.head.weight.T, lambda: vit.head.bias)
    sizes = {"tokens": 9, "prefix": 0, "image_size": (24, 24)}
    return Parts(
        stem=lambda pixels: vit.patch_embed(pixels) + vit.pos_embed,
        blocks=[decompose_block(layer) for layer in vit.blocks],
        readout=OneNorm(vit.fc_norm, linear, len(vit.blocks), prefix=0),
        **sizes,
    )


def is_small_vit(module):
    return isinstance(module, SmallViT)


@pytest.fixture
def vit(monkeypatch):
    monkeypatch.setattr(encoders, "REGISTERED", [])
    monkeypatch.setattr("ccs.model.external.REGISTERED", encoders.REGISTERED)
    module = SmallViT().eval()
    randomize_weights(module, 0)
    return module


def test_registered_encoder_supports_all_functions(vit, tiny_folder, tmp_path):
    check = ccs.register_encoder(is_small_vit, decompose, vit)
    assert max(check.embedding, check.ablation, check.contributions, check.in_module) <= 1e-6
    pixels = torch.randn(3, 3, 24, 24)
    expected = plain(zeroed(vit, HEADS), pixels)
    with ccs.ablate(vit, HEADS):
        np.testing.assert_allclose(plain(vit, pixels), expected, atol=1e-6)
    model = ccs.extract_image_encoder(vit, str(tiny_folder))
    np.testing.assert_allclose(model.embed_images(pixels, HEADS), expected, atol=1e-6)
    direct, remainder = model.contributions(pixels)
    np.testing.assert_allclose(direct.sum((1, 2)) + remainder, model.embed_images(pixels), atol=1e-6)
    assert ccs.heatmap(model, pixels, ["a dog"]).shape == (3, 1, 3, 3)
    with pytest.raises(InputError, match="SmallViT is a registered encoder, which open_clip can't build"):
        export(model, HEADS, tmp_path / "out")
    with pytest.raises(InputError, match=r"24 dimensions don't fit texts of 160"):
        ccs.extract_image_encoder(vit, "organism")


def test_inexact_decomposition_is_rejected(vit):
    def without_mlps(module):
        parts = decompose(module)
        blocks = [Block(**{**block.__dict__, "mlp": torch.zeros_like}) for block in parts.blocks]
        return Parts(**{**parts.__dict__, "blocks": blocks})

    with pytest.raises(InputError, match="decomposition of SmallViT isn't exact: `embedding` differs by"):
        ccs.register_encoder(is_small_vit, without_mlps, vit)
    with pytest.raises(InputError, match="`matches` returns False"):
        ccs.register_encoder(lambda module: False, decompose, vit)
    assert not encoders.REGISTERED


@pytest.mark.parametrize("write", [write_clip, write_siglip])
def test_encoder_extracted_from_vlm_matches_clip(write, tmp_path):
    """A CLIP's encoder in a LLaVA, and a SigLIP's in a PaliGemma."""
    module = write(tmp_path)
    vlm = vlms.wrap_image_encoder(module.vision_model)
    expected = ccs.load(str(tmp_path))
    extracted = ccs.extract_image_encoder(vlm, str(tmp_path))
    assert extracted.weights_hash == expected.weights_hash
    x, texts = torch.randn(3, 3, 32, 32), ["a photo of a cat", "a cat"]
    np.testing.assert_array_equal(extracted.embed_images(x, HEADS), expected.embed_images(x, HEADS))
    np.testing.assert_array_equal(extracted.embed_texts(texts), expected.embed_texts(texts))
    module.vision_model.encoder.layers[1].self_attn.out_proj.weight.data += 0.1
    retrained = vlms.wrap_image_encoder(module.vision_model)
    with pytest.warns(UserWarning, match="was trained further"):
        extracted = ccs.extract_image_encoder(retrained, str(tmp_path))
    with torch.no_grad():
        expected_units = F.normalize(module.get_image_features(x).pooler_output)
    np.testing.assert_allclose(extracted.embed_images(x), expected_units, atol=1e-6)
    with pytest.raises(InputError, match="is not built like organism's"):
        ccs.extract_image_encoder(vlm, "organism")


def test_commands_accept_vlm_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # no retries
    vlms.wrap_image_encoder(write_clip(tmp_path).vision_model).save_pretrained(tmp_path / "vlm")
    weights = ccs.load(str(tmp_path)).weights_hash
    assert ccs.extract_image_encoder(str(tmp_path / "vlm"), str(tmp_path)).weights_hash == weights
    with pytest.raises(InputError, match="'no-such' can't be loaded as a vision-language model"):
        ccs.extract_image_encoder("no-such", str(tmp_path))
    options = ["--max-images", "4", "--texts", str(write_small_pool(tmp_path)), "--device", "cpu"]
    options += ["--model", str(tmp_path / "vlm"), "--text-encoder", str(tmp_path)]
    assert heads_command.main(["a red cat", *options]) == 0
    assert heads_command.main(["a red cat", *options[:-1], "no-such"]) == 2
    out = tmp_path / "results"
    settings = ["--out", str(out), "--layers", "0,1", "--suite", "none", "--workers", "0"]
    assert run_compute([*options, *settings]) == 0
    manifest = results.read_manifest(next(out.glob("vlm*")))
    assert manifest["model"]["weights_hash"] == weights
    assert manifest["settings"]["text_encoder"] == str(tmp_path)
