"""timm's ViTs: SigLIP, MobileCLIP, ViTamin (convolutional stem), and those with relative positions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ccs.model.towers.parts import Attention, Block, Module, Parts, Unknown
from ccs.model.towers.timm_wrap import block, fused, parts, plain, require_plain, trunk_of


def take_apart(visual: Module) -> Parts | None:
    from timm.models.vision_transformer import VisionTransformer
    from timm.models.vision_transformer_relpos import VisionTransformerRelPos

    trunk = trunk_of(visual)
    if isinstance(trunk, VisionTransformer):
        return parts(visual, lambda pixels: _embed(trunk, pixels), [_block(one) for one in trunk.blocks])
    if isinstance(trunk, VisionTransformerRelPos):
        blocks = [_relative(one, trunk.shared_rel_pos) for one in trunk.blocks]
        return parts(visual, lambda pixels: _unplaced(trunk, pixels), blocks)
    return None


def _embed(trunk: Module, pixels: Tensor) -> Tensor:
    embedded: Tensor = trunk.norm_pre(trunk.patch_drop(trunk._pos_embed(trunk.patch_embed(pixels))))
    return embedded


def _unplaced(trunk: Module, pixels: Tensor) -> Tensor:
    x: Tensor = trunk.patch_embed(pixels)
    return x if trunk.cls_token is None else torch.cat([trunk.cls_token.expand(len(x), -1, -1), x], dim=1)


def _block(module: Module) -> Block:
    from timm.layers.attention import Attention as TimmAttention
    from timm.models.vision_transformer import Block as TimmBlock

    if type(module) is not TimmBlock or type(module.attn) is not TimmAttention:
        raise Unknown(f"its blocks are {type(module).__name__} with {type(module.attn).__name__}")
    return block(module, _attention(module.attn))


def _relative(module: Module, shared: Module | None) -> Block:
    from timm.models.vision_transformer_relpos import RelPosBlock

    if type(module) is not RelPosBlock:
        raise Unknown(f"its blocks are {type(module).__name__}")
    positions: Module = module.attn.rel_pos or shared
    return block(module, _attention(module.attn, None if positions is None else positions.get_bias))


def _attention(attn: Module, bias: Callable[[], Tensor] | None = None) -> Attention:
    require_plain(attn, q_norm="it norms queries", k_norm="it norms keys", gate="it gates its heads")
    return Attention(
        n_heads=int(attn.num_heads),
        head_dim=int(attn.head_dim),
        projections=lambda: fused(attn.qkv),
        inner=None if plain(getattr(attn, "norm", None)) else attn.norm,
        bias=bias,
    )
