"""The text tower without the padding: texts are embedded only as far as they are read."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def lengths(clip: Any, tokens: Tensor) -> Tensor:
    """The number [n] of tokens to read of each text, from tokens [n, context].

    In CLIP's own text tower a token attends only to those before it, and a text is read out at its last one,
    which has the largest number; later tokens change nothing. Other towers read all tokens.
    """
    if not _causal(clip):
        return torch.full((len(tokens),), tokens.shape[1])
    return tokens.argmax(dim=-1).cpu() + 1


def embed(clip: Any, tokens: Tensor, length: int) -> Tensor:
    """Unit embeddings [n, dim] from the first `length` tokens of each row of tokens [n, context]."""
    if not _causal(clip):
        rows: Tensor = clip.encode_text(tokens, normalize=True)
        return rows
    tokens, kind = tokens[:, :length], clip.transformer.get_cast_dtype()
    x = clip.token_embedding(tokens).to(kind) + clip.positional_embedding[:length].to(kind)
    x = clip.ln_final(clip.transformer(x, attn_mask=clip.attn_mask[:length, :length]))
    x = x[torch.arange(len(x), device=x.device), tokens.argmax(dim=-1)]
    project = clip.text_projection
    if project is not None:
        x = project(x) if isinstance(project, torch.nn.Linear) else x @ project
    return functional.normalize(x, dim=-1)


def _causal(clip: Any) -> bool:
    from open_clip.model import CLIP

    return isinstance(clip, CLIP) and clip.text_pool_type == "argmax" and clip.attn_mask is not None
