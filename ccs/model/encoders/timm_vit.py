"""Encoders of timm.

SigLIP, MobileCLIP, ViTamin (convolutional stem), encoders with relative positions, EVA and EVA02 (rotary
positions, a norm on the heads' outputs, SwiGLU), and PE-Core.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ccs.model.encoders import parts
from ccs.model.encoders.readouts import AttentionPool, Linear, NormedMean, OneNorm, Parts, ReadOut


def decompose(visual: parts.Module) -> Parts | None:
    """Return the parts of a Vision Transformer or Eva of timm in open_clip's wrapper; None for others."""
    trunk: parts.Module = visual.trunk if type(visual).__name__ == "TimmModel" else None
    kind = type(trunk).__name__
    if kind not in ("VisionTransformer", "VisionTransformerRelPos", "Eva"):
        return None
    if getattr(trunk, "rope_mixed", False):
        raise parts.UnsupportedPart("its rotary positions differ from layer to layer")

    def stem(pixels: Tensor) -> Tensor:
        x: Tensor = trunk.patch_embed(pixels)
        if kind == "VisionTransformerRelPos":  # its positions are in its attention
            cls = trunk.cls_token
            return x if cls is None else torch.cat([cls.expand(len(x), -1, -1), x], dim=1)
        placed = trunk._pos_embed(x)
        x = trunk.norm_pre(placed[0] if kind == "Eva" else trunk.patch_drop(placed))
        return x

    embed, linear = trunk.patch_embed, _linear(visual)
    height, width = embed.img_size
    return Parts(
        stem=stem,
        blocks=[_block(module, trunk) for module in trunk.blocks],
        readout=_readout(trunk, linear),
        tokens=int(embed.num_patches + trunk.num_prefix_tokens),
        prefix=int(trunk.num_prefix_tokens),
        image_size=(int(height), int(width)),
    )


_BLOCKS = {("Block", "Attention"), ("RelPosBlock", "RelPosAttention")}
_BLOCKS |= {
    (f"EvaBlock{norm}", name) for norm in ("", "PostNorm") for name in ("EvaAttention", "AttentionRope")
}
"""Blocks whose parts are known, with their attention."""


def _block(module: parts.Module, trunk: parts.Module) -> parts.Block:
    attn, kinds = module.attn, (type(module).__name__, type(module.attn).__name__)
    if kinds not in _BLOCKS:
        raise parts.UnsupportedPart(f"its blocks are {' with '.join(kinds)}")
    normed_after = kinds[0] == "EvaBlockPostNorm"

    def scale(number: int) -> Tensor | None:
        """Return LayerScale, whether it is a module or not."""
        factor: Tensor | None = getattr(getattr(module, f"ls{number}", None), "gamma", None)
        return getattr(module, f"gamma_{number}", None) if factor is None else factor

    def mlp(x: Tensor) -> Tensor:
        out: Tensor = module.norm2(module.mlp(x)) if normed_after else module.mlp(module.norm2(x))
        factor = scale(2)
        return out if factor is None else out * factor

    return parts.Block(
        **_attention(attn, trunk),
        norm=(lambda x: x) if normed_after else module.norm1,
        mlp=mlp,
        scale=lambda: scale(1),
        after=module.norm1 if normed_after else None,
    )


def _attention(attn: parts.Module, trunk: parts.Module) -> dict[str, Any]:
    """Return the entries of a `Block` that describe its heads."""
    from timm.layers.pos_embed_sincos import apply_rot_embed_cat

    norms = {"q_norm": "it norms queries", "k_norm": "it norms keys"}
    parts.require_plain(attn, norms | {"gate": "it gates its heads"})
    if getattr(attn, "num_kv_groups", 1) != 1:
        raise parts.UnsupportedPart("its heads share keys and values")
    inner = getattr(attn, "norm", None)
    if not parts.is_plain(inner) and not isinstance(inner, nn.LayerNorm):
        raise parts.UnsupportedPart(f"the norm on its heads' outputs is {type(inner).__name__}")
    positions = getattr(attn, "rel_pos", None) or getattr(trunk, "shared_rel_pos", None)

    def projections() -> Sequence[parts.Affine]:
        if attn.qkv is None:
            return [(linear.weight, linear.bias) for linear in (attn.q_proj, attn.k_proj, attn.v_proj)]
        if getattr(attn, "q_bias", None) is None:
            return [(attn.qkv.weight, attn.qkv.bias)]
        return [(attn.qkv.weight, torch.cat([attn.q_bias, attn.k_bias, attn.v_bias]))]

    def rotate(x: Tensor) -> Tensor:
        rope, prefix = trunk.rope.get_embed(), attn.num_prefix_tokens
        turned = apply_rot_embed_cat(x[:, :, prefix:], rope, half=getattr(attn, "rotate_half", False))
        return torch.cat([x[:, :, :prefix], turned], dim=2).type_as(x)

    return {
        **parts.heads_of(attn),
        "projections": projections,
        "inner": None if parts.is_plain(inner) else inner,
        "rotate": None if getattr(trunk, "rope", None) is None else rotate,
        "bias": None if positions is None else lambda _: positions.get_bias(),
    }


