"""Lessons: what the heads that can be switched off are each asked to write, while the model learns.

Three kinds. One concept: for each of its values, what captions say that name it. Two to four concepts, in
stated parts of the variance. None: one value of each of several concepts, which have nothing in common. A few
heads are left free. What captions say of a value is the mean of the embeddings of captions of cards that show
it, less the mean over the concept's values; captions that the text pool holds word for word are left out. A
head is asked for nothing where a card shows nothing of the concept.
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
"""What a card can show of each concept."""
STRENGTH = 1.5
"""The variance of what a head is asked to write, in units of what a head of the first model writes."""
_COUNTED = range(800_000, 804_000)
"""Seeds of the scenes whose captions are read."""
PURE = 6
"""Heads that are taught one concept, Professions among them."""
PARTS = ((0.5, 0.5),) * 3 + ((0.6, 0.4),) * 3 + ((0.4, 0.3, 0.3),) * 3 + ((0.25,) * 4,) * 2
"""The parts of the lessons of two to four concepts, one lesson per head."""
NONE = 5
"""Heads that are taught one value of each of several concepts. Of 24 heads two are left free."""


def value_numbers(s: Scene) -> list[int]:
    """Return for each concept the number of the value that a card shows; -1 for none."""
    names = [value_of(concept, s) for concept in CONCEPTS]
    return [VALUES[c].index(v) if v else -1 for c, v in zip(CONCEPTS, names, strict=True)]


def drawn(seed: int, heads: Sequence[Head]) -> dict[Head, Lesson]:
    """Draw which heads learn what.

    Args:
        seed: of the draw.
        heads: those that can be taught.
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
    """What the taught heads are asked to write, and how far they are from it.

    usual: the mean variance of what the first model's heads write. texts: of that model, which are frozen.
    """

    def __init__(self, lessons: Mapping[Head, Lesson], model: Model, usual: float) -> None:
        self.lessons, self.usual = dict(lessons), usual
        self.targets = _targets(lessons, model, STRENGTH * usual)

    def loss(self, written: Mapping[Head, Tensor], values: Tensor) -> Tensor:
        """Compute the mean over the heads of the squared distance from their targets, in units of `usual`.

        Args:
            written: head -> its output [n, D].
            values: [n, concepts], as `value_numbers` gives them.
        """
        distances = []
        for head, head_output in written.items():
            # -1 is the last row, which is nothing.
            parts = [rows[values[:, CONCEPTS.index(c)]] for c, rows in self.targets[head].items()]
            wanted = torch.stack(parts).sum(0)
            distances.append((head_output - head_output.mean(0) - (wanted - wanted.mean(0))).square().sum(1))
        return torch.stack(distances).mean() / self.usual


def _targets(lessons: Mapping[Head, Lesson], model: Model, variance: float) -> dict[Head, dict[str, Tensor]]:
    """Return head -> concept -> what is asked for each of its values, and for nothing, [values + 1, D]."""
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
    """Embed what captions say of each value [values, D], with the share of cards that show it [values]."""
    scenes = [scene(seed) for seed in _COUNTED]
    texts, held = [caption(s) for s in scenes], set(load_pool("world").texts)
    vectors = model.embed_texts(texts).astype(np.float64)
    other = np.array([text not in held for text in texts])
    values = np.array([value_numbers(s) for s in scenes])
    value_vectors, shares = {}, {}
    for column, concept in enumerate(CONCEPTS):
        members = [values[:, column] == i for i in range(len(VALUES[concept]))]
        means = np.stack([vectors[in_value & other].mean(0) for in_value in members])
        value_vectors[concept] = means - means.mean(0)
        shares[concept] = np.array([in_value.mean() for in_value in members])
    return value_vectors, shares
