"""The protocol: a method sees one half of the people and prompts, and is judged on the other.

People (within each group), prompts and images with classes (within each class) are split in half at random. A
ranking of heads is compared with the heads that carry the planted skew. As many of its first heads as carry
the skew are switched off in the forward pass, on the half that the method did not see.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats.contingency import association, crosstab
from torch.utils.flop_counter import FlopCounterMode

from ccs.analysis.evidence import Evidence, Method, Reading, Scores, rank_heads
from ccs.analysis.localize import first_carriers
from ccs.analysis.task import Task
from ccs.errors import InputError
from ccs.heads import Head, HeadSet
from ccs.metrics import accuracy
from ccs.metrics.ranking import cosines
from ccs.model.model import Model


@dataclass(frozen=True)
class Reached:
    """Mean MaxSkew, group score gap, Cramér's V, and top-1 accuracy with a set of heads ablated."""

    max_skew: float
    gap: float
    cramers_v: float
    accuracy: float


def reached(model: Model, task: Task, sets: Sequence[HeadSet]) -> list[Reached]:
    """Measure each set of ablated heads on a half of the people.

    Args:
        model: the model.
        task: the half.
        sets: of heads to ablate.
    """
    people, controls = (model.embed_images(images, list(sets)) for images in (task.people, task.controls))
    return [
        Reached(
            task.mean_max_skew(units),
            task.score_gap(units),
            cramers_v(units, task.prompts, task.groups),
            float(accuracy.correct(other, task.class_weights, task.labels).mean()),
        )
        for units, other in zip(people, controls, strict=True)
    ]


def cramers_v(embeddings: ArrayLike, prompts: ArrayLike, groups: ArrayLike) -> float:
    """Compute Cramér's V (0 to 1) of each person's best prompt and group; 0 if all have the same prompt.

    Args:
        embeddings: [people, d].
        prompts: [prompts, d].
        groups: [people].
    """
    best = cosines(prompts, embeddings).argmax(axis=0)
    counts = crosstab(best, np.asarray(groups, np.str_)).count
    return float(association(counts, method="cramer")) if min(counts.shape) > 1 else 0.0


def average_precision(order: Sequence[Head], planted: HeadSet) -> float:
    """Compute the mean, over the planted heads, of the precision at their places; 0 for a missing head.

    Args:
        order: heads, the first first.
        planted: those to find.

    Raises:
        InputError: Without planted heads.
    """
    places = _places(order, planted)
    return sum(rank / place for rank, place in enumerate(places, 1)) / len(planted)


def precision(order: Sequence[Head], planted: HeadSet) -> float:
    """Compute the share of planted heads among as many first heads as were planted.

    Args:
        order: heads, the first first.
        planted: those to find.

    Raises:
        InputError: Without planted heads.
    """
    return sum(place <= len(planted) for place in _places(order, planted)) / len(planted)


def _places(order: Sequence[Head], planted: HeadSet) -> list[int]:
    """Return places of the planted heads in the order, from 1."""
    if not planted:
        raise InputError("A ranking can be scored only against one or more planted heads.")
    return [place for place, head in enumerate(order, 1) if head in planted]


def one_pass(evidence: Evidence) -> int:
    """Count floating-point operations of a pass: the half's people, once through the layers with heads."""
    with FlopCounterMode(display=False) as counted:
        evidence.model.embed_images(evidence.people)
    return int(counted.get_total_flops())


def measured(method: Method, evidence: Evidence) -> tuple[Scores, int]:
    """Run a method and count its floating-point operations in PyTorch, backward passes and texts included.

    The operations of the reading don't count: CCS is there before anybody looks for heads.

    Args:
        method: from evidence to scores.
        evidence: the half that it sees.

    Returns:
        The scores and the number of operations.
    """
    free, spared = with_free_reading(evidence)
    with FlopCounterMode(display=False) as counted:
        scores = method(free)
    return scores, int(counted.get_total_flops()) - sum(spared)


def with_free_reading(evidence: Evidence) -> tuple[Evidence, list[int]]:
    """Return the same evidence, and the floating-point operations that its reading takes if it is read."""
    spared: list[int] = []

    def read() -> Reading:
        with FlopCounterMode(display=False) as inside:
            reading = evidence.reading
        spared.append(inside.get_total_flops())
        return reading

    return replace(evidence, read=read), spared


Orders = Mapping[str, tuple[Head, ...]]
"""Each method's heads, in its order."""


def rankings(
    evidence: Evidence, methods: Mapping[str, Method], seed: int, failed: dict[str, str]
) -> tuple[Orders, dict[str, float]]:
    """Rank the heads by each method.

    Args:
        evidence: the half that methods see.
        methods: name -> method.
        seed: of the order of equal scores.
        failed: gets a sentence for each method that fails.

    Returns:
        Each method's heads in its order, and its cost in passes.
    """
    orders, passes, plain = dict[str, tuple[Head, ...]](), dict[str, float](), one_pass(evidence)
    for name, method in methods.items():
        try:
            scores, operations = measured(method, evidence)
        except InputError as error:
            failed[name] = str(error)
        else:
            orders[name], passes[name] = rank_heads(scores, seed), operations / plain
    return orders, passes


def checked(name: str, method: Callable[[Evidence], Mapping[Head, float]]) -> Method:
    """Wrap a user's method in checks.

    Args:
        name: in messages.
        method: from evidence to a score for each head.

    Returns:
        A method that raises InputError if the user's fails or doesn't score each head.
    """

    def scored(evidence: Evidence) -> Scores:
        try:
            scores = {head: float(score) for head, score in dict(method(evidence)).items()}
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(line.filename).name}, line {line.lineno}"
            raise InputError(
                f"The method {name} failed: {type(error).__name__}: {error} ({place})."
            ) from error
        for head in evidence.model.heads:
            if head not in scores:
                raise InputError(f"The method {name} gives no score for {head}.")
            if not math.isfinite(scores[head]):
                raise InputError(f"The method {name} gives {scores[head]} for {head}, not a finite number.")
        return {head: scores[head] for head in evidence.model.heads}

    return scored


def names_any(evidence: Evidence, order: Sequence[Head]) -> bool:
    """Return whether `first_carriers` names a head of this ranking.

    Args:
        evidence: the half that the method saw.
        order: heads, the first first.
    """
    return bool(first_carriers(evidence, order[:2]))
