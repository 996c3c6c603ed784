"""Texts through a model's text tower, without the padding that nothing reads."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def lengths(clip: Any, tokens: Tensor) -> Tensor:
    """How many of each text's tokens [n, context] have to be read: [n] of whole numbers.

    In CLIP's own text tower a token looks at those before it alone, and a text is read off its last one, the
    largest number; what follows changes nothing. Other towers read all.
    """
    if not _causal(clip):
        return torch.full((len(tokens),), tokens.shape[1])
    return tokens.argmax(dim=-1).cpu() + 1


def embed(clip: Any, tokens: Tensor, length: int) -> Tensor:
    """Unit embeddings [n, dim] of tokens [n, context], of which the first `length` are read."""
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
