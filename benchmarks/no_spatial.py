"""Direct effects by the fastest mode of the TEXTSPAN authors' code, as a reference for ours.

A reimplementation of `head_no_spatial` (github.com/yossigandelsman/clip_text_span) for ViTs of open_clip
that are read at the CLS token. Every layer runs whole: separate queries, keys and values for each head, the
full softmax, and each head's output for every token through its own slice of the output projection. What
the heads, the MLPs and the stem write to the CLS token is kept. At the end each part takes its share of the
last norm's mean and bias, is projected, and is divided by the embedding's length. Norms compute the
variance as the mean of squares less the square of the mean.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


@torch.no_grad()
def contributions(visual: Any, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Decompose the unit embedding as in the fastest mode of the TEXTSPAN authors, by head but not by token.

    Args:
        visual: The open_clip ViT, read at the CLS token.
        pixels: Preprocessed pixels [n, 3, s, s].

    Returns:
        Contributions of all heads [n, L, H, D], of the stem and the MLPs [n, L + 1, D], and the unit
        embedding [n, D].
    """
    x = visual._embeds(pixels)
    blocks, width = visual.transformer.resblocks, x.shape[-1]
    by_heads, others = [], [x[:, 0]]
    for block in blocks:
        attn, out = block.attn, block.attn.out_proj
        n_heads, d = attn.num_heads, attn.head_dim
        weights = attn.in_proj_weight.reshape(3, n_heads, d, width)
        biases = attn.in_proj_bias.reshape(3, 1, n_heads, 1, d)
        y = _norm(x, block.ln_1)[0]
        q, k, v = (
            torch.einsum("ntw,hdw->nhtd", y, weight) + bias
            for weight, bias in zip(weights, biases, strict=True)
        )
        attention = (q / d**0.5 @ k.transpose(-1, -2)).softmax(-1)
        values = torch.einsum("nhts,nhsd->nthd", attention, v)
        written = torch.einsum("nthd,whd->nthw", values, out.weight.reshape(width, n_heads, d))
        by_heads.append(written[:, 0] + out.bias / n_heads)
        x = x + (written.sum(2) + out.bias)
        mlp = block.mlp(_norm(x, block.ln_2)[0])
        others.append(mlp[:, 0])
        x = x + mlp
    normed, mean, std = _norm(x[:, 0], visual.ln_post)
    embedding = normed @ visual.proj
    length = embedding.norm(dim=-1)

    def through(parts: Tensor, shares: int) -> Tensor:
        """Map parts of the stream to the unit embedding's space [n, ..., D].

        Args:
            parts: The parts [n, ..., W].
            shares: Number of equal shares of the norm's mean and bias; each part has one.
        """
        places = (-1, *[1] * (parts.dim() - 1))
        centered = visual.ln_post.weight * (parts - mean.view(places) / shares)
        read = (centered / std.view(places) + visual.ln_post.bias / shares) @ visual.proj
        return read / length.view(places)

    terms = 2 * len(blocks) + 1
    direct = through(torch.stack(by_heads, 1), terms * blocks[0].attn.num_heads)
    return direct, through(torch.stack(others, 1), terms), embedding / length[:, None]


def _norm(x: Tensor, norm: Any) -> tuple[Tensor, Tensor, Tensor]:
    mean = x.mean(-1, keepdim=True)
    std = ((x**2).mean(-1, keepdim=True) - mean**2 + norm.eps).sqrt()
    return norm.weight * ((x - mean) / std) + norm.bias, mean, std
