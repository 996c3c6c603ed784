"""Measurements of models with the same lower layers: MaxSkew and logit gap of plain faces, accuracy, CCS."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ccs.analysis.inputs import embed_names
from ccs.data import synthetic
from ccs.heads import Head, HeadSet
from ccs.metrics import accuracy, bias, skew
from ccs.metrics.ranking import Ranking, cosines, top
from ccs.model.encoder import Trunk
from ccs.model.head_statistics import collect_moments
from ccs.model.model import Model
from ccs.texts.labels import score_by_tags
from ccs.texts.pools import Pool, load_pool
from ccs.texts.score import HeadScore
from ccs.texts.textspan import textspan

ATTRIBUTES = ("gender", "skin tone")
GAP: skew.MetricName = "logit gap (cross-fitted)"
K = 5  # texts per head
SCENES = 1_000  # for the head statistics
Row = dict[str, Any]


class Bench:
    """Measurements that reuse the base model's lower-layer activations and text embeddings.

    Args:
        base: Model whose lower layers and text encoder all measured models share.
    """

    def __init__(self, base: Model) -> None:
        self._base = base
        self._faces, self._things = synthetic.bias_set("faces"), synthetic.classification_set("subjects")
        self._prompts = embed_names(base, self._faces.occupations, self._faces.templates)
        self._faces_trunk = base.trunk(self._faces.images)

    @cached_property
    def _subjects(self) -> tuple[Any, np.ndarray]:
        things = self._things
        return self._base.trunk(things.images), embed_names(self._base, things.classes, things.templates)

    @cached_property
    def _pool(self) -> tuple[Pool, np.ndarray]:
        pool = load_pool("world")
        return pool, self._base.embed_texts(pool.texts)

    @cached_property
    def _images(self) -> Trunk:
        return self._base.trunk(synthetic.image_set(SCENES).images)

    def show(self, model: Model, ablation_sets: Sequence[HeadSet]) -> list[Row]:
        """Measure `MaxSkew` and `gap` of each attribute, means over the occupations, for each ablation set.

        The gap is the difference between the mean logits of an occupation's most and least preferred group.
        The groups are chosen on one half of the faces and measured on the other (`ccs.metrics.skew`).

        Args:
            model: The model.
            ablation_sets: Sets of heads to ablate; each gives a row.
        """
        return [self._metrics(units) for units in model.embed_images(self._faces_trunk, ablation_sets)]

    def accuracy(self, model: Model, ablation_sets: Sequence[HeadSet]) -> list[float]:
        """Compute zero-shot accuracy on subjects, for each ablation set.

        Args:
            model: The model.
            ablation_sets: Sets of heads to ablate.
        """
        trunk, classes = self._subjects
        units = model.embed_images(trunk, ablation_sets)
        return [
            float(accuracy.correct(set_units, classes, self._things.labels).mean()) for set_units in units
        ]

    def skews(self, model: Model, ablated: HeadSet | None = None) -> dict[str, np.ndarray]:
        """Compute each attribute's MaxSkew by occupation [occupations].

        Args:
            model: The model.
            ablated: Heads to ablate.
        """
        units = model.embed_images(self._faces_trunk, ablated)
        return {name: max_skews(self._ranking(name), units) for name in ATTRIBUTES}

    def _ranking(self, attribute: str) -> Ranking:
        faces = self._faces
        return Ranking(self._prompts, faces.groups[attribute], faces.k[attribute])

    def gaps(self, model: Model) -> dict[str, float]:
        """Return each attribute's gap without ablation."""
        metrics = self._metrics(model.embed_images(self._faces_trunk))
        return {name: metrics[f"gap {name}"] for name in ATTRIBUTES}

    def consistency(self, model: Model) -> dict[Head, HeadScore]:
        """Return CCS and label of each head, by `tags`."""
        return self.consistencies(model, (K,))[K]

    def consistencies(self, model: Model, numbers: Sequence[int]) -> dict[int, dict[Head, HeadScore]]:
        """Compute labels and CCS of all heads for several numbers of texts.

        Args:
            model: The model.
            numbers: Values of K, the number of texts per head.
        """
        pool, texts = self._pool
        spans = textspan(collect_moments(model, [self._images]), pool.texts, texts, max(numbers))
        return {
            k: score_by_tags({head: head_spans[:k] for head, head_spans in spans.items()}, pool)
            for k in numbers
        }

    def _metrics(self, units: np.ndarray) -> Row:
        metrics = Row()
        for name in ATTRIBUTES:
            measured = bias.means(
                units, self._ranking(name), ("MaxSkew", GAP), logit_scale=self._base.logit_scale
            )
            metrics |= {f"MaxSkew {name}": measured["MaxSkew"], f"gap {name}": measured[GAP]}
        return {name: round(value, 5) for name, value in metrics.items()}


def max_skews(ranking: Ranking, units: np.ndarray) -> np.ndarray:
    """Compute the MaxSkew of each prompt's ranking, [prompts].

    Args:
        ranking: Prompts and groups.
        units: Image embeddings [n, d].
    """
    pool = np.bincount(ranking.codes)
    chosen = ranking.codes[top(cosines(ranking.prompts, units), ranking.k)]
    counts = np.stack([np.bincount(top_codes, minlength=len(pool)) for top_codes in chosen])
    return np.asarray(skew.max_skew_of(counts, skew.target_shares(pool)))
