"""timm's ViTs: SigLIP, MobileCLIP, ViTamin (convolutional stem), and those with relative positions.

The second half, open_clip's wrapper and the read-out of tokens, is that of all of timm's towers.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ccs.model.towers.parts import Affine, Attention, Block, Map, Module, Pool, Unknown, by_head
from ccs.model.towers.readouts import AttentionPool, Linear, NormedMean, OneNorm, Parts, ReadOut


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
    return block(
        module, _attention(module.attn, None if positions is None else lambda _: positions.get_bias())
    )


def _attention(attn: Module, bias: Callable[[int], Tensor] | None = None) -> Attention:
    require_plain(attn, q_norm="it norms queries", k_norm="it norms keys", gate="it gates its heads")
    inner = getattr(attn, "norm", None)
    if not plain(inner) and not isinstance(inner, nn.LayerNorm):
        raise Unknown(f"the norm on its heads' outputs is {type(inner).__name__}")
    return Attention(
        n_heads=int(attn.num_heads),
        head_dim=int(attn.head_dim),
        projections=lambda: fused(attn.qkv),
        inner=None if plain(inner) else inner,
        bias=bias,
    )


def trunk_of(visual: Module) -> Module | None:
    """timm's module in open_clip's wrapper; None for a tower of another kind."""
    from open_clip.timm_model import TimmModel

    return visual.trunk if isinstance(visual, TimmModel) else None


def parts(visual: Module, stem: Map, blocks: list[Block]) -> Parts:
    trunk, embed = visual.trunk, visual.trunk.patch_embed
    height, width = embed.img_size
    linear = _linear(visual)
    return Parts(
        stem=stem,
        blocks=blocks,
        readout=_readout(trunk, linear),
        width=int(trunk.embed_dim),
        dim=linear.dim(int(trunk.embed_dim)),
        tokens=int(embed.num_patches + trunk.num_prefix_tokens),
        prefix=int(trunk.num_prefix_tokens),
        image_size=(int(height), int(width)),
    )


def plain(module: Module | None) -> bool:
    """True for a module that does nothing."""
    return module is None or isinstance(module, nn.Identity)


def require_plain(owner: Module, **modules: str) -> None:
    """Raise Unknown if the owner has one of these modules (name -> what it would do, in words)."""
    for name, words in modules.items():
        if not plain(getattr(owner, name, None)):
            raise Unknown(words)


def fused(qkv: Module) -> list[Affine]:
    return [(qkv.weight, qkv.bias)]


def block(module: Module, heads: Attention) -> Block:
    """A block that norms before attention and before its MLP, with or without LayerScale."""
    return Block(
        heads=heads,
        norm=module.norm1,
        projection=module.attn.proj,
        mlp=lambda x: module.ls2(module.mlp(module.norm2(x))),
        scale=lambda: None if plain(module.ls1) else module.ls1.gamma,
    )


def _linear(visual: Module) -> Linear:
    """The last linear map, timm's own or the wrapper's; both, or more than a linear map, is refused."""
    found = [visual.trunk.head, *visual.head]
    found = [one for one in found if not isinstance(one, nn.Identity | nn.Dropout)]
    if not found:
        return Linear(lambda: None)
    if len(found) > 1 or not isinstance(found[0], nn.Linear):
        raise Unknown("its tokens' pooling is followed by more than one linear map")
    (last,) = found
    return Linear(lambda: last.weight.T, lambda: last.bias)


def _readout(trunk: Module, linear: Linear) -> ReadOut:
    if getattr(trunk, "attn_pool", None) is not None:
        return _pool(trunk, linear)
    prefix = int(trunk.num_prefix_tokens)
    if trunk.global_pool not in ("token", "avg") or getattr(trunk, "pool_include_prefix", False):
        raise Unknown(f"its pooling is {trunk.global_pool!r}")
    norms = [norm for norm in (trunk.norm, trunk.fc_norm) if not plain(norm)]
    if len(norms) != 1:
        raise Unknown(f"it has {len(norms)} norms after its blocks")
    require_layer_norm(norms[0])
    if trunk.global_pool == "token":
        return OneNorm(norms[0], linear, len(trunk.blocks))
    if norms[0] is trunk.fc_norm:
        return OneNorm(norms[0], linear, len(trunk.blocks), prefix=prefix)
    return NormedMean(norms[0], linear, prefix=prefix)


def require_layer_norm(norm: Module) -> None:
    if not isinstance(norm, nn.LayerNorm) or norm.bias is None:
        raise Unknown(f"its last norm is {type(norm).__name__}, not a LayerNorm with a bias")


def _pool(trunk: Module, linear: Linear) -> AttentionPool:
    """A learned query, as in SigLIP and in PE: timm's AttentionPoolLatent."""
    from timm.layers.attention_pool import AttentionPoolLatent

    pool = trunk.attn_pool
    if type(pool) is not AttentionPoolLatent or pool.latent_len != 1 or pool.pos_embed is not None:
        raise Unknown(f"its pooling is {type(pool).__name__} with more than one query or with positions")
    require_plain(pool, q_norm="its pool norms queries", k_norm="its pool norms keys")
    require_plain(trunk, fc_norm="it norms what its pool gathers")
    require_layer_norm(trunk.norm)
    if not isinstance(pool.proj, nn.Linear) or not pool.mlp:
        raise Unknown("its pool has no output projection")
    if trunk.num_prefix_tokens and getattr(trunk, "pool_include_prefix", True) is False:
        raise Unknown("its pool leaves some tokens out")

    def kv(index: int) -> Affine:
        bias = pool.kv.bias
        return pool.kv.weight.chunk(2)[index], None if bias is None else bias.chunk(2)[index]

    return AttentionPool(
        Pool(
            n_heads=int(pool.num_heads),
            head_dim=int(pool.head_dim),
            norm=trunk.norm,
            query=lambda _: by_head(pool.q(pool.latent[:, 0]), pool.num_heads),
            key=lambda: kv(0),
            value=lambda: kv(1),
            projection=pool.proj,
        ),
        linear,
        before=trunk.norm,
        mlp=lambda x: pool.mlp(pool.norm(x)),
    )
