"""An encoder of a family from outside: registered with a check, then used as any other."""

import numpy as np
import pytest
import torch
from timm.models import vision_transformer
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from torch.nn import functional as F

import ccs
from benchmarks.families import plain, zeroed
from ccs import HeadSet, InputError
from ccs.model import encoders
from ccs.model.encoders.parts import Block
from ccs.model.encoders.readouts import Linear, OneNorm, Parts
from ccs.model.export import export
from tests.support.tiny_model import shake

HEADS = HeadSet.parse("L0.H1 L1.H0")
DIM = 24  # of the tiny model


class SmallViT(nn.Module):
    """A Vision Transformer where this package doesn't look for it; it reads the mean of all tokens."""

    def __init__(self):
        super().__init__()
        sizes = {"img_size": 24, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4}
        self.vit = VisionTransformer(**sizes, num_classes=DIM, class_token=False, global_pool="avg")

    def forward(self, pixels):
        return self.vit(pixels)


def decompose_block(layer):
    return Block(
        module=layer.attn,
        n_heads=4,
        head_dim=8,
        projections=lambda: [(layer.attn.qkv.weight, layer.attn.qkv.bias)],
        norm=layer.norm1,
        projection=layer.attn.proj,
        mlp=lambda x: layer.mlp(layer.norm2(x)),
        scale=lambda: None,
    )


def decompose(module):
    vit = module.vit
    linear = Linear(lambda: vit.head.weight.T, lambda: vit.head.bias)
    return Parts(
        stem=lambda pixels: vit.patch_embed(pixels) + vit.pos_embed,
        blocks=[decompose_block(layer) for layer in vit.blocks],
        readout=OneNorm(vit.fc_norm, linear, len(vit.blocks), prefix=0),
        tokens=9,
        prefix=0,
        image_size=(24, 24),
    )


def is_small_vit(module):
    return isinstance(module, SmallViT)


@pytest.fixture
def vit(monkeypatch):
    monkeypatch.setattr(encoders, "REGISTERED", [])
    monkeypatch.setattr("ccs.model.external.REGISTERED", encoders.REGISTERED)
    module = SmallViT().eval()
    shake(module, 0)
    return module


def test_a_registered_encoder_is_one_like_any_other(vit, tiny_folder, tmp_path):
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


def test_a_wrong_decomposition_is_refused(vit):
    def without_mlps(module):
        parts = decompose(module)
        blocks = [Block(**{**block.__dict__, "mlp": torch.zeros_like}) for block in parts.blocks]
        return Parts(**{**parts.__dict__, "blocks": blocks})

    with pytest.raises(InputError, match="decomposition of SmallViT isn't exact: `embedding` differs by"):
        ccs.register_encoder(is_small_vit, without_mlps, vit)
    with pytest.raises(InputError, match="`matches` returns False"):
        ccs.register_encoder(lambda module: False, decompose, vit)
    assert not encoders.REGISTERED


def test_a_projection_that_is_never_called_is_reported(vit, monkeypatch):
    """Heads can still be ablated in a `Model`, whose forward pass is this package's."""

    def forward(self, x, **_):
        parts = (part.unflatten(-1, (self.num_heads, -1)) for part in self.qkv(x).chunk(3, -1))
        values = F.scaled_dot_product_attention(*(part.transpose(1, 2) for part in parts))
        return F.linear(values.transpose(1, 2).flatten(2), self.proj.weight, self.proj.bias)

    monkeypatch.setattr(vision_transformer.Attention, "forward", forward)
    check = ccs.register_encoder(is_small_vit, decompose, vit)
    assert check.in_module is None
    assert check.ablation <= 1e-6
