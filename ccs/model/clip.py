"""A CLIP in plain PyTorch whose weights have open_clip's names.

The bundled models are loaded into it, since importing open_clip takes longer than everything else.
"""

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class ResidualBlock(nn.Module):
    """Attention, then an MLP."""

    def __init__(self, width: int, heads: int, ratio: float) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ls_1, self.ls_2 = nn.Identity(), nn.Identity()
        inner = int(width * ratio)
        layers = {"c_fc": nn.Linear(width, inner), "gelu": nn.GELU(), "c_proj": nn.Linear(inner, width)}
        self.mlp = nn.Sequential(OrderedDict(layers))

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        """Compute the tokens after the block.

        Args:
            x: The tokens [n, T, W].
            attn_mask: Mask that is added to the scores [T, T].
        """
        normed = self.ln_1(x)
        x = x + self.attn(normed, normed, normed, need_weights=False, attn_mask=attn_mask)[0]
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


class Transformer(nn.Module):
    """A stack of blocks."""

    def __init__(self, width: int, layers: int, heads: int, ratio: float) -> None:
        super().__init__()
        self.resblocks = nn.ModuleList(ResidualBlock(width, heads, ratio) for _ in range(layers))

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        """Compute the tokens after the last block.

        Args:
            x: The tokens [n, T, W].
            attn_mask: Mask that is added to the scores [T, T].
        """
        for block in self.resblocks:
            x = block(x, attn_mask)
        return x


class PlainVision(nn.Module):
    """A Vision Transformer that is read at its CLS token.

    Args:
        dim: The dimension of the embedding.
        config: Configuration of the image encoder, open_clip's `vision_cfg`.
    """

    attn_pool, pool_type = None, "tok"

    def __init__(self, dim: int, config: dict[str, Any]) -> None:
        super().__init__()
        size, patch, width = config["image_size"], config["patch_size"], config["width"]
        self.image_size = (size, size)
        self.conv1 = nn.Conv2d(3, width, patch, patch, bias=False)
        self.class_embedding = nn.Parameter(torch.zeros(width))
        self.positional_embedding = nn.Parameter(torch.zeros((size // patch) ** 2 + 1, width))
        self.ln_pre, self.ln_post = nn.LayerNorm(width), nn.LayerNorm(width)
        heads, ratio = width // config["head_width"], config["mlp_ratio"]
        self.transformer = Transformer(width, config["layers"], heads, ratio)
        self.proj = nn.Parameter(torch.zeros(width, dim))

    def forward(self, pixels: Tensor) -> Tensor:
        """Compute embeddings [n, dim] of pixels [n, 3, s, s]."""
        patches = self.conv1(pixels).flatten(2).transpose(1, 2)
        cls = self.class_embedding.expand(len(patches), 1, -1)
        x = self.ln_pre(torch.cat([cls, patches], dim=1) + self.positional_embedding)
        out: Tensor = self.ln_post(self.transformer(x)[:, 0]) @ self.proj
        return out


class PlainCLIP(nn.Module):
    """Both encoders.

    Args:
        embed_dim: The dimension of embeddings.
        vision_cfg: Configuration of the image encoder, as in open_clip.
        text_cfg: Configuration of the text encoder, as in open_clip.
        quick_gelu: Has no effect: no bundled model uses it.
    """

    attn_mask: Tensor
    text_pool_type, text_eos_id, logit_bias = "argmax", None, None

    def __init__(
        self, embed_dim: int, vision_cfg: dict[str, Any], text_cfg: dict[str, Any], quick_gelu: bool = False
    ) -> None:
        super().__init__()
        self.visual = PlainVision(embed_dim, vision_cfg)
        width, context = text_cfg["width"], text_cfg["context_length"]
        self.transformer = Transformer(width, text_cfg["layers"], text_cfg["heads"], 4.0)
        words = torch.zeros(text_cfg["vocab_size"], width)  # random ones take a tenth of a second
        self.token_embedding = nn.Embedding(text_cfg["vocab_size"], width, _weight=words)
        self.positional_embedding = nn.Parameter(torch.zeros(context, width))
        self.ln_final = nn.LayerNorm(width)
        self.text_projection = nn.Parameter(torch.zeros(width, embed_dim))
        later = torch.full((context, context), float("-inf")).triu(1)
        self.register_buffer("attn_mask", later, persistent=False)
        self.logit_scale = nn.Parameter(torch.zeros(()))

    def encode_image(self, pixels: Tensor, normalize: bool = False) -> Tensor:
        """Compute embeddings [n, dim].

        Args:
            pixels: [n, 3, s, s].
            normalize: Give them unit length.
        """
        out: Tensor = self.visual(pixels)
        return F.normalize(out, dim=-1) if normalize else out

    def encode_text(self, tokens: Tensor, normalize: bool = False) -> Tensor:
        """Compute embeddings [n, dim].

        Args:
            tokens: Token numbers [n, context].
            normalize: Give them unit length.
        """
        x = self.token_embedding(tokens) + self.positional_embedding
        x = self.ln_final(self.transformer(x, self.attn_mask))
        out: Tensor = x[torch.arange(len(x)), tokens.argmax(-1)] @ self.text_projection
        return F.normalize(out, dim=-1) if normalize else out
