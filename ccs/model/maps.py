"""Maps over an image's patches: where a head looks, and what it writes from there along a text.

A tower has places where its tokens, the CLS token and registers apart, are a grid of patches. What a token
sends is exact (`Decomposition.by_token`): over all tokens it sums to the head's contribution.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ccs.errors import InputError
from ccs.heads import HeadSet, Intervention
from ccs.model.model import Images, Model, load


def attention(
    model: Model | str,
    images: Images,
    heads: HeadSet | str | None = None,
    *,
    ablate: HeadSet | str | None = None,
    batch_size: int | None = None,
) -> np.ndarray:
    """Where heads look: attention to each patch, [images, heads, rows, columns] float32.

    It is that of the query which is read out, the CLS token's or the pool's; otherwise the mean over all
    queries. Its sum is at most 1: the rest goes to tokens that are no patches. model: from `ccs.load`, or
    what it takes. heads: names or a HeadSet, in their order by layer and number; by default `model.heads`.
    ablate: heads to ablate meanwhile. Raises InputError for a head that the model does not have and for a
    tower whose tokens are no grid.

        >>> from ccs import load, open_images
        >>> model, images = load("organism"), list(open_images("world", 2).images)
        >>> attention(model, images, "L7.H1 L7.H2").shape
        (2, 2, 6, 6)
    """
    model = load(model) if isinstance(model, str) else model
    chosen, tower = _chosen(model, heads), model.tower.without(Intervention.of(ablate))
    out = np.empty((len(images), len(chosen), model.tower.n_tokens), np.float32)
    for rows, part in model.batches(images, batch_size):
        found = []  # of each layer [n, heads, T]
        for layer in chosen.layers:
            part = tower.trunk(part, layer)
            found.append(tower.attention(part, layer)[:, list(chosen.in_layer(layer))].cpu().numpy())
        out[rows] = np.concatenate(found, axis=1)
    return _on_patches(model, out)


def heatmap(
    model: Model | str,
    images: Images,
    texts: Sequence[str] | np.ndarray,
    heads: HeadSet | str | None = None,
    *,
    against: Sequence[str] = (),
    apart: bool = False,
    ablate: HeadSet | str | None = None,
    batch_size: int | None = None,
) -> np.ndarray:
    """What each patch sends through heads along texts: [images, texts, rows, columns] float32.

    Summed over the patches and the tokens that are no patches, it is the heads' part of the cosine between
    image and text. texts: or any vectors [texts, dim]. heads: as in `attention`; their maps are summed, or,
    with `apart`, each is kept: [images, texts, heads, rows, columns]. against: contrasting texts, whose mean
    embedding is subtracted from every text's: `heatmap(model, images, ["a dog"], against=["a cat"])` is what
    speaks for a dog rather than a cat. ablate: heads to ablate, which then send nothing, or are scaled,
    and send so much less or more. A head's share of biases comes from no place and is spread evenly. Always
    float32. Errors: as `attention`.

        >>> from ccs import load, open_images
        >>> model, images = load("organism"), list(open_images("world", 2).images)
        >>> heatmap(model, images, ["a red cat"]).shape
        (2, 1, 6, 6)
    """
    model = load(model) if isinstance(model, str) else model
    along = texts if isinstance(texts, np.ndarray) else model.embed_texts(texts)
    along = along - model.embed_texts(against).mean(0) if len(against) else along
    chosen, ablation = _chosen(model, heads), Intervention.of(ablate)
    tower = model.tower.without(ablation)
    factors = {head: tower.factor(head) for head in chosen}
    on = HeadSet(head for head in chosen if factors[head])
    vectors = torch.from_numpy(np.ascontiguousarray(along, np.float32)).to(tower.device)
    row = {head: number for number, head in enumerate(chosen)}
    out = np.zeros((len(images), len(along), len(chosen) if apart else 1, tower.n_tokens), np.float32)
    for rows, part in model.batches(images, batch_size):
        _, readout = tower.embed_and_read(part, heads=chosen, entering=True)
        for layer in on.layers:
            heads_on = on.of_layer(layer)
            # One at a time, so memory does not grow with the heads.
            for head, sent in zip(heads_on, tower.by_token(readout, heads_on, vectors), strict=True):
                out[rows, :, row[head] if apart else 0] += sent.cpu().numpy() * factors[head]
    return _on_patches(model, out if apart else out[:, :, 0])


def _on_patches(model: Model, values: np.ndarray) -> np.ndarray:
    """Values of tokens [..., tokens] as the grid of the patches [..., rows, columns].

    Raises InputError where the model's tokens are no grid.
    """
    height, width = model.tower.image_size
    patches = model.tower.n_tokens - model.tower.prefix
    rows = round((patches * height / width) ** 0.5)
    if rows < 1 or patches % rows:
        raise InputError(f"{model.name} has no maps: its {patches} tokens are no grid of an image's patches.")
    return values[..., model.tower.prefix :].reshape(*values.shape[:-1], rows, patches // rows)


def _chosen(model: Model, heads: HeadSet | str | None) -> HeadSet:
    chosen = model.heads if heads is None else HeadSet(Intervention.of(heads))
    model.tower.require(chosen)
    if not chosen:
        raise InputError("No head is named; write them as in L8.H11 L9.H2.")
    return chosen
