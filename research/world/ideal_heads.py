"""The upper limit of CCS for each concept: the CCS of ideal heads.

An ideal head's output is the text embedding of its concept's value that a scene shows, minus the mean over
values; it is zero if the scene doesn't show the concept. If an ideal head doesn't have a high CCS, no head
can: the model's text embeddings don't separate that concept's texts from others.
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
    """Compute the output of an ideal head for the first scenes, float64 [scenes, D].

    Args:
        model: The model.
        concept: One of CONCEPTS.
        cards: Number of scenes.
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
        model: The model.
        pool: Texts for TEXTSPAN.
        k: Number of texts per head.
        cards: Number of scenes.

    Returns:
        Concept -> label and CCS by `tags`, and the texts.
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
