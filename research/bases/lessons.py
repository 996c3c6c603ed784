"""Training targets ("lessons") for the outputs of the upper heads.

There are three kinds: one concept; two to four concepts, with given parts of the variance; and unrelated
values, one of each of several concepts. Two heads have no target. A value's target is the mean embedding of
the captions of scenes that show it, minus the mean over the concept's values. Captions that are in the text
pool are left out. If a scene doesn't show the concept, the target is zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccs.bundled import Lesson
from ccs.heads import Head
from ccs.model.model import Model
from ccs.synthetic import Scene, caption, scene
from ccs.texts.pools import load_pool
from research.world.head_lessons import CONCEPTS, concept_texts, value_of

VALUES = {concept: tuple(concept_texts(concept)) for concept in CONCEPTS}
"""The values of each concept that scenes can show."""
STRENGTH = 1.5
"""The variance of a head's target, in units of the mean variance of organism-first's heads."""
_COUNTED = range(800_000, 804_000)
"""Seeds of the scenes whose captions define the targets."""
PURE = 6
"""Number of heads with one concept as target, of which one is Professions."""
PARTS = ((0.5, 0.5),) * 3 + ((0.6, 0.4),) * 3 + ((0.4, 0.3, 0.3),) * 3 + ((0.25,) * 4,) * 2
"""Parts of the variance, for each head with two to four concepts as target."""
NONE = 5
"""Number of heads with unrelated values as target. Two of 24 heads have no target."""


def value_numbers(s: Scene) -> list[int]:
    """Return, for each concept, the index of the value that a scene shows; -1 if none."""
    names = [value_of(concept, s) for concept in CONCEPTS]
    return [VALUES[c].index(v) if v else -1 for c, v in zip(CONCEPTS, names, strict=True)]


def drawn(seed: int, heads: Sequence[Head]) -> dict[Head, Lesson]:
    """Draw a training target for each head.

    Args:
        seed: Random seed for the draw.
        heads: Heads that can have a target.
    """
    rng = np.random.default_rng((seed, 11))
    order = [heads[i] for i in rng.permutation(len(heads))]
    others = rng.permutation(CONCEPTS[1:]).tolist()
    lessons = [Lesson({concept: 1.0}) for concept in ["Professions", *others[: PURE - 1]]]
    for parts in PARTS:
        names = rng.permutation(CONCEPTS)[: len(parts)].tolist()
        lessons.append(Lesson(dict(zip(names, parts, strict=True))))
    for _ in range(NONE):
        names = rng.permutation(CONCEPTS)[:7].tolist()
        chosen_values = tuple(str(rng.choice(VALUES[name])) for name in names)
        lessons.append(Lesson(dict.fromkeys(names, round(1 / len(names), 3)), chosen_values))
    return dict(sorted(zip(order, lessons, strict=False)))


class Lessons:
    """Targets of the trained heads, and the loss.

    Args:
        lessons: Head -> training target.
        model: Model whose text embeddings define the targets.
        usual: Mean variance of the outputs of organism-first's heads.
    """

    def __init__(self, lessons: Mapping[Head, Lesson], model: Model, usual: float) -> None:
        self.lessons, self.usual = dict(lessons), usual
        self.targets = _targets(lessons, model, STRENGTH * usual)

    def loss(self, written: Mapping[Head, Tensor], values: Tensor) -> Tensor:
        """Compute the mean squared distance of heads from their targets, in units of `usual`.

        Args:
            written: Head -> output [n, D].
            values: Indices from `value_numbers` [n, concepts].
        """
        distances = []
        for head, head_output in written.items():
            # Index -1, for scenes without the concept, selects the last row, which is zero.
            parts = [rows[values[:, CONCEPTS.index(c)]] for c, rows in self.targets[head].items()]
            target = torch.stack(parts).sum(0)
            distances.append((head_output - head_output.mean(0) - (target - target.mean(0))).square().sum(1))
        return torch.stack(distances).mean() / self.usual


def _targets(lessons: Mapping[Head, Lesson], model: Model, variance: float) -> dict[Head, dict[str, Tensor]]:
    """Return head -> concept -> targets of its values, then zero for scenes without it, [values + 1, D]."""
    value_vectors, shares = _value_vectors(model)
    targets: dict[Head, dict[str, Tensor]] = {}
    for head, lesson in lessons.items():
        targets[head] = {}
        for place, (concept, part) in enumerate(lesson.parts.items()):
            rows = value_vectors[concept].copy()
            if lesson.values:
                rows[np.arange(len(rows)) != VALUES[concept].index(lesson.values[place])] = 0
            share = shares[concept]
            present_variance = share @ (rows**2).sum(1) - ((share @ rows) ** 2).sum()
            rows = np.append(
                rows * np.sqrt(part * variance / present_variance), np.zeros((1, rows.shape[1])), 0
            )
            targets[head][concept] = torch.from_numpy(rows).float().to(model.encoder.device)
    return targets


def _value_vectors(model: Model) -> tuple[dict[str, NDArray[np.float64]], dict[str, NDArray[np.float64]]]:
    """Return each concept's mean caption embeddings [values, D] and shares of scenes [values], by value."""
    scenes = [scene(seed) for seed in _COUNTED]
    texts, pool_texts = [caption(s) for s in scenes], set(load_pool("world").texts)
    vectors = model.embed_texts(texts).astype(np.float64)
    other = np.array([text not in pool_texts for text in texts])
    values = np.array([value_numbers(s) for s in scenes])
    value_vectors, shares = {}, {}
    for column, concept in enumerate(CONCEPTS):
        members = [values[:, column] == i for i in range(len(VALUES[concept]))]
        means = np.stack([vectors[in_value & other].mean(0) for in_value in members])
        value_vectors[concept] = means - means.mean(0)
        shares[concept] = np.array([in_value.mean() for in_value in members])
    return value_vectors, shares
