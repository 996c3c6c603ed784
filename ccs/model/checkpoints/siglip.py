"""open_clip's SigLIP in any size, and the names of a `SiglipModel`'s weights in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn

from ccs.model.checkpoints.weights import gathered

_ANY = "test_vit"  # timm's smallest; the wrapper needs a name, and its trunk is replaced


def tower(config: Mapping[str, Any]) -> nn.Module:
    """open_clip's wrapper around a timm ViT of the sizes in a checkpoint's `vision_cfg`."""
    from open_clip.timm_model import TimmModel
    from timm.models.vision_transformer import VisionTransformer

    vision = config["vision_cfg"]
    visual: nn.Module = TimmModel(
        _ANY, config["embed_dim"], image_size=vision["image_size"], pool="map", proj="none"
    )
    visual.trunk = VisionTransformer(
        img_size=vision["image_size"],
        patch_size=vision["patch_size"],
        embed_dim=vision["width"],
        depth=vision["layers"],
        num_heads=vision["width"] // vision["head_width"],
        mlp_ratio=vision["mlp_ratio"],
        num_classes=0,
        class_token=False,
        global_pool="map",
        norm_layer=partial(nn.LayerNorm, **vision.get("norm_kwargs", {})),
        act_layer="gelu_tanh" if vision.get("act_kwargs") else "gelu",
    )
    return visual


def model(config: Mapping[str, Any]) -> nn.Module:
    """open_clip's model around that tower, with weights still to be loaded."""
    from open_clip.model import CustomTextCLIP

    settings = {key: value for key, value in config.items() if key != "custom_text"}
    settings["vision_cfg"] = {**config["vision_cfg"], "timm_model_name": _ANY}
    clip: nn.Module = CustomTextCLIP(**settings)
    clip.visual = tower(config)
    return clip


_RENAMED = (
    ("vision_model.embeddings.patch_embedding.", "visual.trunk.patch_embed.proj."),
    ("vision_model.embeddings.position_embedding.weight", "visual.trunk.pos_embed"),
    ("vision_model.post_layernorm.", "visual.trunk.norm."),
    ("vision_model.head.probe", "visual.trunk.attn_pool.latent"),
    ("vision_model.head.attention.out_proj.", "visual.trunk.attn_pool.proj."),
    ("vision_model.head.layernorm.", "visual.trunk.attn_pool.norm."),
    ("vision_model.head.", "visual.trunk.attn_pool."),
    ("text_model.embeddings.token_embedding.", "text.token_embedding."),
    ("text_model.embeddings.position_embedding.weight", "text.positional_embedding"),
    ("text_model.final_layer_norm.", "text.ln_final."),
    ("text_model.head.", "text.text_projection."),
    ("text_model.encoder.layers.", "text.transformer.resblocks."),
)
_IN_IMAGES = (
    ("vision_model.encoder.layers.", "visual.trunk.blocks."),
    (".self_attn.out_proj.", ".attn.proj."),
    (".self_attn.in_proj_", ".attn.qkv."),
    (".layer_norm", ".norm"),
)


def renamed(held: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """A SiglipModel's weights under open_clip's and timm's names. Raises ValueError if parts are missing."""
    weights = {}
    for theirs, values in gathered(held).items():
        name = theirs
        for old, new in _IN_IMAGES if name.startswith("vision_model.encoder.") else _RENAMED:
            name = name.replace(old, new)
        if name.startswith("text."):
            name = name.replace(".self_attn.", ".attn.").replace(".layer_norm", ".ln_")
            name = name.replace(".mlp.fc1.", ".mlp.c_fc.").replace(".mlp.fc2.", ".mlp.c_proj.")
        pool, in_pool, kind = name.partition("attention.in_proj_")
        if in_pool:
            width = len(values) // 3
            weights[f"{pool}q.{kind}"], weights[f"{pool}kv.{kind}"] = values[:width], values[width:]
        elif name == "visual.trunk.pos_embed":
            weights[name] = values.unsqueeze(0)
        else:
            weights[name] = (
                values.reshape(()) if name.startswith("logit_") and values.numel() == 1 else values
            )
    return weights
