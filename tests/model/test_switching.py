"""Heads switched off in users' own models, against the forward pass that zeroes their outputs."""

from __future__ import annotations

from collections.abc import Callable
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
from tests.support.checkpoint import write_clip, write_siglip

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


@pytest.mark.parametrize("write", [write_clip, write_siglip])
def test_transformers_models(write: Callable[[Path], Any], tmp_path: Path) -> None:
    """SigLIP's third layer of heads is its pool."""
    module = write(tmp_path)
    pooled = write is write_siglip
    off = OFF | HeadSet.parse("L2.H2") if pooled else OFF
    before, images = bits(module), pixels(32)
    with torch.no_grad(), ccs.heads_off(module, off):
        features = module.get_image_features(images)
        seen = unit(getattr(features, "pooler_output", features))
    np.testing.assert_allclose(seen, ccs.load(str(tmp_path)).embed_images(images, off), atol=TOLERANCE)
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


def test_what_has_no_heads_of_an_image_tower_is_refused() -> None:
    from transformers import CLIPTextConfig, CLIPTextModel

    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
    texts = CLIPTextModel(CLIPTextConfig(**small))
    for model, why in ((texts, "not built like CLIP's"), ("ViT-B-32/openai", "takes a model, not its name")):
        with pytest.raises(ccs.InputError, match=why), ccs.heads_off(model, "L0.H1"):
            pass
