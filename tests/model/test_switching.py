"""Heads switched off in users' own models, against the forward pass that zeroes their outputs."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from torch import Tensor, nn

import ccs
from ccs import HeadSet
from ccs.model.model import Model
from tests.support.checkpoint import tiny_siglip, write_clip

OFF = HeadSet.parse("L0.H1 L1.H0 L1.H3")
TOLERANCE = 1e-6


def unit(features: Tensor) -> Any:
    return nn.functional.normalize(features, dim=-1).numpy()


def bits(model: nn.Module) -> dict[str, Tensor]:
    return {name: values.clone() for name, values in model.state_dict().items()}


def unchanged(model: nn.Module, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(values, before[name]) for name, values in model.state_dict().items())


def pixels(size: int) -> Tensor:
    return torch.randn(3, 3, size, size, generator=torch.Generator().manual_seed(1))


def test_open_clips_own_model_in_nested_blocks(tiny_folder: Path, tiny_model: Model) -> None:
    module = open_clip.create_model(f"local-dir:{tiny_folder}").eval()
    before, images = bits(module), pixels(32)
    with torch.no_grad(), ccs.heads_off(module, "L1.H3 L0.H1"), ccs.heads_off(module, "L1.H3, L1.H0") as off:
        seen = unit(module.encode_image(images))
    assert off == HeadSet.parse("L1.H0 L1.H3")
    np.testing.assert_allclose(seen, tiny_model.embed_images(images, OFF), atol=TOLERANCE)
    assert np.abs(seen - tiny_model.embed_images(images)).max() > 1e-3
    assert unchanged(module, before)


def test_a_clip_of_transformers(tmp_path: Path) -> None:
    module = write_clip(tmp_path)
    before, images = bits(module), pixels(32)
    with torch.no_grad(), ccs.heads_off(module, OFF):
        features = module.get_image_features(images)
        seen = unit(getattr(features, "pooler_output", features))
    np.testing.assert_allclose(seen, ccs.load(str(tmp_path)).embed_images(images, OFF), atol=TOLERANCE)
    assert unchanged(module, before)


def test_a_siglip_of_transformers() -> None:
    """Its third layer of heads is its pool. Against a copy with the heads' columns at zero."""
    module = tiny_siglip()
    before, images, copy = bits(module), pixels(32), deepcopy(module)
    layers = copy.vision_model.encoder.layers
    layers[0].self_attn.out_proj.weight.data[:, 8:16] = 0
    copy.vision_model.head.attention.out_proj.weight.data[:, 16:24] = 0
    with torch.no_grad():
        with ccs.heads_off(module, "L0.H1 L2.H2"):
            seen = module.vision_model(images).pooler_output
        assert torch.equal(seen, copy.vision_model(images).pooler_output)
        assert not torch.allclose(seen, module.vision_model(images).pooler_output, atol=1e-3)
    assert unchanged(module, before)


def test_vision_towers_of_transformers_alone(tmp_path: Path) -> None:
    from transformers import CLIPVisionModel, CLIPVisionModelWithProjection

    module = write_clip(tmp_path)
    images = pixels(32)
    config = module.vision_model.config
    config.projection_dim = module.config.projection_dim
    tower, plain = CLIPVisionModelWithProjection(config).eval(), CLIPVisionModel(config).eval()
    tower.load_state_dict(module.state_dict(), strict=False)
    plain.load_state_dict(module.vision_model.state_dict())
    with torch.no_grad(), ccs.heads_off(tower, OFF), ccs.heads_off(plain, OFF):
        seen = tower(images).image_embeds
        read = module.visual_projection(plain(images).pooler_output)
    expected = ccs.load(str(tmp_path)).embed_images(images, OFF)
    np.testing.assert_allclose(unit(seen), expected, atol=TOLERANCE)
    np.testing.assert_allclose(unit(read), expected, atol=TOLERANCE)


def test_an_exception_inside_leaves_no_trace(tiny_folder: Path) -> None:
    module = open_clip.create_model(f"local-dir:{tiny_folder}")
    before = bits(module)
    with pytest.raises(ZeroDivisionError), ccs.heads_off(module, "L5.H0"):
        raise ZeroDivisionError
    assert unchanged(module, before)
