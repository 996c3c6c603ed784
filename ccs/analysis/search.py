"""Search for the smallest set of heads that lowers MaxSkew for given prompts at a bounded loss of accuracy.

The search minimizes the lean (`ccs.metrics.ranking`): MaxSkew depends on a few images at the top and jumps,
so a search that minimizes it fits noise. Single heads are measured first; those that lower the lean most
become candidates. Then candidates are added one at a time, always the one that lowers the lean most, measured
in a forward pass with all chosen heads off, while accuracy stays within its bound; finally heads that are not
needed are removed again.

Any search fits some noise. So people, prompts and images of classes are each split in half at random: the
search sees one half, and the results reported come from the other, beside sets that were not searched for. K
is halved too, which keeps its share of the pool. Where each prompt ranks images of its own, splitting the
prompts splits the images, and K stays.

    >>> Limits(max_loss=0.01).max_heads    # at most a hundredth of the accuracy is lost
    8
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.analysis.ablation_sets import Plan
from ccs.analysis.bias import embed_occupations, rank_gallery
from ccs.data import BiasSet, ClassificationSet
from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.metrics import accuracy as zeroshot
from ccs.metrics import bias, bias_result
from ccs.metrics.ranking import Ranking
from ccs.metrics.stats import Effect, Estimate
from ccs.model.encoder import Trunk

if TYPE_CHECKING:
    from ccs.model.model import Model

Tell = Callable[[str], None]
DRAWS = 1000
"""Resampled pools for the intervals."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Task(Ranking):
    """A ranking that should become fairer, and the classification whose accuracy must be kept.

    `people`: images or pixels of the people ranked. `things`: images or pixels, with `labels` [things] and
    `class_weights` [classes, d].
    """

    people: Any
    things: Any
    labels: ArrayLike
    class_weights: ArrayLike

    def max_skew(self, embeddings: ArrayLike) -> float:
        """The mean MaxSkew over the prompts for embeddings [people, d]."""
        return bias.means(embeddings, self)["MaxSkew"]


@dataclass(frozen=True)
class Limits:
    """Bounds of a search. `max_loss`: the accuracy (share of 1) that may be lost. `least`: the share of the
    initial lean that each further head must remove. `max_heads`: the most heads to switch off. `screen`: the
    number of candidates.
    """

    max_loss: float = 0.02
    least: float = 0.02
    max_heads: int = 8
    screen: int = 12

    def __post_init__(self) -> None:
        if self.max_loss < 0 or self.least < 0:
            raise InputError("The loss and the least gain of a search must not be negative.")
        if (fewest := min(self.max_heads, self.screen)) < 1:
            raise InputError(f"A search needs 1 or more heads and candidates, not {fewest}.")


@dataclass(frozen=True)
class Point:
    """A set of heads with its mean MaxSkew, top-1 accuracy and lean on one half of a task."""

    off: HeadSet
    max_skew: float
    accuracy: float
    lean: float = math.nan


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """A set of heads on the half that the search did not see. Changes are from no head off, paired."""

    plan: str
    seed: int | None
    heads: HeadSet
    max_skew: Estimate
    max_skew_change: Effect
    chance: Estimate
    accuracy: Estimate
    accuracy_change: Effect


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search found: `heads`, none if no head helps within the limits, and its figures. `seen`, on the
    half that it saw: every head alone, no head off, then each step. `unseen`, on the other: `none`,
    `searched`, the steps as `step 1` ..., then the plans given for comparison.
    """

    heads: HeadSet
    seen: tuple[Point, ...]
    unseen: tuple[HeldOut, ...]


def measure(model: Model, task: Task, sets: Sequence[HeadSet]) -> list[Point]:
    """MaxSkew, accuracy and lean of each set of heads, over all people and things of the task."""
    if not sets:
        return []
    people, things = (model.embed_images(images, list(sets)) for images in (task.people, task.things))
    rights = [zeroshot.correct(one, task.class_weights, task.labels).mean() for one in things]
    return [
        Point(off, task.max_skew(one), float(right), task.lean(one))
        for off, one, right in zip(sets, people, rights, strict=True)
    ]


def search(
    model: Model,
    task: Task,
    limits: Limits | None = None,
    *,
    beside: Sequence[Plan] = (),
    seed: int = 0,
    tell: Tell = lambda _: None,
) -> Found:
    """Search on one half of the task and report on the other (see the top of this module).

    `beside`: other plans to report (high, low, random). `tell` is called with a line for each step.
    InputError: too few images or prompts to halve, a cut-off larger than a half, plans of heads that cannot
    be switched off.
    """
    limits = limits or Limits()
    half, unseen = halves(task, seed)
    singles = measure(model, half, [HeadSet([head]) for head in model.heads])
    path = greedy(model, half, singles, limits, tell)
    off = _backward(model, half, path, limits, tell)
    plans = [Plan("none", None, HeadSet(), "nothing is switched off")]
    if off:
        plans.append(Plan("searched", seed, off, "lowest MaxSkew within the loss allowed, on the other half"))
    plans += [
        Plan(f"step {size}", seed, point.off, "a step of the search")
        for size, point in enumerate(path)
        if size and point.off != off
    ]
    figures = held_out_figures(model, unseen, [*plans, *beside], seed)
    return Found(heads=off, seen=(*singles, *path), unseen=figures)


def greedy(
    model: Model, task: Task, singles: Sequence[Point], limits: Limits, tell: Tell = lambda _: None
) -> list[Point]:
    """The path of a greedy search on the whole task: nothing off, then one more head at a time.

    It ends when no head removes the least share of the lean. singles: every head alone.
    """
    path = measure(model, task, [HeadSet()])
    start = path[0]
    helpful = sorted((p for p in singles if p.lean < start.lean), key=lambda p: p.lean)
    candidates = [head for point in helpful[: limits.screen] for head in point.off]
    tell(f"{len(helpful)} of {len(singles)} heads lower the lean alone; {len(candidates)} are candidates.")
    while len(path) <= limits.max_heads:
        now = path[-1]
        sets = [HeadSet([*now.off, head]) for head in candidates if head not in now.off]
        tried = measure(model, task, sets)
        allowed = [point for point in tried if point.accuracy >= start.accuracy - limits.max_loss]
        best = min(allowed, key=lambda point: point.lean, default=None)
        if best is None or best.lean > now.lean - limits.least * start.lean:
            break
        path.append(best)
        tell(f"{best.off}: MaxSkew {best.max_skew:.3f}, accuracy {best.accuracy:.3f}")
    return path


def make_task(model: Model, people: BiasSet, things: ClassificationSet, attribute: str) -> Task:
    """The task of making these people's rankings for their occupations fairer."""
    question = rank_gallery(people, attribute, embed_occupations(model, people))
    weights = zeroshot.class_weights(model, things.classes, things.templates)
    own = {one.name: getattr(question, one.name) for one in fields(question)}
    return Task(
        **own, people=people.images, things=things.images, labels=things.labels, class_weights=weights
    )


