"""open_clip's own encoders: Vision Transformers (CLS token, mean, or CoCa's pool), ResNets, and texts."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ccs.model.encoders import parts
from ccs.model.encoders.readouts import AttentionPool, Linear, NormedMean, OneNorm, Parts, ReadOut


def decompose(visual: parts.Module) -> Parts | None:
    """Return the parts of a Vision Transformer or ResNet of open_clip; None for any other module."""
    name = type(visual).__name__  # importing open_clip would take seconds
    if name == "ModifiedResNet":
        return _resnet(visual)
    if name not in ("PlainVision", "VisionTransformer") or not hasattr(visual, "transformer"):
        return None
    if visual.proj is None:
        raise parts.UnsupportedPart("it has no projection into the space it shares with texts")
    height, width = visual.image_size
    return Parts(
        stem=lambda pixels: _embed(visual, pixels),
        blocks=[decompose_block(module) for module in visual.transformer.resblocks],
        readout=_readout(visual),
        tokens=int(visual.positional_embedding.shape[0]),
        prefix=1,
        image_size=(int(height), int(width)),
    )


def _embed(visual: parts.Module, pixels: Tensor) -> Tensor:
    """Embed patches and the CLS token [n, T, W]."""
    # open_clip's own convolution: a matrix product rounds less, but sharp attention multiplies any difference
    # from open_clip by ten.
    x = visual.conv1(pixels).flatten(2).transpose(1, 2).float()
    cls = visual.class_embedding.expand(len(x), 1, -1)
    x = torch.cat([cls, x], dim=1) + visual.positional_embedding
    return x if isinstance(visual.ln_pre, nn.Identity) else parts.layer_norm(x, visual.ln_pre)


def decompose_block(module: parts.Module, bias: Callable[[int], Tensor] | None = None) -> parts.Block:
    """Return the parts of a block of open_clip's Transformer.

    Args:
        module: The block.
        bias: As in `Layer`.
    """
    if type(module).__name__ not in ("ResidualBlock", "ResidualAttentionBlock"):
        raise parts.UnsupportedPart("its attention blocks are custom ones")
    attn = module.attn
    # nn.MultiheadAttention in open_clip 3, which has none of these.
    words = f"its {type(attn).__name__} norms or scales its heads"
    parts.require_plain(attn, dict.fromkeys(("ln_q", "ln_k", "ln_inner", "logit_scale", "head_scale"), words))
    return parts.Block(
        **parts.heads_of(attn),
        projections=lambda: [(attn.in_proj_weight, attn.in_proj_bias)],
        bias=bias,
        norm=lambda x: parts.layer_norm(x, module.ln_1),
        mlp=lambda x: module.ls_2(module.mlp(parts.layer_norm(x, module.ln_2))),
        scale=lambda: None if isinstance(module.ls_1, nn.Identity) else module.ls_1.gamma,
    )


def _readout(visual: parts.Module) -> ReadOut:
    linear = Linear(lambda: visual.proj)
    if visual.attn_pool is not None:
        if visual.attn_pool_contrastive is not None:
            raise parts.UnsupportedPart("it pools its tokens by attention twice")
        if visual.pool_type != "tok":
            raise parts.UnsupportedPart(f"its pooling of what the queries gather is {visual.pool_type!r}")
        return _pool(visual, linear)
    if visual.pool_type == "tok":
        return OneNorm(visual.ln_post, linear, len(visual.transformer.resblocks))
    if visual.pool_type != "avg":
        raise parts.UnsupportedPart(f"its pooling is {visual.pool_type!r}")
    if visual.final_ln_after_pool:
        return OneNorm(visual.ln_post, linear, len(visual.transformer.resblocks), prefix=1)
    return NormedMean(visual.ln_post, linear, prefix=1)


def _pool(visual: parts.Module, linear: Linear) -> AttentionPool:
    """Return CoCa's pool, whose first query alone represents the image."""
    pool, attn = visual.attn_pool, visual.attn_pool.attn

    def projections() -> Sequence[parts.Affine]:
        apart: Any = [getattr(attn, f"{name}_proj_weight", None) for name in "qkv"]
        weights = apart if attn.in_proj_weight is None else attn.in_proj_weight.chunk(3)
        return list(zip(weights, attn.in_proj_bias.chunk(3), strict=True))

    def query(_: Tensor) -> Tensor:
        q = F.linear(parts.layer_norm(pool.query[:1], pool.ln_q), *projections()[0])
        return torch.unflatten(q, -1, (attn.num_heads, -1))

    layer = parts.Layer(
        **parts.heads_of(attn),
        projections=projections,
        query=query,
        norm=lambda x: parts.layer_norm(x, pool.ln_k),
    )
    return AttentionPool(layer, linear, before=pool.ln_k, after=visual.ln_post)


