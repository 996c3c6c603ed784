"""Which concepts a head could be seen to know: the CCS of heads that write the texts of what is shown.

An ideal head writes the text of its concept's value that a card shows, less the mean over the values, and
nothing where the card shows none. If such a head does not have a high CCS, no head can, and the texts of its
concept do not stand apart from others for this model.
"""

from __future__ import annotations

import numpy as np

from ccs.heads import Head, HeadSet
from ccs.model.head_statistics import Moments
from ccs.model.model import Model
from ccs.synthetic import scene
from ccs.texts.labels import score_by_tags
from ccs.texts.pools import Pool
from ccs.texts.score import HeadScore
from ccs.texts.textspan import Span, textspan
from research.world.head_lessons import CONCEPTS, concept_texts, value_of


def contributions(model: Model, concept: str, cards: int) -> np.ndarray:
    """Compute what an ideal head writes for the first scenes, float64 [cards, D].

    Args:
        model: the model.
        concept: one of CONCEPTS.
        cards: number of scenes.
    """
    texts = concept_texts(concept)
    vectors = model.embed_texts(list(texts.values())).astype(np.float64)
    written = dict(zip(texts, vectors - vectors.mean(axis=0), strict=True))
    nothing = np.zeros(vectors.shape[1])
    return np.array([written.get(value_of(concept, scene(seed)), nothing) for seed in range(cards)])


def ideal_scores(
    model: Model, pool: Pool, k: int = 5, cards: int = 3_000
) -> dict[str, tuple[HeadScore, tuple[Span, ...]]]:
    """Label and score each concept's ideal head.

    Args:
        model: the model.
        pool: texts for TEXTSPAN.
        k: texts per head.
        cards: number of scenes.

    Returns:
        Concept -> the label and CCS by `tags`, and the texts.
    """
    embeddings, scores = model.embed_texts(list(pool.texts)), {}
    head = Head(0, 0)
    for concept in CONCEPTS:
        rows = contributions(model, concept, cards)
        _, _, basis = np.linalg.svd(rows, full_matrices=False)
        basis = basis[: model.encoder.rank(next(iter(model.heads)))]
        inside = rows @ basis.T
        moments = Moments(
            model.weights_hash,
            HeadSet([head]),
            len(basis),
            cards,
            [inside.sum(axis=0)],
            [inside.T @ inside],
            [basis.astype(np.float32)],
        )
        spans = textspan(moments, pool.texts, embeddings, k)
        scores[concept] = (score_by_tags(spans, pool)[head], spans[head])
    return scores