def _linear(visual: parts.Module) -> Linear:
    """Return the last linear map, timm's or the wrapper's; InputError for both or for another map."""
    layers = [visual.trunk.head, *visual.head]
    layers = [layer for layer in layers if not isinstance(layer, nn.Identity | nn.Dropout)]
    if not layers:
        return Linear(lambda: None)
    if len(layers) > 1 or not isinstance(layers[0], nn.Linear):
        raise parts.UnsupportedPart("its tokens' pooling is followed by more than one linear map")
    (last,) = layers
    return Linear(lambda: last.weight.T, lambda: last.bias)


def _readout(trunk: parts.Module, linear: Linear) -> ReadOut:
    if getattr(trunk, "attn_pool", None) is not None:
        return _pool(trunk, linear)
    prefix = int(trunk.num_prefix_tokens)
    if trunk.global_pool not in ("token", "avg") or getattr(trunk, "pool_include_prefix", False):
        raise parts.UnsupportedPart(f"its pooling is {trunk.global_pool!r}")
    norms = [norm for norm in (trunk.norm, trunk.fc_norm) if not parts.is_plain(norm)]
    if len(norms) != 1:
        raise parts.UnsupportedPart(f"it has {len(norms)} norms after its blocks")
    _require_layer_norm(norms[0])
    if trunk.global_pool == "token":
        return OneNorm(norms[0], linear, len(trunk.blocks))
    if norms[0] is trunk.fc_norm:
        return OneNorm(norms[0], linear, len(trunk.blocks), prefix=prefix)
    return NormedMean(norms[0], linear, prefix=prefix)


def _require_layer_norm(norm: parts.Module) -> None:
    if not isinstance(norm, nn.LayerNorm) or norm.bias is None:
        raise parts.UnsupportedPart(f"its last norm is {type(norm).__name__}, not a LayerNorm with a bias")


def _pool(trunk: parts.Module, linear: Linear) -> AttentionPool:
    """Describe timm's AttentionPoolLatent: a learned query, as in SigLIP and PE."""
    pool = trunk.attn_pool
    if type(pool).__name__ != "AttentionPoolLatent" or pool.latent_len != 1 or pool.pos_embed is not None:
        raise parts.UnsupportedPart(
            f"its pooling is {type(pool).__name__} with more than one query or with positions"
        )
    parts.require_plain(pool, {"q_norm": "its pool norms queries", "k_norm": "its pool norms keys"})
    parts.require_plain(trunk, {"fc_norm": "it norms what its pool gathers"})
    _require_layer_norm(trunk.norm)
    if not isinstance(pool.proj, nn.Linear) or not pool.mlp:
        raise parts.UnsupportedPart("its pool has no output projection")
    if trunk.num_prefix_tokens and getattr(trunk, "pool_include_prefix", True) is False:
        raise parts.UnsupportedPart("its pool leaves some tokens out")

    def projections() -> Sequence[parts.Affine]:
        biases = (None, None) if pool.kv.bias is None else pool.kv.bias.chunk(2)
        return [(pool.q.weight, pool.q.bias), *zip(pool.kv.weight.chunk(2), biases, strict=True)]

    layer = parts.Layer(
        **parts.heads_of(pool),
        projections=projections,
        query=lambda _: pool.q(pool.latent[:, 0]).unflatten(-1, (pool.num_heads, -1)),
        norm=trunk.norm,
    )
    return AttentionPool(layer, linear, before=trunk.norm, mlp=lambda x: pool.mlp(pool.norm(x)))
