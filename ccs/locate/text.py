"""Heads by texts: CCS (the study's claim), labels, and texts that name the groups.

The last are the mechanistic fairness audit's (Yasser et al. 2026, arXiv 2603.11793). Concept activation
vectors: the texts that name the groups span the concept's directions, and a head's score is how much its
contribution varies along them from person to person. TEXTSPAN with these texts added to the pool: a head's
score is the share of its variance that those of them explain which it picks. The audit takes heads that both
parts point to.
"""

from __future__ import annotations

import math

import numpy as np

from ccs.heads import Head
from ccs.locate.base import Evidence, Scores, by_head
from ccs.texts import concepts
from ccs.texts.textspan import textspan

PEOPLE = "People"


def ccs_high(evidence: Evidence) -> Scores:
    """High CCS first, ties by the share of variance that the texts explain; heads of unknown CCS last."""
    return {
        head: -1.0 if score.ccs is None else score.ccs + min(_explained(evidence, head), 0.999)
        for head, score in evidence.reading.scores.items()
    }


def ccs_low(evidence: Evidence) -> Scores:
    """Low CCS first, the reverse of `ccs_high`; heads of unknown CCS last."""
    known = ccs_high(evidence)
    return {head: -score if score >= 0 else -math.inf for head, score in known.items()}


def label(evidence: Evidence) -> Scores:
    """Heads labeled People or a concept below it first, ties by the share that texts about people explain."""
    tree = concepts.tree()

    def about_people(concept: str | None) -> bool:
        return concept is not None and tree.is_under(tree.find(concept) or concept, PEOPLE)

    return {
        head: about_people(score.label)
        + sum(
            span.share
            for span in evidence.reading.spans.get(head, ())
            if about_people(evidence.reading.pool.concept_of(span.text))
        )
        for head, score in evidence.reading.scores.items()
    }


def _explained(evidence: Evidence, head: Head) -> float:
    return sum(span.share for span in evidence.reading.spans.get(head, ()))


def concept_vectors(evidence: Evidence) -> Scores:
    """Standard deviation of each head's contribution along the directions that separate the groups' texts."""
    means = np.stack([evidence.model.embed_texts(texts).mean(axis=0) for texts in evidence.names.values()])
    _, strength, directions = np.linalg.svd(means - means.mean(axis=0), full_matrices=False)
    kept = directions[strength > 1e-6 * strength[0]]
    along = evidence.seen[1] @ kept.T
    return by_head(evidence, np.sqrt(along.var(axis=0, dtype=np.float64).sum(axis=-1)))


def group_texts(evidence: Evidence, k: int = 5) -> Scores:
    """The share of each head's variance explained by texts that name the groups, among the k it picks."""
    reading = evidence.reading
    added = [text for texts in evidence.names.values() for text in texts]
    wanted = {text.casefold() for text in added}
    # The added texts come first, since TEXTSPAN drops the later of two equal texts.
    embeddings = np.concatenate([evidence.model.embed_texts(added), reading.pool_embeddings])
    found = textspan(reading.moments, [*added, *reading.pool.texts], embeddings, k)
    return {
        head: sum(span.share for span in spans if span.text.casefold() in wanted)
        for head, spans in found.items()
    }


def audit(evidence: Evidence) -> Scores:
    """Heads that pass both filters first, then the others, each by concept activation vectors.

    The filters: a score above the heads' mean, and a text that names a group among those that the head picks.
    """
    vectors, texts = concept_vectors(evidence), group_texts(evidence)
    mean, most = np.mean(list(vectors.values())), max(vectors.values())
    return {
        head: float(value > mean and texts[head] > 0) + (value / most if most else 0.0)
        for head, value in vectors.items()
    }
