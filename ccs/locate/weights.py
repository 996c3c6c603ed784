"""SITH (Gentile et al. 2026, arXiv 2603.24653): heads by the singular vectors of their weights, no images.

The product of a head's value and output weights has singular vectors, the directions that it writes, and
singular values, how strongly. Each direction is explained by a sparse, coherent, non-negative combination of
texts (COMP). The source asks a language model which explanations are about a concept; here those are that use
texts which name the groups. It also subtracts the mean embedding of images; here no image is needed.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import nnls

from ccs.errors import InputError
from ccs.heads import Head
from ccs.locate.base import Evidence, Scores
from ccs.measures.stats import Floats
from ccs.model.model import Model

TEXTS, COHERENCE = 5, 0.3


def weights(evidence: Evidence) -> Scores:
    """The part of the explanations that name the groups, weighted by the squares of the singular values."""
    names = [text for texts in evidence.names.values() for text in texts]
    embeddings = [evidence.model.embed_texts(names), evidence.reading.pool_embeddings]
    dictionary = np.concatenate(embeddings).astype(np.float64)
    dictionary -= dictionary.mean(axis=0)
    dictionary /= np.maximum(np.linalg.norm(dictionary, axis=1, keepdims=True), 1e-12)
    found = {}
    for head in evidence.model.heads:
        _, strengths, directions = np.linalg.svd(value_output(evidence.model, head), full_matrices=False)
        kept = strengths > 1e-6 * strengths[0]
        explained = [coherent(one, dictionary) for one in directions[kept]]
        named = [one[: len(names)].sum() / max(one.sum(), 1e-12) for one in explained]
        found[head] = float(np.average(named, weights=strengths[kept] ** 2))
    return found


def value_output(model: Model, head: Head) -> Floats:
    """The head's value weights times its directions in the embedding space [W, D].

    InputError for a layer that has no value weights of its own.
    """
    layer = model.tower.layers[head.layer]
    heads = getattr(layer, "heads", None)
    if heads is None:
        raise InputError(f"SITH reads the value weights of blocks, and {head} is in a pool.")
    parts = heads.projections()
    values = parts[2][0] if len(parts) == 3 else parts[0][0].chunk(3)[2]
    own = slice(head.head * layer.head_dim, (head.head + 1) * layer.head_dim)
    with torch.no_grad():
        written = model.tower.basis(head)[: layer.head_dim]
        return np.asarray((values[own].T.float() @ written.float()).cpu().numpy(), np.float64)


def coherent(direction: Floats, texts: Floats, most: int = TEXTS) -> Floats:
    """Non-negative weights [texts] of at most `most` unit texts [texts, d] whose sum is near the direction.

    Each next text is the one with the largest product with what is left, plus COHERENCE times its mean cosine
    with those chosen before.
    """
    chosen: list[int] = []
    left, found = direction, np.zeros(len(texts))
    for _ in range(min(most, len(texts))):
        products = texts @ left
        if chosen:
            products = products + COHERENCE * (texts @ texts[chosen].mean(axis=0))
        products[chosen] = -np.inf
        chosen.append(int(products.argmax()))
        amounts, _ = nnls(texts[chosen].T, direction)
        left = direction - amounts @ texts[chosen]
    found[chosen] = amounts
    return found
