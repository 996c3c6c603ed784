"""timm's Eva: EVA and EVA02 (rotary positions, a norm on the heads' outputs, SwiGLU) and PE-Core."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ccs.model.towers.parts import Affine, Attention, Block, Module, Unknown
from ccs.model.towers.readouts import Parts
from ccs.model.towers.timm_vit import fused, parts, plain, require_plain, trunk_of


def take_apart(visual: Module) -> Parts | None:
    from timm.models.eva import Eva

    trunk = trunk_of(visual)
    if not isinstance(trunk, Eva):
        return None
    if trunk.rope_mixed:
        raise Unknown("its rotary positions differ from layer to layer")

    def embed(pixels: Tensor) -> Tensor:
        embedded: Tensor = trunk.norm_pre(trunk._pos_embed(trunk.patch_embed(pixels))[0])
        return embedded

    return parts(visual, embed, [_block(one, trunk) for one in trunk.blocks])


def _block(module: Module, trunk: Module) -> Block:
    from timm.models.eva import EvaBlock, EvaBlockPostNorm

    heads = _attention(module.attn, trunk)
    if type(module) is EvaBlockPostNorm:
        return Block(
            heads=heads,
            norm=lambda x: x,
            projection=module.attn.proj,
            mlp=lambda x: module.norm2(module.mlp(x)),
            scale=lambda: None,
            after=module.norm1,
        )
    if type(module) is not EvaBlock:
        raise Unknown(f"its blocks are {type(module).__name__}")

    def mlp(x: Tensor) -> Tensor:
        out: Tensor = module.mlp(module.norm2(x))
        return out if module.gamma_2 is None else out * module.gamma_2

    return Block(
        heads=heads, norm=module.norm1, projection=module.attn.proj, mlp=mlp, scale=lambda: module.gamma_1
    )


def _attention(attn: Module, trunk: Module) -> Attention:
    from timm.layers.attention import AttentionRope
    from timm.layers.pos_embed_sincos import apply_rot_embed_cat
    from timm.models.eva import EvaAttention

    if type(attn) not in (EvaAttention, AttentionRope):
        raise Unknown(f"its attention is {type(attn).__name__}")
    require_plain(attn, q_norm="it norms queries", k_norm="it norms keys", gate="it gates its heads")
    if getattr(attn, "num_kv_groups", 1) != 1:
        raise Unknown("its heads share keys and values")

    def projections() -> Sequence[Affine]:
        if attn.qkv is None:
            return [(one.weight, one.bias) for one in (attn.q_proj, attn.k_proj, attn.v_proj)]
        if getattr(attn, "q_bias", None) is None:
            return fused(attn.qkv)
        return [(attn.qkv.weight, torch.cat([attn.q_bias, attn.k_bias, attn.v_bias]))]

    def rotate(x: Tensor) -> Tensor:
        rope, prefix = trunk.rope.get_embed(), attn.num_prefix_tokens
        turned = apply_rot_embed_cat(x[:, :, prefix:], rope, half=getattr(attn, "rotate_half", False))
        return torch.cat([x[:, :, :prefix], turned], dim=2).type_as(x)

    return Attention(
        n_heads=int(attn.num_heads),
        head_dim=int(attn.head_dim),
        projections=projections,
        inner=None if plain(attn.norm) else attn.norm,
        rotate=None if trunk.rope is None else rotate,
    )
