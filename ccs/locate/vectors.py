"""Concept activation vectors from texts alone, as in the mechanistic fairness audit (arXiv 2603.11793).

The texts that name the groups span the concept's directions; a head's score is how much its contribution
varies along them from person to person.
"""

from __future__ import annotations

import numpy as np

from ccs.locate.base import Evidence, Scores, by_head


def concept_vectors(evidence: Evidence) -> Scores:
    """Standard deviation of each head's contribution along the directions that separate the groups' texts."""
    means = np.stack([evidence.model.embed_texts(texts).mean(axis=0) for texts in evidence.names.values()])
    _, strength, directions = np.linalg.svd(means - means.mean(axis=0), full_matrices=False)
    kept = directions[strength > 1e-6 * strength[0]]
    along = evidence.seen[1] @ kept.T
    return by_head(evidence, np.sqrt(along.var(axis=0, dtype=np.float64).sum(axis=-1)))
