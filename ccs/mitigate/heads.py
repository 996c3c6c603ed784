"""Heads that are off, turned down, or held at what they write on average."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from ccs.benchmark.protocol import enough
from ccs.heads import Head, HeadSet
from ccs.intervention import MEAN, PROTOTYPE, Change, Intervention
from ccs.locate import DEFAULT, METHODS
from ccs.locate.base import Evidence, Scores, ranking
from ccs.mitigate.base import Fitted
from ccs.pruning.plans import level_heads


def located(evidence: Evidence) -> Fitted:
    """Off are the first heads of the ranking that `clip-ccs localize` uses, as many as it would name."""
    return Fitted(HeadSet(_first(evidence)))


def consistent(evidence: Evidence) -> Fitted:
    """Off are the heads of high CCS, as in "Pruning the Paradox" (arXiv 2503.11103)."""
    texts = max(len(spans) for spans in evidence.reading.spans.values())
    return Fitted(level_heads(evidence.reading.scores, texts)["high"])


def random(evidence: Evidence) -> Fitted:
    """Off are as many heads as in `located`, drawn at random."""
    heads, rng = list(evidence.model.heads), np.random.default_rng([evidence.seed, 11])
    drawn = rng.permutation(len(heads))[: len(_first(evidence))]
    return Fitted(HeadSet(heads[place] for place in drawn))


def gates(evidence: Evidence) -> Fitted:
    """Each head is turned down as far as its learned gate has closed (`ccs.locate.selection`), none is cut
    off.
    """
    return Fitted(Intervention({head: 1 - closed for head, closed in _scores(evidence).items()}))


def at_mean(evidence: Evidence) -> Fitted:
    """The heads of `located` write their mean over the people, which says nothing of the person. Zero takes a
    head's usual output away too, and can overstate what it does (arXiv 2604.14433).
    """
    return _held(evidence, MEAN)


def at_prototype(evidence: Evidence) -> Fitted:
    """The same heads write the mean over groups of the groups' means ("Debiasing CLIP with neural
    interventions", ECIR 2026, known to us from its summary).
    """
    return _held(evidence, PROTOTYPE)


def _held(evidence: Evidence, at: str) -> Fitted:
    heads = Intervention(dict.fromkeys(_first(evidence), Change(at=at)))
    return Fitted(evidence.model.at_means(heads, evidence.people, evidence.task.groups))


_SCORES: WeakKeyDictionary[Evidence, Scores] = WeakKeyDictionary()
_FIRST: WeakKeyDictionary[Evidence, tuple[Head, ...]] = WeakKeyDictionary()


def _scores(evidence: Evidence) -> Scores:
    """The ranking's scores, which five mitigations share."""
    if evidence not in _SCORES:
        _SCORES[evidence] = METHODS[DEFAULT](evidence)
    return _SCORES[evidence]


def _first(evidence: Evidence) -> tuple[Head, ...]:
    if evidence not in _FIRST:
        _FIRST[evidence] = enough(evidence, ranking(_scores(evidence), evidence.seed))
    return _FIRST[evidence]
