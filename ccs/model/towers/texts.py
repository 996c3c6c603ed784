"""Text towers: open_clip's own, as in CLIP, SigLIP and MetaCLIP 2.

A text is read at one token. The stem puts that token first, so that its tower is one with a CLS token. In a
causal tower a token sees only those before it, so those after the one that is read are left out.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ccs.model.towers.openclip import block
from ccs.model.towers.parts import Module, Unknown
from ccs.model.towers.readouts import Linear, OneNorm, Parts

ReadAt = Callable[[Tensor], Tensor]
"""Numbers of tokens [n, T] -> the place [n] at which each text is read."""


def take_apart(clip: Module) -> tuple[Parts, ReadAt]:
    """The parts of a model's text tower, and where its texts are read. Raises Unknown."""
    text = text_of(clip)
    if text is None:
        inner = getattr(getattr(clip, "text", clip), "transformer", clip)
        raise Unknown(f"it is {type(inner).__name__}, whose heads are not known here")
    if getattr(text, "cls_emb", None) is not None or getattr(text, "use_pad_mask", False):
        raise Unknown("it masks the padding of each text")
    causal = text.attn_mask is not None
    pool = text.text_pool_type if hasattr(text, "text_pool_type") else text.pool_type
    end = text.text_eos_id if hasattr(text, "text_eos_id") else text.eos_id
    places: dict[str, ReadAt] = {
        "first": lambda tokens: torch.zeros(len(tokens), dtype=torch.long),
        "last": lambda tokens: torch.full((len(tokens),), tokens.shape[1] - 1),
        "argmax": lambda tokens: tokens.argmax(dim=-1),
        "eos": lambda tokens: (tokens == end).int().argmax(dim=-1),
    }
    if pool not in places:
        raise Unknown(f"its pooling is {pool!r}")
    read_at = places[pool]

    def stem(tokens: Tensor) -> Tensor:
        place = int(read_at(tokens[:1])[0])
        x: Tensor = (
            text.token_embedding(tokens).float() + text.positional_embedding[: tokens.shape[1]].float()
        )
        before = x[:, : place + 1].flip(1)
        return before if causal else torch.cat([before, x[:, place + 1 :]], dim=1)

    def later(tokens: int) -> Tensor:
        # In reverse order a token sees those behind it.
        full = torch.full((1, 1, tokens, tokens), float("-inf"), device=text.positional_embedding.device)
        return full.tril(-1)

    projection = text.text_projection
    linear = (
        Linear(lambda: projection.weight.T, lambda: projection.bias)
        if isinstance(projection, nn.Linear)
        else Linear(lambda: text.text_projection)
    )
    context, width = text.positional_embedding.shape
    blocks = text.transformer.resblocks
    return Parts(
        stem=stem,
        blocks=[block(one, later if causal else None) for one in blocks],
        readout=OneNorm(text.ln_final, linear, len(blocks)),
        width=int(width),
        dim=linear.dim(int(width)),
        tokens=int(context),
        prefix=1,
        image_size=(0, 0),
    ), read_at


def text_of(clip: Module) -> Module | None:
    """The module that holds open_clip's own text tower: a CLIP itself, or a part of it."""
    from open_clip.model import CLIP
    from open_clip.transformer import TextTransformer

    text = clip if isinstance(clip, CLIP) else getattr(clip, "text", clip)
    return text if isinstance(text, CLIP | TextTransformer) else None
