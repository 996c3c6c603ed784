"""Heads by their texts: CCS (the study's claim), labels, and TEXTSPAN with texts that name the groups.

The last is from the mechanistic fairness audit (arXiv 2603.11793): texts that name the groups are added to
the pool, and a head's score is the share of its variance explained by those of them that it picks.
"""

from __future__ import annotations

import math

import numpy as np

from ccs.heads import Head
from ccs.locate.base import Evidence, Scores
from ccs.texts import concepts
from ccs.texts.textspan import textspan

PEOPLE = "People"


def ccs_high(evidence: Evidence) -> Scores:
    """High CCS first, ties by the share of variance that the texts explain; heads of unknown CCS last."""
    return {
        head: -1.0 if score.ccs is None else score.ccs + min(_explained(evidence, head), 0.999)
        for head, score in evidence.scores.items()
    }


def ccs_low(evidence: Evidence) -> Scores:
    """Low CCS first, the reverse of `ccs_high`; heads of unknown CCS last."""
    known = ccs_high(evidence)
    return {head: -score if score >= 0 else -math.inf for head, score in known.items()}


def label(evidence: Evidence) -> Scores:
    """Heads labeled People or a concept below it first, ties by the share that texts about people explain."""
    tree = concepts.tree()

    def about_people(concept: str | None) -> bool:
        return concept is not None and tree.is_under(concept, PEOPLE)

    return {
        head: about_people(score.label)
        + sum(
            span.share
            for span in evidence.spans.get(head, ())
            if about_people(evidence.pool.concept_of(span.text))
        )
        for head, score in evidence.scores.items()
    }


def group_texts(evidence: Evidence, k: int = 5) -> Scores:
    """The share of each head's variance explained by texts that name the groups, among the k it picks."""
    added = [text for texts in evidence.names.values() for text in texts]
    wanted = {text.casefold() for text in added}
    # The added texts come first, since TEXTSPAN drops the later of two equal texts.
    embeddings = np.concatenate([evidence.model.embed_texts(added), evidence.pool_embeddings])
    found = textspan(evidence.moments, [*added, *evidence.pool.texts], embeddings, k)
    return {
        head: sum(span.share for span in spans if span.text.casefold() in wanted)
        for head, spans in found.items()
    }


def _explained(evidence: Evidence, head: Head) -> float:
    return sum(span.share for span in evidence.spans.get(head, ()))
