"""The protocol: a method sees one half of the people and prompts, and is scored on the other half.

People (within each group), prompts, and control images (within each class) are split into random halves. A
ranking of heads is compared with the heads that carry the planted bias. Its first heads, as many as carry the
bias, are ablated in the forward pass on the unseen half.
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
    """Measure each ablation set on a half of the people.

    Args:
        model: The model.
        task: The half.
        sets: Ablation sets.
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
    """Compute Cramér's V (0 to 1) of each person's best prompt and group; 0 if one prompt is best for all.

    Args:
        embeddings: [people, d].
        prompts: [prompts, d].
        groups: [people].
    """
    best = cosines(prompts, embeddings).argmax(axis=0)
    counts = crosstab(best, np.asarray(groups, np.str_)).count
    return float(association(counts, method="cramer")) if min(counts.shape) > 1 else 0.0


def average_precision(order: Sequence[Head], planted: HeadSet) -> float:
    """Compute the average precision of a ranking; a missing head counts as 0.

    Args:
        order: The ranking, best head first.
        planted: The heads to find.

    Raises:
        InputError: Without planted heads.
    """
    places = _places(order, planted)
    return sum(rank / place for rank, place in enumerate(places, 1)) / len(planted)


def precision(order: Sequence[Head], planted: HeadSet) -> float:
    """Compute the precision at n of a ranking, with n the number of planted heads.

    Args:
        order: The ranking, best head first.
        planted: The heads to find.

    Raises:
        InputError: Without planted heads.
    """
    return sum(place <= len(planted) for place in _places(order, planted)) / len(planted)


def _places(order: Sequence[Head], planted: HeadSet) -> list[int]:
    """Return the ranks of the planted heads, from 1."""
    if not planted:
        raise InputError("A ranking needs at least one planted head to be scored.")
    return [place for place, head in enumerate(order, 1) if head in planted]


def one_pass(evidence: Evidence) -> int:
    """Count the floating-point operations of one pass of the people through the layers with heads."""
    with FlopCounterMode(display=False) as counted:
        evidence.model.embed_images(evidence.people)
    return int(counted.get_total_flops())


def measured(method: Method, evidence: Evidence) -> tuple[Scores, int]:
    """Run a method and count its floating-point operations in PyTorch, including backward passes and texts.

    TEXTSPAN and CCS aren't counted, because they are computed once per model.

    Args:
        method: Function from evidence to scores.
        evidence: The half that it sees.

    Returns:
        The scores and the number of operations.
    """
    free, spared = with_free_reading(evidence)
    with FlopCounterMode(display=False) as counted:
        scores = method(free)
    return scores, int(counted.get_total_flops()) - sum(spared)


def with_free_reading(evidence: Evidence) -> tuple[Evidence, list[int]]:
    """Return the same evidence, and a list that collects the operations of TEXTSPAN and CCS if used."""
    spared: list[int] = []

    def read() -> Reading:
        with FlopCounterMode(display=False) as inside:
            reading = evidence.reading
        spared.append(inside.get_total_flops())
        return reading

    return replace(evidence, read=read), spared


Orders = Mapping[str, tuple[Head, ...]]
"""Method -> its ranking of heads."""


def rankings(
    evidence: Evidence, methods: Mapping[str, Method], seed: int, failed: dict[str, str]
) -> tuple[Orders, dict[str, float]]:
    """Rank the heads by each method.

    Args:
        evidence: The half that methods see.
        methods: Name -> method.
        seed: Random seed for the order of heads with equal scores.
        failed: Receives a sentence for each method that fails.

    Returns:
        Each method's ranking of heads, and its cost in passes.
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
        name: Name in messages.
        method: Function from evidence to a score per head.

    Returns:
        A method that raises InputError if the user's method fails or doesn't score every head.
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
                raise InputError(f"The method {name} returned no score for {head}.")
            if not math.isfinite(scores[head]):
                raise InputError(f"The method {name}: the score of {head} is {scores[head]}, not finite.")
        return {head: scores[head] for head in evidence.model.heads}

    return scored


def names_any(evidence: Evidence, order: Sequence[Head]) -> bool:
    """Return whether `first_carriers` names a head of this ranking.

    Args:
        evidence: The half that the method saw.
        order: The ranking, best head first.
    """
    return bool(first_carriers(evidence, order[:2]))
