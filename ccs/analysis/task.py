"""The task of making a model fairer: people to rank and images to classify, split in half, and measured."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ccs.analysis.ablation_sets import AblationSet
from ccs.analysis.bias import rank_gallery
from ccs.analysis.inputs import Embeddings, cross_groups, embed_names, embed_occupations
from ccs.analysis.preference import measure_part_changes, part_rows
from ccs.analysis.result import NO_CHANGE, value_columns
from ccs.data import BiasSet, ClassificationSet, Lazy
from ccs.data.open import open_gallery
from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.metrics import accuracy as zeroshot
from ccs.metrics import bias, bias_result, stats
from ccs.metrics.preference import PartChanges
from ccs.metrics.ranking import Ranking, cosines
from ccs.metrics.stats import Conclusion, Effect, Estimate
from ccs.synthetic.scene import draw

if TYPE_CHECKING:
    from ccs.model.model import Model


@dataclass(frozen=True, kw_only=True, eq=False)
class Task(Ranking):
    """A ranking that should become fairer, and a classification whose accuracy should be preserved.

    Attributes:
        people: Images, pixels, or a trunk of the people to rank.
        controls: Images, pixels, or a trunk of the control dataset.
        labels: Class of each control image, int [controls].
        class_weights: Unit text embeddings of the classes [classes, d].
        control_groups: Group of each control image within its class [controls]. None if there are none.
        other_groups: Attribute -> group of each person [n], for attributes other than the ranked one.
        fresh: Whether the people were drawn for this task only (`draw_people`).
    """

    people: Any
    controls: Any
    labels: NDArray[np.integer]
    class_weights: NDArray[np.floating]
    control_groups: NDArray[Any] | None = None
    other_groups: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    fresh: bool = False

    def mean_max_skew(self, embeddings: ArrayLike) -> float:
        """Return the mean MaxSkew over the prompts for embeddings [people, d]."""
        return bias.means(embeddings, self)["MaxSkew"]


def make_task(model: Model, people: BiasSet, controls: ClassificationSet, attribute: str) -> Task:
    """Return the task of making a gallery's rankings for its occupations fairer.

    Args:
        model: Model that embeds the prompts.
        people: Gallery with occupations and K.
        controls: Images with classes.
        attribute: One of the gallery's columns of groups.
    """
    ranking = rank_gallery(people, attribute, embed_occupations(model, people))
    return Task(
        **{part.name: getattr(ranking, part.name) for part in fields(ranking)},
        people=people.images,
        controls=controls.images,
        labels=controls.labels,
        class_weights=embed_names(model, controls.classes, controls.templates),
        control_groups=next(iter(controls.groups.values()), None),
        other_groups=_others(people, attribute),
    )


def _others(people: BiasSet, attribute: str) -> dict[str, NDArray[Any]]:
    return {name: groups for name, groups in people.groups.items() if name != attribute}


def halves(task: Task, seed: int) -> tuple[Task, Task]:
    """Split a task in two at random: people by group, prompts, and control images by class.

    If prompts have pools, each half has all people that its prompts rank, and the whole K; otherwise half.

    Args:
        task: Task to split.
        seed: Random seed for the split.

    Raises:
        InputError: If there are fewer than two prompts or four images, or K is below 2.
    """
    rng, labels = np.random.default_rng([seed, 3]), np.asarray(task.labels)
    for number, needed in (
        (len(task.prompts), "2 or more prompts that differ to the model"),
        (task.k, "a K of 2 or more"),
    ):
        if number < 2:
            raise InputError(f"Fitting on one half and measuring on the other needs {needed}, not {number}.")
    if task.units is None:
        people = _split(task.groups, len(task.people), "people", rng)
    else:  # images that are resampled together stay together
        units, unit_of = np.unique(task.units, return_inverse=True)
        cut = _split(np.zeros(len(units)), len(units), "sets of people", rng)
        people = [np.flatnonzero(np.isin(unit_of, side)) for side in cut]
    controls = _split(labels, len(task.controls), "images of classes", rng)
    mixed = rng.permutation(len(task.prompts))

    def half(side: int) -> Task:
        prompts, ranked, images = np.sort(mixed[side::2]), people[side], controls[side]
        if task.pools is not None:
            ranked = np.flatnonzero(task.pools[prompts].any(axis=0))
        return replace(
            task,
            people=_take(task.people, ranked),
            groups=task.groups[ranked],
            prompts=task.prompts[prompts],
            k=task.k // 2 if task.pools is None else task.k,
            pools=None if task.pools is None else task.pools[np.ix_(prompts, ranked)],
            units=None if task.units is None else task.units[ranked],
            names=(),
            rows=np.arange(len(prompts)),
            controls=_take(task.controls, images),
            labels=labels[images],
            control_groups=None if task.control_groups is None else task.control_groups[images],
            other_groups={name: groups[ranked] for name, groups in task.other_groups.items()},
        )

    return half(0), half(1)


def _split(kinds: NDArray[Any], n: int, noun: str, rng: np.random.Generator) -> list[NDArray[np.intp]]:
    """Return two halves of the indices, as even as possible within each kind."""
    if kinds.shape != (n,) or n < 4:
        raise InputError(f"Expected at least 4 {noun} with one label each; got {n} and {kinds.size} labels.")
    shuffled = rng.permutation(n)
    by_kind = shuffled[np.argsort(kinds[shuffled], kind="stable")]
    return [np.sort(by_kind[side::2]) for side in (0, 1)]


def _take(images: Any, rows: NDArray[np.intp]) -> Any:
    from ccs.model.encoder import Trunk  # imports PyTorch

    is_array = hasattr(images, "shape") or isinstance(images, Trunk)
    return images[rows] if is_array else [images[int(row)] for row in rows]


# Fresh people, whom no model was trained on and no method has seen ----------------------------------------

GALLERIES = 8
"""Galleries of 600 faces, ranked together."""
_FIRST_SEED = 500_000  # of galleries that nothing else uses


def draw_people(gallery: BiasSet, attribute: str, seed: int) -> BiasSet | None:
    """Draw fresh people for a question about synthetic faces.

    Args:
        gallery: Gallery with the occupations, prompts, and K in use.
        attribute: Column of groups, crossed if its name has commas.
        seed: Random seed. Different seeds give different people.

    Returns:
        GALLERIES times 600 faces, with K the same share; None if the gallery isn't of synthetic faces.
    """
    if not re.fullmatch(r"world/faces( \(seed \d+\))?", gallery.name):
        return None
    first = _FIRST_SEED + GALLERIES * seed
    drawn = [open_gallery("world/faces", seed=number) for number in range(first, first + GALLERIES)]
    groups = {name: np.concatenate([people.groups[name] for people in drawn]) for name in drawn[0].groups}
    scenes = [scene for people in drawn if isinstance(people.images, Lazy) for scene in people.images.keys]
    images = Lazy(draw, scenes)
    share = len(images) / len(gallery.images)
    k = {name: round(share * number) for name, number in gallery.k.items()}
    people = replace(gallery, images=images, groups=groups, k=k, digests=None)
    return people if attribute in groups else cross_groups(people, attribute)[0]


def on_people(task: Task, people: BiasSet, attribute: str) -> Task:
    """Return a task with other people and the same prompts and control images.

    Args:
        task: Half that a method did not see.
        people: Gallery from `draw_people`.
        attribute: One of its columns of groups.
    """
    k = people.k.get(attribute, max(1, len(people.images) // 10))
    task = replace(task, people=people.images, groups=people.groups[attribute], k=k, units=None)
    return replace(task, other_groups=_others(people, attribute), fresh=True)


# Measured on the half that nothing was fitted on ----------------------------------------------------------

DRAWS = 1000
"""Resampled pools for the intervals."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """MaxSkew and accuracy on the held-out half, with changes from the first set of a measurement, paired.

    Attributes:
        max_skew: Mean MaxSkew over the prompts. Its change is `max_skew_change`.
        chance: MaxSkew of random rankings.
        accuracy: Accuracy on control images, a share of 1. Its change is `accuracy_change`.
        parts: Changes of the general and the specific preference. None if there is too little to split.
    """

    max_skew: Estimate
    max_skew_change: Effect
    chance: Estimate
    accuracy: Estimate
    accuracy_change: Effect
    parts: PartChanges | None = None


@dataclass(frozen=True, kw_only=True)
class HeldOut(Measured):
    """A set of ablated heads on the half that the search did not see."""

    ablation: str
    seed: int | None
    heads: HeadSet


def measure_held_out(model: Model, task: Task, sets: Sequence[AblationSet], seed: int) -> tuple[HeldOut, ...]:
    """Measure ablation sets on a half that nothing was fitted on.

    Args:
        model: Model whose heads are ablated.
        task: Half that nothing was fitted on.
        sets: Ablation sets. The first, without heads, is the baseline.
        seed: Random seed for resampling.
    """
    heads = [ablation.heads for ablation in sets]
    people, controls = (model.embed_images(images, heads) for images in (task.people, task.controls))
    return tuple(
        HeldOut(ablation=ablation.name, seed=ablation.seed, heads=ablation.heads, **vars(measured))
        for ablation, measured in zip(
            sets, measure_embedded(people, controls, [task] * len(sets), seed), strict=True
        )
    )


def measure_embedded(
    people: Embeddings, controls: Embeddings, tasks: Sequence[Task], seed: int, draws: int = DRAWS
) -> list[Measured]:
    """Measure changes of a model by its embeddings.

    Args:
        people: Embeddings [n, d] of the half's people with each change. The first is the baseline.
        controls: Embeddings [m, d] of the half's control images with each change.
        tasks: The half for each change, with the changed prompts and class weights.
        seed: Random seed for resampling.
        draws: Number of resampled pools for the intervals of MaxSkew.
    """
    scores = [cosines(task.prompts, units) for task, units in zip(tasks, people, strict=True)]
    skews = bias.measure_ablations(scores, tasks[0], draws=draws, seed=seed)
    accuracies = [
        zeroshot.accuracy(units, task.class_weights, task.labels, seed)
        for units, task in zip(controls, tasks, strict=True)
    ]
    parts = measure_part_changes([scores[0], *scores], tasks[0], seed=seed)
    return [
        Measured(
            max_skew=skew.max_skew.mean,
            max_skew_change=bias_result.compare_bias(skew, skews[0]),
            chance=skew.max_skew.chance_mean,
            accuracy=accuracy.top1,
            accuracy_change=NO_CHANGE
            if accuracy is accuracies[0]
            else zeroshot.compare_accuracies(accuracy, accuracies[0], seed=seed),
            parts=changes,
        )
        for skew, accuracy, changes in zip(skews, accuracies, parts, strict=True)
    ]


def conclude(skew: Effect, accuracy: Effect, max_loss: float) -> Conclusion:
    """Decide whether an ablation lowers MaxSkew within a bounded loss of accuracy, by both 95% intervals.

    Args:
        skew: Change of MaxSkew.
        accuracy: Change of accuracy, a share of 1.
        max_loss: Accuracy (share of 1) that may be lost.
    """
    falls = stats.conclusion(skew, expected="below")
    if falls == "rejected" or accuracy.high < -max_loss - 1e-9:
        return "rejected"
    return "confirmed" if falls == "confirmed" and accuracy.low >= -max_loss - 1e-9 else "inconclusive"


def held_out_rows(sets: Sequence[HeldOut]) -> pd.DataFrame:
    """Return one row per ablation set and metric, as `SearchTable.rows` has them; the first set is none."""
    rows = [_names(held) | row for held in sets for row in skew_and_accuracy(sets[0], held)]
    return pd.DataFrame(rows).astype({"seed": "Int64"})


def skew_and_accuracy(before: Measured, after: Measured) -> Iterator[dict[str, Any]]:
    """Yield the columns of MaxSkew and of accuracy.

    Args:
        before: Results without ablation.
        after: Results with ablation.
    """
    skew = value_columns(before.max_skew.value, after.max_skew, after.max_skew_change)
    yield {"metric": "MaxSkew"} | skew | {"chance": after.chance.value}
    accuracy = value_columns(before.accuracy.value, after.accuracy, after.accuracy_change)
    yield {"metric": "accuracy"} | accuracy | {"chance": np.nan}


def held_out_parts(sets: Sequence[HeldOut]) -> pd.DataFrame:
    """Return the changes of the general and the specific preference, one row per ablation set."""
    return part_rows((_names(held), held.parts) for held in sets if held.heads)


def _names(held: HeldOut) -> dict[str, Any]:
    return {"ablation": held.ablation, "seed": held.seed, "heads": str(held.heads)}
