"""Heads in random order, the baseline of every other method."""

from __future__ import annotations

import numpy as np

from ccs.locate.base import Evidence, Scores, by_head


def random(evidence: Evidence) -> Scores:
    """A random number per head, seeded by the seed and the model's weights, so that models differ."""
    weights = int(evidence.model.weights_hash[:8], 16)
    rng = np.random.default_rng([evidence.seed, weights])
    return by_head(evidence, rng.random(len(evidence.model.heads)))
