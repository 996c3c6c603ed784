"""Head Pursuit (Basile et al. 2025, arXiv 2510.21518): heads whose outputs a concept's texts rebuild.

Simultaneous orthogonal matching pursuit writes what a head contributes to all people as a combination of
texts from a dictionary restricted to the concept; heads are ranked by the share that is rebuilt. The source
works on the token embeddings of generative models. Here the dictionary holds the texts that name the groups,
and the contributions are taken less their mean, without which a head that writes the same to everybody would
come first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ccs.locate.base import Evidence, Scores, by_head
from ccs.measures.stats import Floats

TEXTS = 5
"""The most texts in a combination."""


def pursuit(evidence: Evidence) -> Scores:
    """The share of the variance of the head's contributions that texts naming the groups rebuild."""
    names = [text for texts in evidence.names.values() for text in texts]
    texts = evidence.model.embed_texts(names).astype(np.float64)
    parts = evidence.seen[1].astype(np.float64)
    parts -= parts.mean(axis=0)
    return by_head(evidence, [rebuilt(parts[:, row], texts) for row in range(parts.shape[1])])


def rebuilt(rows: Floats, texts: Floats, most: int = TEXTS) -> float:
    """The share of the squares of rows [n, d] in the span of `most` texts [texts, d], chosen one at a time.

    Each time it is the text with the largest sum of absolute products with what is left of the rows.
    """
    whole = float(np.square(rows).sum())
    chosen: list[int] = []
    left: NDArray[np.float64] = rows
    for _ in range(min(most, len(texts))):
        products = np.abs(left @ texts.T).sum(axis=0)
        products[chosen] = -1.0
        chosen.append(int(products.argmax()))
        weights = np.linalg.lstsq(texts[chosen].T, rows.T, rcond=None)[0]
        left = rows - weights.T @ texts[chosen]
    return 1 - float(np.square(left).sum()) / whole if whole else 0.0
