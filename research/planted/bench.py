"""Measurements of a model with heads off: MaxSkew and logit gap on plain faces, accuracy, CCS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ccs.benchmark.planted_models import Truth
from ccs.heads import Head, HeadSet
from ccs.measures import accuracy, bias, skew
from ccs.measures.ranking import Ranking
from ccs.model.model import Model
from ccs.model.moments import collect_moments
from ccs.model.tower import Trunk
from ccs.pruning.plans import draw, level_heads
from ccs.sets import drawn_sets
from ccs.texts.labels import score_by_tags
from ccs.texts.pools import Pool, load_pool
from ccs.texts.score import HeadScore
from ccs.texts.textspan import textspan

ATTRIBUTES = ("gender", "skin tone")
GAP: skew.MetricName = "logit gap (cross-fitted)"
K = 5  # texts per head
SCENES = 1_000  # for the moments
RANDOM = 20
"""Random sets for each set that is measured, as large as it. Those for the planted heads are drawn outside
them, those for heads of high CCS, which can be most heads of a model, among all."""

Row = dict[str, Any]


class Bench:
    """Images and texts as the base model sees them, which every model of planted heads shares."""

    def __init__(self, base: Model) -> None:
        self._base = base
        self._faces, self._things = drawn_sets.bias_set("faces"), drawn_sets.classification_set("subjects")
        self._prompts = accuracy.class_weights(base, self._faces.occupations, self._faces.templates)
        self._faces_trunk = base.trunk(self._faces.images)

    @cached_property
    def _subjects(self) -> tuple[Any, np.ndarray]:
        things = self._things
        return self._base.trunk(things.images), accuracy.class_weights(
            self._base, things.classes, things.templates
        )

    @cached_property
    def _pool(self) -> tuple[Pool, np.ndarray]:
        pool = load_pool("world")
        return pool, self._base.embed_texts(pool.texts)

    @cached_property
    def _images(self) -> Trunk:
        return self._base.trunk(drawn_sets.image_set(SCENES).images)

    def show(self, model: Model, plans: Sequence[HeadSet]) -> list[Row]:
        """For each plan `MaxSkew` and `gap` of each attribute, means over the occupations.

        A gap is how far the mean logits of an occupation's most and least preferred group lie apart, the
        groups chosen on one half of the faces and measured on the other (`ccs.measures.skew`).
        """
        return [self._shown(units) for units in model.embed_images(self._faces_trunk, plans)]

    def accuracy(self, model: Model, plans: Sequence[HeadSet]) -> list[float]:
        """Zero-shot accuracy on subjects under each plan."""
        trunk, classes = self._subjects
        units = model.embed_images(trunk, plans)
        return [float(accuracy.correct(own, classes, self._things.labels).mean()) for own in units]

    def gaps(self, model: Model) -> dict[str, float]:
        """Each attribute's gap with nothing off."""
        shown = self._shown(model.embed_images(self._faces_trunk))
        return {name: shown[f"gap {name}"] for name in ATTRIBUTES}

    def consistency(self, model: Model) -> dict[Head, HeadScore]:
        """CCS and label of each head, by tags."""
        pool, texts = self._pool
        return score_by_tags(textspan(collect_moments(model, [self._images]), pool.texts, texts, K), pool)

    def _shown(self, units: np.ndarray) -> Row:
        faces, shown = self._faces, Row()
        for name in ATTRIBUTES:
            question = Ranking(self._prompts, faces.groups[name], faces.k[name])
            found = bias.means(units, question, ("MaxSkew", GAP), logit_scale=self._base.logit_scale)
            shown |= {f"MaxSkew {name}": found["MaxSkew"], f"gap {name}": found[GAP]}
        return {name: round(value, 5) for name, value in shown.items()}


def measured(
    model: Model, known: Truth, bench: Bench, before: Mapping[Head, HeadScore], seed: int = 0
) -> tuple[list[Row], list[Row]]:
    """One model's rows: what it shows under each plan, and its heads with what they carry.

    before: the base's scores, from before anything was planted.
    """
    scores = bench.consistency(model)
    now, was = level_heads(scores, K), level_heads(before, K)
    plans = [("none", HeadSet()), ("planted", known.heads), ("high", now["high"])]
    plans += [("other", HeadSet(model.heads - now["high"]))]
    plans += [("was high", was["high"]), ("was other", HeadSet(model.heads - was["high"]))]
    for name, chosen in plans[1:3] + plans[4:5]:
        among = HeadSet(model.heads - chosen) if name == "planted" else model.heads
        kind = f"random for {name}"
        if chosen:
            plans += [(kind, draw(among, len(chosen), seed + i, kind)) for i in range(RANDOM)]
    shown = bench.show(model, [off for _, off in plans])
    kept = bench.accuracy(model, [off for _, off in plans[:4]])
    about: Row = {"model": model.name, "where": known.drawn, "carries": list(known.carries)}
    rows = [
        about | {"plan": kind, "off": str(off)} | found
        for (kind, off), found in zip(plans, shown, strict=True)
    ]
    for row, right in zip(rows, kept, strict=False):
        row["accuracy"] = right
    heads = [
        about
        | {"head": str(head), "ccs": score.ccs, "label": score.label, "learned": head in known.heads}
        | {"was": before[head].ccs}
        | {"planted": [name for name, own in known.carries.items() if head in own]}
        | {"share": {name: known.shares[name].get(head, 0.0) for name in known.shares}}
        for head, score in scores.items()
    ]
    return rows, heads
