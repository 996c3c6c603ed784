"""open_clip's own Vision Transformer: read out at the CLS token, as a mean, or by a pool (CoCa)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ccs.model.towers.parts import (
    Affine,
    Attention,
    Block,
    Module,
    Parts,
    ReadOut,
    Unknown,
    by_head,
    layer_norm,
)
from ccs.model.towers.readouts import AttentionPool, Linear, NormedMean, OneNorm, Pool


def take_apart(visual: Module) -> Parts | None:
    from open_clip.transformer import ResidualAttentionBlock, VisionTransformer

    if not isinstance(visual, VisionTransformer):
        return None
    if not all(type(block) is ResidualAttentionBlock for block in visual.transformer.resblocks):
        raise Unknown("its attention blocks are custom ones")
    if visual.proj is None:
        raise Unknown("it has no projection into the space it shares with texts")
    height, width = visual.image_size
    return Parts(
        stem=lambda pixels: _embed(visual, pixels),
        blocks=[_block(block) for block in visual.transformer.resblocks],
        readout=_readout(visual),
        width=int(visual.class_embedding.shape[0]),
        dim=int(visual.proj.shape[1]),
        tokens=int(visual.positional_embedding.shape[0]),
        prefix=1,
        image_size=(int(height), int(width)),
    )


def _embed(visual: Module, pixels: Tensor) -> Tensor:
    """Embedded patches and CLS token [n, T, W]."""
    # open_clip's own convolution: a matrix product rounds less, but sharp attention multiplies any difference
    # from open_clip by ten.
    x = visual.conv1(pixels).flatten(2).transpose(1, 2).float()
    cls = visual.class_embedding.expand(len(x), 1, -1)
    x = torch.cat([cls, x], dim=1) + visual.positional_embedding
    return x if isinstance(visual.ln_pre, nn.Identity) else layer_norm(x, visual.ln_pre)


def _block(block: Module) -> Block:
    attn = block.attn
    return Block(
        heads=Attention(
            n_heads=int(attn.num_heads),
            head_dim=int(attn.head_dim),
            projections=lambda: [(attn.in_proj_weight, attn.in_proj_bias)],
        ),
        norm=lambda x: layer_norm(x, block.ln_1),
        projection=attn.out_proj,
        mlp=lambda x: block.ls_2(block.mlp(layer_norm(x, block.ln_2))),
        scale=lambda: None if isinstance(block.ls_1, nn.Identity) else block.ls_1.gamma,
    )


def _readout(visual: Module) -> ReadOut:
    linear = Linear(lambda: visual.proj)
    if visual.attn_pool is not None:
        if visual.attn_pool_contrastive is not None:
            raise Unknown("it pools its tokens by attention twice")
        if visual.pool_type != "tok":
            raise Unknown(f"its pooling of what the queries gather is {visual.pool_type!r}")
        return _pool(visual, linear)
    if visual.pool_type == "tok":
        return OneNorm(visual.ln_post, linear, len(visual.transformer.resblocks))
    if visual.pool_type != "avg":
        raise Unknown(f"its pooling is {visual.pool_type!r}")
    if visual.final_ln_after_pool:
        return OneNorm(visual.ln_post, linear, len(visual.transformer.resblocks), prefix=1)
    return NormedMean(visual.ln_post, linear, prefix=1)


def _pool(visual: Module, linear: Linear) -> AttentionPool:
    """CoCa's pool; only its first query stands for the image."""
    pool, attn = visual.attn_pool, visual.attn_pool.attn

    def projection(index: int) -> Affine:
        name = "qkv"[index]
        weight = getattr(attn, f"{name}_proj_weight")
        return (
            attn.in_proj_weight.chunk(3)[index] if weight is None else weight,
            attn.in_proj_bias.chunk(3)[index],
        )

    def query(_: Tensor) -> Tensor:
        q = F.linear(layer_norm(pool.query[:1], pool.ln_q), *projection(0))
        return by_head(q, attn.num_heads)

    return AttentionPool(
        Pool(
            n_heads=int(attn.num_heads),
            head_dim=int(attn.head_dim),
            norm=lambda x: layer_norm(x, pool.ln_k),
            query=query,
            key=lambda: projection(1),
            value=lambda: projection(2),
            projection=attn.out_proj,
        ),
        linear,
        before=pool.ln_k,
        after=visual.ln_post,
    )
