"""Forward pass for training: open_clip's, faster on a CPU, with the outputs of single heads.

Attention runs in float32 even under autocast, because its bfloat16 backward pass is slow on a CPU. Texts are
sorted by length and processed in chunks, each cut after its longest text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import open_clip
import torch
from torch import Tensor
from torch.nn import functional as F

from ccs.heads import Head

_CHUNKS = 4  # of a batch of texts


def pixels(images: Tensor) -> Tensor:
    """Return uint8 images [n, s, s, 3] as normalized float32 [n, 3, s, s]."""
    return (images.permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.5


def image_embeddings(
    model: open_clip.CLIP, images: Tensor, heads: Sequence[Head] = ()
) -> tuple[Tensor, dict[Head, Tensor]]:
    """Compute unit embeddings [n, D] of images, and the outputs of heads in embedding space [n, D].

    A head's output is its value for the CLS token after the output projection, the last norm's centering and
    gain (without its division by the standard deviation), and the model's projection.

    Args:
        model: The open_clip module.
        images: Normalized pixels [n, 3, s, s].
        heads: Heads whose outputs are returned.
    """
    vision = model.visual
    x = vision.conv1(images).flatten(2).transpose(1, 2).float()  # [n, patches, width]
    x = torch.cat([vision.class_embedding.expand(len(x), 1, -1), x], 1) + vision.positional_embedding
    units, written, _ = upper_embeddings(model, vision.ln_pre(vision.patch_dropout(x)), 0, heads)
    return units, written


def upper_embeddings(
    model: open_clip.CLIP, tokens: Tensor, first: int, heads: Sequence[Head] = ()
) -> tuple[Tensor, dict[Head, Tensor], Tensor]:
    """Compute unit embeddings and outputs of heads from the activations that enter a layer.

    Args:
        model: The open_clip module.
        tokens: Activations [n, T, width].
        first: Layer that the activations enter.
        heads: Heads whose outputs are returned.

    Returns:
        Unit embeddings [n, D]; head -> output [n, D]; lengths [n, 1]. An output divided by the length is the
        head's direct effect on the unit embedding.
    """
    vision, x, written = model.visual, tokens, {}
    blocks = vision.transformer.resblocks
    for layer, block in list(enumerate(blocks))[first:]:
        outputs = _attention(block.attn, block.ln_1(x), None)
        if layer == len(blocks) - 1:
            outputs, x = outputs[:, :1], x[:, :1]  # only the CLS token is read out
        for head in heads:
            if head.layer == layer:
                size = outputs.shape[-1] // block.attn.num_heads
                head_columns = slice(head.head * size, (head.head + 1) * size)
                direct = outputs[:, 0, head_columns] @ block.attn.out_proj.weight[:, head_columns].T
                direct = (direct - direct.mean(1, keepdim=True)) * vision.ln_post.weight
                written[head] = (direct @ vision.proj).float()
        x = x + block.attn.out_proj(outputs)
        x = x + block.mlp(block.ln_2(x))
    embeddings = (vision.ln_post(x[:, 0]) @ vision.proj).float()
    lengths = x[:, 0].float().var(1, correction=0).sqrt() * embeddings.norm(dim=1)
    return F.normalize(embeddings, dim=-1), written, lengths[:, None]


def text_embeddings(model: open_clip.CLIP, tokens: Tensor) -> Tensor:
    """Compute unit embeddings [n, D] of texts.

    Args:
        model: The open_clip module.
        tokens: [n, context].
    """
    ends = tokens.argmax(1)
    order = ends.argsort()
    read_out = torch.cat([_read_out(model, tokens[part], ends[part]) for part in order.chunk(_CHUNKS)])
    return F.normalize((read_out[order.argsort()] @ model.text_projection).float(), dim=-1)


def _read_out(model: open_clip.CLIP, tokens: Tensor, ends: Tensor) -> Tensor:
    """Return the text encoder's output at the last token of each text [n, width]."""
    length = int(ends.max()) + 1
    x = model.token_embedding(tokens[:, :length]) + model.positional_embedding[:length]
    for block in model.transformer.resblocks:
        outputs = _attention(block.attn, block.ln_1(x), model.attn_mask[:length, :length])
        x = x + block.attn.out_proj(outputs)
        x = x + block.mlp(block.ln_2(x))
    return torch.as_tensor(model.ln_final(x[torch.arange(len(x)), ends]))


def _attention(attn: Any, x: Tensor, mask: Tensor | None) -> Tensor:
    """Return the concatenated outputs of all heads [n, tokens, width], before the output projection."""
    n, length, width = x.shape
    qkv = F.linear(x, attn.in_proj_weight, attn.in_proj_bias).float()
    q, k, v = qkv.view(n, length, 3, attn.num_heads, -1).permute(2, 0, 3, 1, 4).unbind()
    with torch.autocast(x.device.type, enabled=False):
        outputs = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return outputs.transpose(1, 2).reshape(n, length, width)
