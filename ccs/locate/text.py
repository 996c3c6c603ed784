"""Heads by their texts: CCS (the study's claim) and labels."""

from __future__ import annotations

import math

from ccs.heads import Head
from ccs.locate.base import Evidence, Scores
from ccs.texts import concepts

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
        return concept is not None and tree.is_under(concept, PEOPLE)

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
