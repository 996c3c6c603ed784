"""timm's ViTs: SigLIP, MobileCLIP and ViTamin (convolutional stem)."""

from __future__ import annotations

from torch import Tensor

from ccs.model.towers.parts import Attention, Block, Module, Parts, Unknown
from ccs.model.towers.timm_wrap import fused, parts, plain, require_plain, trunk_of


def take_apart(visual: Module) -> Parts | None:
    from timm.models.vision_transformer import VisionTransformer

    trunk = trunk_of(visual)
    if not isinstance(trunk, VisionTransformer):
        return None
    return parts(visual, lambda pixels: _embed(trunk, pixels), [_block(one) for one in trunk.blocks])


def _embed(trunk: Module, pixels: Tensor) -> Tensor:
    embedded: Tensor = trunk.norm_pre(trunk.patch_drop(trunk._pos_embed(trunk.patch_embed(pixels))))
    return embedded


def _block(module: Module) -> Block:
    from timm.layers.attention import Attention as TimmAttention
    from timm.models.vision_transformer import Block as TimmBlock

    attn, ls1 = module.attn, module.ls1
    if type(module) is not TimmBlock or type(attn) is not TimmAttention:
        raise Unknown(f"its blocks are {type(module).__name__} with {type(attn).__name__}")
    require_plain(attn, q_norm="it norms queries", k_norm="it norms keys", gate="it gates its heads")
    heads = Attention(
        n_heads=int(attn.num_heads),
        head_dim=int(attn.head_dim),
        projections=lambda: fused(attn.qkv),
        inner=None if plain(getattr(attn, "norm", None)) else attn.norm,
    )
    return Block(
        heads=heads,
        norm=module.norm1,
        projection=attn.proj,
        mlp=lambda x: module.ls2(module.mlp(module.norm2(x))),
        scale=lambda: None if plain(ls1) else ls1.gamma,
    )