def _resnet(visual: parts.Module) -> Parts:
    """Describe a ResNet, whose only heads are its pool's, with the mean of the positions as query."""
    pool, size = visual.attnpool, visual.image_size
    height, wide = size if isinstance(size, tuple | list) else (size, size)
    linears = pool.q_proj, pool.k_proj, pool.v_proj
    layer = parts.Layer(
        **parts.heads_of(pool),
        projections=lambda: [(linear.weight, linear.bias) for linear in linears],
        query=lambda x: pool.q_proj(x[:, 0]).unflatten(-1, (pool.num_heads, -1)),
    )

    def stem(pixels: Tensor) -> Tensor:
        x: Tensor = visual.stem(pixels)
        for layer in (visual.layer1, visual.layer2, visual.layer3, visual.layer4):
            x = layer(x)
        x = x.flatten(2).transpose(1, 2)
        tokens: Tensor = torch.cat([x.mean(1, keepdim=True), x], dim=1) + pool.positional_embedding
        return tokens

    return Parts(
        stem=stem,
        blocks=[],
        readout=AttentionPool(layer, Linear(lambda: None)),
        tokens=len(pool.positional_embedding),
        prefix=1,
        image_size=(int(height), int(wide)),
    )


# Text encoders ---------------------------------------------------------------------------------------------
#
# Those of CLIP, SigLIP, and MetaCLIP 2. A text is read at one token. The stem puts that token first, so that
# the code can treat it as a CLS token. In a causal encoder a token attends only to earlier ones, so tokens
# after the one that is read are left out.

ReadAt = Callable[[Tensor], Tensor]
"""Token numbers [n, T] -> the position [n] at which each text is read."""


def decompose_texts(clip: parts.Module) -> tuple[Parts, ReadAt]:
    """Return the parts of a model's text encoder, and the function that finds the token that is read.

    Raises:
        UnsupportedPart: If its heads are unknown.
    """
    text: parts.Module = getattr(clip, "text", clip)
    if type(text).__name__ not in ("PlainCLIP", "CLIP", "TextTransformer"):
        inner = getattr(text, "transformer", clip)
        raise parts.UnsupportedPart(f"it is {type(inner).__name__}, whose heads are unknown")
    if getattr(text, "cls_emb", None) is not None or getattr(text, "use_pad_mask", False):
        raise parts.UnsupportedPart("it masks the padding of each text")
    causal = text.attn_mask is not None
    pool = text.text_pool_type if hasattr(text, "text_pool_type") else text.pool_type
    end = text.text_eos_id if hasattr(text, "text_eos_id") else text.eos_id
    if pool not in ("first", "last", "argmax", "eos"):
        raise parts.UnsupportedPart(f"its pooling is {pool!r}")

    def read_at(tokens: Tensor) -> Tensor:
        if pool in ("first", "last"):
            return torch.full_like(tokens[:, 0], 0 if pool == "first" else tokens.shape[1] - 1)
        return (tokens if pool == "argmax" else (tokens == end).int()).argmax(-1)

    def stem(tokens: Tensor) -> Tensor:
        place = int(read_at(tokens[:1])[0])
        positions = text.positional_embedding[: tokens.shape[1]].float()
        x: Tensor = text.token_embedding(tokens).float() + positions
        before = x[:, : place + 1].flip(1)
        return before if causal else torch.cat([before, x[:, place + 1 :]], dim=1)

    def later(tokens: int) -> Tensor:
        # Tokens are in reverse order, so each attends to those after it.
        full = torch.full((1, 1, tokens, tokens), float("-inf"), device=text.positional_embedding.device)
        return full.tril(-1)

    projection, linear = text.text_projection, Linear(lambda: text.text_projection)
    if isinstance(projection, nn.Linear):
        linear = Linear(lambda: projection.weight.T, lambda: projection.bias)
    blocks = text.transformer.resblocks
    return Parts(
        stem=stem,
        blocks=[decompose_block(module, later if causal else None) for module in blocks],
        readout=OneNorm(text.ln_final, linear, len(blocks)),
        tokens=len(text.positional_embedding),
        prefix=1,
        image_size=(0, 0),
    ), read_at
