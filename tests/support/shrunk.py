"""Every architecture of open_clip with few, narrow layers: the same modules, random weights."""

from __future__ import annotations

from typing import Any
from unittest import mock

import open_clip
import timm
import torch
from open_clip.model import _build_vision_tower
from torch import nn

from tests.support.tiny_model import shake

WIDTH, HEADS, SIDE = 32, 4, 32


def vision_config(name: str) -> dict[str, Any]:
    """open_clip's configuration of the image tower, made small; `embed_dim` among it."""
    config = open_clip.get_model_config(name)
    vision = dict(config["vision_cfg"])
    if vision.get("timm_model_name"):
        return vision
    if isinstance(vision["layers"], list):
        return vision | {"layers": [1, 1, 1, 1], "width": 8, "head_width": 64, "image_size": 64}
    small = {"layers": 3, "width": WIDTH, "head_width": WIDTH // HEADS, "patch_size": 8, "image_size": SIDE}
    return vision | small | {"attn_pooler_queries": 3, "attn_pooler_heads": 2}


def tower(name: str, seed: int = 0, shaken: bool = True) -> nn.Module:
    """The architecture's image tower, small, with random weights unless they stay as they are made."""
    config = open_clip.get_model_config(name)
    made = timm.create_model

    def small(model: str, **keywords: Any) -> nn.Module:
        return made(model, **keywords, **_timm_keywords(model))

    dim = 24
    if config["vision_cfg"].get("timm_proj") == "none":
        dim = WIDTH
    with mock.patch.object(timm, "create_model", small), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        visual = _build_vision_tower(dim, vision_config(name), bool(config.get("quick_gelu")))
    if shaken:
        shake(visual, seed)
    return visual.eval()


def _timm_keywords(model: str) -> dict[str, Any]:
    small: dict[str, Any] = {"embed_dim": WIDTH, "depth": 3, "num_heads": HEADS, "img_size": SIDE}
    if model.startswith("vitamin"):
        from timm.models.vitamin import VitCfg

        stem = VitCfg(embed_dim=(8, 8, WIDTH), depths=(1, 1, 1), stem_width=8, head_type="1d")
        return small | {"embed_cfg": stem}
    if model == "vit_base_mci_224":  # the width of its stem is fixed
        return small | {"embed_dim": 768, "num_heads": 12, "depth": 2}
    if model.startswith("vit_pe_core"):
        return small | {"patch_size": 8, "attn_pool_num_heads": 2}
    if model.startswith(("vit", "eva")):
        return small | {"patch_size": 8}
    return {}
