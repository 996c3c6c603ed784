"""Where a head looks: its CLS query's attention over the patches, as an overlay on the picture."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

from ccs.heads import Head, HeadSet
from ccs.models import Model
from ccs.tower import ImageTower, Trunk

NONE_OFF = HeadSet()


@torch.no_grad()
def cls_attention(tower: ImageTower, trunk: Trunk, head: Head, off: HeadSet = NONE_OFF) -> np.ndarray:
    """Attention [n, tokens] float32 of the CLS query in one head, CLS first; each row sums to 1.

    The forward pass runs from the trunk up to the head's layer, with the heads of `off` at zero.
    """
    x = trunk.tokens.to(tower.device)
    for layer in range(trunk.layer, head.layer):
        values = tower._without(tower._values(x, layer), off.in_layer(layer))
        x = tower._finish_block(x, values, layer)
    block = tower._blocks[head.layer]
    norm = block.ln_1
    x = F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
    rows = slice(head.head * tower.head_dim, (head.head + 1) * tower.head_dim)
    w_q, w_k, _ = block.attn.in_proj_weight.chunk(3)
    b_q, b_k, _ = block.attn.in_proj_bias.chunk(3)
    q = F.linear(x[:, :1], w_q[rows], b_q[rows])
    k = F.linear(x, w_k[rows], b_k[rows])
    weights = torch.softmax(q @ k.transpose(1, 2) * tower.head_dim**-0.5, dim=-1)
    return np.asarray(weights[:, 0].float().cpu().numpy())


def seen(model: Model, image: Image.Image) -> Image.Image:
    """The picture as the model gets it: resized and cropped, 8 bits a channel."""
    config = model.preprocess_config
    pixels = model.preprocess([image])[0].numpy()
    mean, std = (np.reshape(config[name], (3, 1, 1)) for name in ("mean", "std"))
    levels = np.clip((pixels * std + mean) * 255, 0, 255).round().astype(np.uint8)
    return Image.fromarray(levels.transpose(1, 2, 0))


def overlay(model: Model, image: Image.Image, attention: np.ndarray, side: int = 192) -> Image.Image:
    """The picture with the patches that get attention lit and the others dimmed.

    attention: [tokens], CLS first. Brightness runs from the least to the most attended patch.
    """
    height, width = model.tower.image_size
    patches = attention[1:]
    columns = round((len(patches) * width / height) ** 0.5)
    levels = patches.reshape(-1, columns)
    spread = float(levels.max() - levels.min())
    levels = (levels - levels.min()) / spread if spread > 0 else np.ones_like(levels)
    mask = Image.fromarray((55 + 200 * levels).astype(np.uint8)).resize(
        (side, side), Image.Resampling.BICUBIC
    )
    shown = seen(model, image).resize((side, side), Image.Resampling.BICUBIC)
    return Image.composite(shown, Image.new("RGB", shown.size, (18, 22, 28)), mask)