def halves(task: Task, seed: int) -> tuple[Task, Task]:
    """The task split in two at random: people (within each group), prompts, and things (within each class).

    With pools per prompt each half has all people that its prompts rank, and the whole cut-off. Raises
    InputError for fewer than two prompts or a cut-off below 2.
    """
    rng = np.random.default_rng([seed, 3])
    n_prompts, labels = len(task.prompts), np.asarray(task.labels)
    for number, what in (
        (n_prompts, "2 or more prompts that differ to the model"),
        (task.k, "a K of 2 or more"),
    ):
        if number < 2:
            raise InputError(
                f"What is found on one half is judged on the other, which needs {what}, not {number}."
            )
    if task.units is None:
        people = _split(task.groups, len(task.people), "people", rng)
    else:  # images that are resampled together stay together
        sets, each = np.unique(task.units, return_inverse=True)
        cut = _split(np.zeros(len(sets)), len(sets), "sets of people", rng)
        people = np.flatnonzero(np.isin(each, cut[0])), np.flatnonzero(np.isin(each, cut[1]))
    things = _split(labels, len(task.things), "images of classes", rng)
    mixed = rng.permutation(n_prompts)

    def half(side: int) -> Task:
        asked, ranked = np.sort(mixed[side::2]), people[side]
        if task.pools is not None:
            ranked = np.flatnonzero(task.pools[asked].any(axis=0))
        return Task(
            people=_take(task.people, ranked),
            groups=task.groups[ranked],
            prompts=task.prompts[asked],
            k=task.k // 2 if task.pools is None else task.k,
            pools=None if task.pools is None else task.pools[np.ix_(asked, ranked)],
            units=None if task.units is None else task.units[ranked],
            things=_take(task.things, things[side]),
            labels=labels[things[side]],
            class_weights=task.class_weights,
        )

    return half(0), half(1)


def _split(
    kinds: NDArray[Any], n: int, name: str, rng: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Two halves of the indices, as even as possible within each kind."""
    if kinds.shape != (n,) or n < 4:
        raise InputError(f"A search needs 4 or more {name}, each with its kind, not {n} with {kinds.size}.")
    shuffled = rng.permutation(n)
    by_kind = shuffled[np.argsort(kinds[shuffled], kind="stable")]
    return np.sort(by_kind[0::2]), np.sort(by_kind[1::2])


def _take(images: Any, rows: NDArray[np.intp]) -> Any:
    whole = hasattr(images, "shape") or isinstance(images, Trunk)
    return images[rows] if whole else [images[int(row)] for row in rows]


def _backward(model: Model, task: Task, path: Sequence[Point], limits: Limits, tell: Tell) -> HeadSet:
    """The heads at the end of the path without those that each gain less than the least."""
    start, now = path[0], path[-1]
    while len(now.off) > 1:
        tried = measure(model, task, [HeadSet(now.off - {head}) for head in now.off])
        most, least = now.lean + limits.least * start.lean, start.accuracy - limits.max_loss
        spared = [point for point in tried if point.lean <= most and point.accuracy >= least]
        if not spared:
            break
        now = min(spared, key=lambda point: point.lean)
        tell(f"Not needed: {', '.join(map(str, path[-1].off - now.off))}")
    return now.off


def held_out_figures(model: Model, task: Task, plans: Sequence[Plan], seed: int) -> tuple[HeldOut, ...]:
    """The figures of every plan on this half; the first (`none`) is the baseline."""
    sets = [plan.off for plan in plans]
    people, things = (model.embed_images(images, sets) for images in (task.people, task.things))
    skews = bias.measure_plans(people, task, draws=DRAWS, seed=seed)
    rights = [zeroshot.accuracy(one, task.class_weights, task.labels, seed) for one in things]
    return tuple(
        HeldOut(
            plan=plan.name,
            seed=plan.seed,
            heads=plan.off,
            max_skew=skew.max_skew.mean,
            max_skew_change=bias_result.compare(skew, skews[0]),
            chance=skew.max_skew.chance_mean,
            accuracy=right.top1,
            accuracy_change=zeroshot.compare(right, rights[0], seed=seed),
        )
        for plan, skew, right in zip(plans, skews, rights, strict=True)
    )
