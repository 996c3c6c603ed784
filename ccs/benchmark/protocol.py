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
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats.contingency import association, crosstab
from torch.utils.flop_counter import FlopCounterMode

from ccs.analysis.ablation_sets import Plan, matched
from ccs.analysis.search import HeldOut, Task, halves, held_out_figures, make_task
from ccs.data import BiasSet, ClassificationSet
from ccs.data import open as sets
from ccs.errors import InputError
from ccs.heads import Head, HeadSet
from ccs.locate import Evidence
from ccs.locate.base import Method, Reading, Scores, group_names, ranking
from ccs.metrics import accuracy
from ccs.metrics.ranking import cosines
from ccs.model.encoder import Trunk
from ccs.model.head_statistics import collect_moments
from ccs.model.model import Model
from ccs.texts.labels import score_by_tags
from ccs.texts.pools import load_pool
from ccs.texts.textspan import textspan

MOST, LEAST = 8, 0.05
"""The most heads of an answer, and the share of the lean that each of them must take away."""
RANDOM_SETS = 20
"""Random sets beside an answer."""


@dataclass(frozen=True, kw_only=True)
class Sets:
    """What a model's heads are looked for with. images, texts: what TEXTSPAN reads, and how many images."""

    people: BiasSet
    things: ClassificationSet
    images: str = "world"
    texts: str = "world"
    moments: int = 500

    @classmethod
    def drawn(cls) -> Sets:
        """Those of the benchmark: 600 drawn faces, and 186 drawn subjects for the accuracy."""
        things = sets.open_dataset("world/subjects", max_images=186)
        assert isinstance(things, ClassificationSet)
        return cls(people=sets.open_gallery("world/faces"), things=things)


class Subject:
    """A model and what it sees of the sets, computed when first needed and shared by all splits."""

    def __init__(self, model: Model, sets: Sets, trunks: tuple[Trunk, Trunk] | None = None) -> None:
        """trunks: activations of the sets' people and things below the first head, where they are known."""
        self.model, self.sets, self._known = model, sets, trunks
        self._tasks: dict[str, Task] = {}

    @cached_property
    def reading(self) -> Reading:
        """The texts and the CCS of each head, by the stand-in `tags`."""
        pool = load_pool(self.sets.texts)
        images = sets.open_images(self.sets.images, self.sets.moments)
        moments = collect_moments(self.model, [images.images])
        embeddings = self.model.embed_texts(pool.texts)
        spans = textspan(moments, pool.texts, embeddings, 5)
        scores = score_by_tags(spans, pool)
        return Reading(moments=moments, pool=pool, pool_embeddings=embeddings, spans=spans, scores=scores)

    def split(self, attribute: str, seed: int) -> tuple[Evidence, Task]:
        """What the methods see of an attribute, and the half that they do not; InputError as in `halves`."""
        seen, unseen = halves(self.whole(attribute), seed)
        names = group_names(attribute, sorted(set(self.sets.people.groups[attribute].tolist())))
        return Evidence(
            model=self.model, task=seen, names=names, read=lambda: self.reading, seed=seed
        ), unseen

    def unseen(self, attribute: str, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The numbers of the people and of the prompts in the half that the methods do not see."""
        whole = self.whole(attribute)
        numbers = replace(whole, people=np.arange(len(whole.groups)), prompts=np.eye(len(whole.prompts)))
        half = halves(numbers, seed)[1]
        return half.people, half.prompts.argmax(axis=1)

    def whole(self, attribute: str) -> Task:
        if attribute not in self._tasks:
            made = make_task(self.model, self.sets.people, self.sets.things, attribute)
            self._tasks[attribute] = replace(made, people=self._trunks[0], things=self._trunks[1])
        return self._tasks[attribute]

    @cached_property
    def _trunks(self) -> tuple[Trunk, Trunk]:
        people, things = self.sets.people.images, self.sets.things.images
        return self._known or (self.model.trunk(people), self.model.trunk(things))


@dataclass(frozen=True)
class Reached:
    """Mean MaxSkew, Cramér's V and top-1 accuracy with a set of heads off."""

    max_skew: float
    cramers_v: float
    accuracy: float


def reached(model: Model, task: Task, sets: Sequence[HeadSet]) -> list[Reached]:
    """The figures of each set of heads on a half of the people."""
    people, things = (model.embed_images(images, list(sets)) for images in (task.people, task.things))
    return [
        Reached(
            task.max_skew(one),
            cramers_v(one, task.prompts, task.groups),
            float(accuracy.correct(other, task.class_weights, task.labels).mean()),
        )
        for one, other in zip(people, things, strict=True)
    ]


def cramers_v(embeddings: ArrayLike, prompts: ArrayLike, groups: ArrayLike) -> float:
    """Cramér's V (0 to 1) of each person's best prompt and group; 0 where all have the same prompt.
    embeddings [people, d], prompts [prompts, d], groups [people].
    """
    best = cosines(prompts, embeddings).argmax(axis=0)
    counts = crosstab(best, np.asarray(groups, np.str_)).count
    return float(association(counts, method="cramer")) if min(counts.shape) > 1 else 0.0


def average_precision(order: Sequence[Head], planted: HeadSet) -> float:
    """The mean, over the planted heads, of the precision at their places in the order; 0 for a head that is
    missing. InputError without planted heads.
    """
    places = _places(order, planted)
    return sum(found / place for found, place in enumerate(places, 1)) / len(planted)


def precision(order: Sequence[Head], planted: HeadSet) -> float:
    """The share of planted heads among as many first ones as were planted; InputError if none were."""
    return sum(place <= len(planted) for place in _places(order, planted)) / len(planted)


def _places(order: Sequence[Head], planted: HeadSet) -> list[int]:
    """Places of the planted heads in the order, from 1."""
    if not planted:
        raise InputError("A ranking can be scored only against one or more planted heads.")
    return [place for place, head in enumerate(order, 1) if head in planted]


def one_pass(evidence: Evidence) -> int:
    """Floating-point operations of a pass: all people of the half, once through the layers with heads."""
    with FlopCounterMode(display=False) as counted:
        evidence.model.embed_images(evidence.people)
    return int(counted.get_total_flops())


def measured(method: Method, evidence: Evidence) -> tuple[Scores, int]:
    """A method's scores, and its floating-point operations in PyTorch, backward passes and texts included;
    without those of the reading, for CCS is there before anybody looks for heads.
    """
    free, spared = with_free_reading(evidence)
    with FlopCounterMode(display=False) as counted:
        scores = method(free)
    return scores, int(counted.get_total_flops()) - sum(spared)


def with_free_reading(evidence: Evidence) -> tuple[Evidence, list[int]]:
    """The same evidence, and the floating-point operations that its reading takes, once somebody reads."""
    spared: list[int] = []

    def read() -> Reading:
        with FlopCounterMode(display=False) as inside:
            found = evidence.reading
        spared.append(inside.get_total_flops())
        return found

    return replace(evidence, read=read), spared


Orders = Mapping[str, tuple[Head, ...]]
"""Each method's heads, in its order."""


def rankings(
    evidence: Evidence, methods: Mapping[str, Method], seed: int, failed: dict[str, str]
) -> tuple[Orders, dict[str, float]]:
    """Each method's heads in its order, and its cost in passes; methods that fail are added to `failed`."""
    orders, passes, plain = dict[str, tuple[Head, ...]](), dict[str, float](), one_pass(evidence)
    for name, method in methods.items():
        try:
            scores, operations = measured(method, evidence)
        except InputError as error:
            failed[name] = str(error)
        else:
            orders[name], passes[name] = ranking(scores, seed), operations / plain
    return orders, passes


def own(name: str, method: Callable[[Evidence], Mapping[Head, float]]) -> Method:
    """A method of a user's own, which ends in an InputError where it fails or does not score each head."""

    def scored(evidence: Evidence) -> Scores:
        try:
            found = {head: float(score) for head, score in dict(method(evidence)).items()}
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(line.filename).name}, line {line.lineno}"
            raise InputError(
                f"The method {name} failed: {type(error).__name__}: {error} ({where})."
            ) from error
        for head in evidence.model.heads:
            if head not in found:
                raise InputError(f"The method {name} gives no score for {head}.")
            if not math.isfinite(found[head]):
                raise InputError(f"The method {name} gives {found[head]} for {head}, not a finite number.")
        return {head: found[head] for head in evidence.model.heads}

    return scored


