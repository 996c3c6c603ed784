"""A model that may not be loaded: the facts that results need of it, and the function that loads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import ccs


@dataclass(frozen=True)
class ModelHandle:
    """A model that may not be loaded.

    Attributes:
        name: The model's name.
        weights_hash: The hash of its weights, as `Model.weights_hash`.
        logit_scale: The factor of cosines in its logits.
        logit_bias: The bias of its logits; None for most.
        load: Function that returns the model, loaded if need be.
    """

    name: str
    weights_hash: str
    logit_scale: float
    logit_bias: float | None
    load: Callable[[], ccs.Model]

    @classmethod
    def from_model(cls, model: ccs.Model) -> ModelHandle:
        """Return the handle of a loaded model."""
        return cls(model.name, model.weights_hash, model.logit_scale, model.logit_bias, lambda: model)

    def probabilities(self, cosines: np.ndarray) -> np.ndarray:
        """Compute probabilities [images, texts] from cosines [images, texts] (`to_probabilities`)."""
        return to_probabilities(cosines, self.logit_scale, self.logit_bias)


def to_probabilities(cosines: np.ndarray, logit_scale: float, logit_bias: float | None) -> np.ndarray:
    """Compute a model's probabilities from cosines.

    Args:
        cosines: Cosines [images, texts].
        logit_scale: The factor of cosines in the model's logits.
        logit_bias: The bias of its logits, if it has one (SigLIP): it was trained to score each text alone.

    Returns:
        Probabilities [images, texts]: the softmax over the texts, or with a bias sigmoids, which needn't sum
        to 1.
    """
    logits: np.ndarray = logit_scale * np.asarray(cosines)
    if logit_bias is None:
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))
    return np.exp(-np.logaddexp(0, -logits - logit_bias))
