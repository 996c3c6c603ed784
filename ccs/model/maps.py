"""Maps over an image's patches: where a head looks, and what it writes from there along a text.

An encoder has maps if its tokens, except for the CLS token and registers, are a grid of patches. What a token
sends is exact (`Decomposition.by_token`): over all tokens it sums to the head's contribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ccs.errors import InputError
from ccs.heads import Heads, HeadSet, Intervention
from ccs.model.inputs import as_sequence
from ccs.model.model import Images, Model, load


def attention(
    model: Model | str,
    images: Images,
    heads: Heads | None = None,
    *,
    ablate: Heads | None = None,
    batch_size: int | None = None,
) -> np.ndarray:
    """Map where heads look: their attention to each patch.

    It is the attention of the query that is read out, the CLS token's or the pool's; otherwise the mean over
    all queries. Its sum is at most 1: tokens that aren't patches get the remainder.

    Args:
        model: A model from `ccs.load`, or its name.
        images: Images, pixels, or a trunk.
        heads: The heads to map, in their order by layer and number. By default `model.heads`.
        ablate: Heads to ablate.
        batch_size: Images in a batch.

    Returns:
        [images, heads, rows, columns], float32.

    Raises:
        InputError: If the model lacks a head, or its tokens aren't a grid.

    Examples:
        >>> from ccs import load, open_images
        >>> model, images = load("organism"), list(open_images("world", 2).images)
        >>> attention(model, images, "L7.H1 L7.H2").shape
        (2, 2, 6, 6)
    """
    model, images = load(model) if isinstance(model, str) else model, as_sequence(images)
    mapped, encoder = _mapped(model, heads), model.encoder.ablated(Intervention.from_heads(ablate))
    maps = np.empty((len(images), len(mapped), model.encoder.n_tokens), np.float32)
    for rows, part in model.batches(images, batch_size):
        by_layer = []  # of each layer [n, heads, T]
        for layer in mapped.layers:
            part = encoder.trunk(part, layer)
            weights = encoder.attention(part, layer)[:, list(mapped.in_layer(layer))]
            by_layer.append(weights.cpu().numpy())
        maps[rows] = np.concatenate(by_layer, axis=1)
    return _on_patches(model, maps)


def heatmap(
    model: Model | str,
    images: Images,
    texts: Sequence[str] | np.ndarray,
    heads: Heads | None = None,
    *,
    against: Sequence[str] = (),
    apart: bool = False,
    ablate: Heads | None = None,
    batch_size: int | None = None,
) -> np.ndarray:
    """Map what each patch sends through heads along texts, always in float32.

    Summed over all tokens it is the heads' part of the cosine between image and text. A head's share of
    biases comes from no patch, so it is spread evenly.

    Args:
        model: A model from `ccs.load`, or its name.
        images: Images, pixels, or a trunk.
        texts: Texts, or vectors of the embedding space: [texts, dim] or [dim].
        heads: The heads to map, by default `model.heads`.
        against: Contrasting texts, whose mean embedding is subtracted from each text's: `heatmap(model,
            images, ["a dog"], against=["a cat"])` maps the evidence for a dog rather than a cat.
        apart: Keep the heads' maps apart in place of their sum.
        ablate: Heads to ablate, which then send nothing, or to scale.
        batch_size: Images in a batch.

    Returns:
        [images, texts, rows, columns] float32, or [images, texts, heads, rows, columns] if `apart`.

    Raises:
        InputError: As in `attention`, and if vectors don't have the model's dimension or aren't finite.

    Examples:
        >>> from ccs import load, open_images
        >>> model, images = load("organism"), list(open_images("world", 2).images)
        >>> heatmap(model, images, ["a red cat"]).shape
        (2, 1, 6, 6)
    """
    model, images = load(model) if isinstance(model, str) else model, as_sequence(images)
    vectors, contrasts = _vectors(model, texts), as_sequence(against)
    if len(contrasts):
        vectors = vectors - model.embed_texts(contrasts).mean(0)
    mapped, encoder = _mapped(model, heads), model.encoder.ablated(Intervention.from_heads(ablate))
    sending = HeadSet(head for head in mapped if encoder.passed_on(head).any())
    along = torch.from_numpy(np.ascontiguousarray(vectors, np.float32)).to(encoder.device)
    row = {head: number for number, head in enumerate(mapped)}
    shape = (len(images), len(vectors), len(mapped) if apart else 1, encoder.n_tokens)
    maps = np.zeros(shape, np.float32)
    for rows, part in model.batches(images, batch_size):
        _, readout = encoder.embed_and_read(part, heads=mapped, entering=True)
        for layer in sending.layers:
            layer_heads = sending.of_layer(layer)
            # One head at a time, so memory does not grow with the heads.
            for head, sent in zip(layer_heads, encoder.by_token(readout, layer_heads, along), strict=True):
                maps[rows, :, row[head] if apart else 0] += sent.cpu().numpy()
    return _on_patches(model, maps if apart else maps[:, :, 0])


def _vectors(model: Model, texts: Any) -> np.ndarray:
    """Return embeddings of texts, or vectors [texts, dim] unchanged; InputError if they don't fit."""
    if isinstance(texts, Tensor):
        texts = texts.detach().cpu().numpy()
    if not isinstance(texts, np.ndarray) or texts.dtype.kind in "OUS":
        return model.embed_texts(texts)
    vectors = np.atleast_2d(texts)
    if vectors.ndim != 2 or vectors.shape[1] != model.dim:
        raise InputError(f"Vectors must be [texts, {model.dim}] for {model.name}, not {list(texts.shape)}.")
    if not np.isfinite(vectors).all():
        raise InputError("The vectors must be finite numbers.")
    return vectors


def _on_patches(model: Model, values: np.ndarray) -> np.ndarray:
    """Arrange values of tokens [..., tokens] as the grid of the patches [..., rows, columns].

    Raises:
        InputError: If the model's tokens aren't a grid.
    """
    height, width = model.encoder.image_size
    patches = model.encoder.n_tokens - model.encoder.prefix
    rows = round((patches * height / width) ** 0.5)
    if rows < 1 or patches % rows:
        raise InputError(f"{model.name} has no maps: its {patches} tokens aren't a grid of patches.")
    return values[..., model.encoder.prefix :].reshape(*values.shape[:-1], rows, patches // rows)


def _mapped(model: Model, heads: Heads | None) -> HeadSet:
    """Return the heads to map; InputError if there are none or the model lacks one."""
    mapped = model.heads if heads is None else HeadSet(Intervention.from_heads(heads))
    model.encoder.require_heads(mapped)
    if not mapped:
        raise InputError("Expected at least one head, such as L8.H11; got none.")
    return mapped
