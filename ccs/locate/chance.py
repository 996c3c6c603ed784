"""Heads in random order: what every other way has to beat."""

from __future__ import annotations

import numpy as np

from ccs.locate.base import Evidence, Scores, by_head


def random(evidence: Evidence) -> Scores:
    """A number drawn per head, from the seed and the model's weights: another order for each model."""
    weights = int(evidence.model.weights_hash[:8], 16)
    rng = np.random.default_rng([evidence.seed, weights])
    return by_head(evidence, rng.random(len(evidence.model.heads)))
