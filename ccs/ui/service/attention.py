"""Where a head looks: its CLS query's attention over the patches, as an overlay on the picture."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

from ccs.heads import Head, HeadSet
from ccs.model.model import Model
from ccs.model.tower import ImageTower, Trunk

NONE_OFF = HeadSet()
DARK = 85  # brightness, of 255, of the patch that gets the least attention


@torch.no_grad()
def layer_attention(tower: ImageTower, trunk: Trunk, layer: int, off: HeadSet = NONE_OFF) -> np.ndarray:
    """Attention [n, heads, tokens] float32 of the CLS query in one layer, CLS first; each row sums to 1.

    The forward pass runs from the trunk up to the layer, with the heads of `off` below it at zero.
    """
    x = trunk.tokens.to(tower.device)
    for below in range(trunk.layer, layer):
        values = tower._without(tower._values(x, below), off.in_layer(below))
        x = tower._finish_block(x, values, below)
    block = tower._blocks[layer]
    norm = block.ln_1
    x = F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
    w_q, w_k, _ = block.attn.in_proj_weight.chunk(3)
    b_q, b_k, _ = block.attn.in_proj_bias.chunk(3)
    n, tokens, _ = x.shape
    q = F.linear(x[:, 0], w_q, b_q).view(n, tower.n_heads, tower.head_dim, 1)
    k = F.linear(x, w_k, b_k).view(n, tokens, tower.n_heads, tower.head_dim).transpose(1, 2)
    weights = torch.softmax((k @ q)[..., 0] * tower.head_dim**-0.5, dim=-1)
    return np.asarray(weights.float().cpu().numpy())


def cls_attention(tower: ImageTower, trunk: Trunk, head: Head, off: HeadSet = NONE_OFF) -> np.ndarray:
    """Attention [n, tokens] of one head; see `layer_attention`."""
    found: np.ndarray = layer_attention(tower, trunk, head.layer, off)[:, head.head]
    return found


def seen(model: Model, image: Image.Image) -> Image.Image:
    """The picture as the model gets it: resized and cropped, 8 bits a channel."""
    config = model.preprocess_config
    pixels = model.preprocess([image])[0].numpy()
    mean, std = (np.reshape(config[name], (3, 1, 1)) for name in ("mean", "std"))
    levels = np.clip((pixels * std + mean) * 255, 0, 255).round().astype(np.uint8)
    return Image.fromarray(levels.transpose(1, 2, 0))


def patches(model: Model, attention: np.ndarray) -> np.ndarray:
    """The attention of one picture [tokens], CLS first, as the grid of its patches [rows, columns]."""
    height, width = model.tower.image_size
    columns = round((len(attention[1:]) * width / height) ** 0.5)
    return attention[1:].reshape(-1, columns)


def overlay(model: Model, picture: Image.Image, attention: np.ndarray, side: int = 192) -> Image.Image:
    """The picture (as `seen` gives it) with the patches that get attention lit and the others dimmed.

    attention: [tokens], CLS first. Brightness runs from the least to the most attended patch.
    """
    levels = patches(model, attention)
    spread = float(levels.max() - levels.min())
    levels = (levels - levels.min()) / spread if spread > 0 else np.ones_like(levels)
    mask = Image.fromarray((DARK + (255 - DARK) * levels).astype(np.uint8)).resize(
        (side, side), Image.Resampling.BICUBIC
    )
    shown = picture.resize((side, side), Image.Resampling.BICUBIC)
    return Image.composite(shown, Image.new("RGB", shown.size, (18, 22, 28)), mask)