@dataclass(frozen=True)
class Answer:
    """Heads found by a method, in its order; people, prompts: how many are in the half that it did not see.

    held_out: the figures there of no head off, these heads off, and random sets with as many heads of each
    layer. before, after: Cramér's V among others, without and with these heads off.
    """

    heads: tuple[Head, ...]
    people: int
    prompts: int
    held_out: tuple[HeldOut, ...]
    before: Reached
    after: Reached


def answer(subject: Subject, attribute: str, name: str, method: Method, seed: int = 0) -> Answer:
    """The heads that a method finds; seed: of the halves and random sets. InputError as in `halves`."""
    evidence, unseen = subject.split(attribute, seed)
    heads = enough(evidence, ranking(method(evidence), seed))
    off = HeadSet(heads)
    plans = [Plan("none", None, HeadSet(), "nothing is off"), Plan("found", None, off, f"found by {name}")]
    drawn = matched(off, subject.model.heads, RANDOM_SETS, seed, "layers") if off else []
    plans += [Plan("random:layers", i, one, "drawn at random") for i, one in enumerate(drawn)]
    before, after = reached(subject.model, unseen, [HeadSet(), off])
    held_out = held_out_figures(subject.model, unseen, plans, seed)
    return Answer(heads, len(unseen.people), len(unseen.prompts), held_out, before, after)


def enough(evidence: Evidence, order: Sequence[Head]) -> tuple[Head, ...]:
    """The first heads of a ranking, as long as each takes LEAST of the lean away on the half that is seen, or
    two in a row twice that: where they stand in for one another, the first takes little alone.
    """
    least, size = LEAST * evidence.lean_without(HeadSet()), 0

    def taken(step: int) -> bool:
        if size + step > min(MOST, len(order)):
            return False
        before, after = (evidence.lean_without(HeadSet(order[:some])) for some in (size, size + step))
        return before - after >= step * least > 0

    while step := next((step for step in (1, 2) if taken(step)), 0):
        size += step
    return tuple(order[:size])


def names_any(evidence: Evidence, order: Sequence[Head]) -> bool:
    """Whether `enough` of this ranking is any head, or the answer is that none carries the bias."""
    return bool(enough(evidence, order[:2]))
