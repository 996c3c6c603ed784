"""Heads switched off in a model of the user's own, for the length of a `with` block.

What a head adds to the residual stream passes through its columns of the attention's output projection. With
these at zero the head adds nothing, later layers see that, and the projection's bias stays: the total effect,
as of `embed_images(images, off)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ccs.errors import InputError
from ccs.heads import HeadSet

_WRAPPERS = ("_orig_mod", "module")
"""Where torch.compile and the parallel wrappers keep the model."""


@contextmanager
def heads_off(model: Any, heads: HeadSet | str) -> Iterator[HeadSet]:
    """Switch off heads of the image tower of `model`; afterwards its weights are as before, to the bit.

        with ccs.heads_off(model, "L10.H3 L11.H6"):
            features = model.encode_image(pixels)

    model: open_clip's CLIP, CoCa or image tower; transformers' CLIPModel, CLIPVisionModel (with or without
    projection), SiglipModel or SiglipVisionModel; or what `ccs.load` returns. heads: names or a HeadSet, of
    any layer; layers and heads count from 0, and a pool is the layer after the last block. Nested blocks add
    up. The weights are changed in place, so nothing else should use or save the model meanwhile.

    Raises InputError for a head that the model does not have, or a model without heads that can be told
    apart.
    """
    off = HeadSet.parse(heads) if isinstance(heads, str) else HeadSet(heads)
    layers = _layers(model)
    for head in off:
        if head.layer >= len(layers) or head.head >= layers[head.layer][0]:
            counts = ", ".join(f"L{number}: {count}" for number, (count, _) in enumerate(layers))
            raise InputError(f"{head} is outside this model; the number of heads in each layer is {counts}.")
    changed: list[tuple[Tensor, Tensor, Tensor]] = []
    try:
        with torch.no_grad():
            for number in sorted({head.layer for head in off}):
                count, weight = layers[number]
                rows = torch.arange(weight.shape[1], device=weight.device).reshape(count, -1)
                columns = rows[list(off.in_layer(number))].flatten()
                changed.append((weight, columns, weight[:, columns].clone()))
                weight[:, columns] = 0
        yield off
    finally:
        with torch.no_grad():
            for weight, columns, before in changed:
                weight[:, columns] = before


def _layers(model: Any) -> list[tuple[int, Tensor]]:
    """The number of heads of every layer, and the weight [W, H d] that reads their outputs."""
    if isinstance(model, str):
        raise InputError("heads_off takes a model, not its name; load it first.")
    for name in _WRAPPERS:
        model = getattr(model, name, model)
    model = getattr(model, "clip", model)  # what ccs.load returns
    tower = getattr(model, "vision_model", getattr(model, "visual", model))
    if hasattr(tower, "encoder") and hasattr(tower, "embeddings"):
        found = _of_transformers(tower)
    else:
        from ccs.model.towers import take_apart

        found = [(layer.n_heads, layer.projection.weight) for layer in take_apart(tower).layers]
    for _, weight in found:
        if not weight.is_floating_point() or weight.is_meta:
            raise InputError(
                "The model's weights are quantized or not loaded, so no head can be switched off."
            )
    return found


def _of_transformers(tower: Any) -> list[tuple[int, Tensor]]:
    try:
        _, layers = tower.embeddings.patch_embedding, tower.encoder.layers  # a tower of texts has no patches
        attentions = [layer.self_attn for layer in layers]
        if (pool := getattr(tower, "head", None)) is not None:  # SigLIP's
            attentions.append(pool.attention)
        return [(int(each.num_heads), each.out_proj.weight) for each in attentions]
    except AttributeError:
        kind = f"{type(tower).__name__} is not built like CLIP's or SigLIP's tower"
        raise InputError(f"{kind}, so its heads cannot be told apart.") from None
