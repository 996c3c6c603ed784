"""Heads by what their texts say: CCS (the study's claim), labels, and TEXTSPAN with texts of the groups.

The last is that of the mechanistic fairness audit (arXiv 2603.11793): texts that name the groups join the
pool, and a head counts by the share of its variance that those it picks explain.
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
    """High CCS first; among equals the head whose texts explain more. Heads of unknown CCS come last."""
    return {
        head: -1.0 if score.ccs is None else score.ccs + min(_explained(evidence, head), 0.999)
        for head, score in evidence.scores.items()
    }


def ccs_low(evidence: Evidence) -> Scores:
    """Low CCS first, the reverse of `ccs_high`. Heads of unknown CCS come last."""
    known = ccs_high(evidence)
    return {head: -score if score >= 0 else -math.inf for head, score in known.items()}


def label(evidence: Evidence) -> Scores:
    """Heads labeled People or below it first; among equals by what texts of people explain."""
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
    """The share of each head's variance that texts naming the groups explain, among the k that it picks."""
    added = [text for texts in evidence.names.values() for text in texts]
    wanted = {text.casefold() for text in added}
    # The added come first: TEXTSPAN drops the later of two equal texts.
    embeddings = np.concatenate([evidence.model.embed_texts(added), evidence.pool_embeddings])
    found = textspan(evidence.moments, [*added, *evidence.pool.texts], embeddings, k)
    return {
        head: sum(span.share for span in spans if span.text.casefold() in wanted)
        for head, spans in found.items()
    }


def _explained(evidence: Evidence, head: Head) -> float:
    return sum(span.share for span in evidence.spans.get(head, ()))
