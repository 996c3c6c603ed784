"""The task of making a model fairer: people to rank, images to still classify, each split into two halves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.analysis.galleries import cross_groups, embed_occupations, rank_gallery
from ccs.data import BiasSet, ClassificationSet
from ccs.data.open import open_dataset, open_gallery
from ccs.data.synthetic import Drawn
from ccs.errors import InputError
from ccs.metrics import bias
from ccs.metrics.accuracy import class_weights
from ccs.metrics.ranking import Ranking

if TYPE_CHECKING:
    from ccs.model.model import Model


@dataclass(frozen=True, kw_only=True, eq=False)
class Task(Ranking):
    """A ranking that should become fairer, and a classification whose accuracy should be preserved.

    Attributes:
        people: images, pixels, or a trunk of the people ranked.
        controls: images, pixels, or a trunk of the control dataset.
        labels: int [controls], each control image's class.
        class_weights: [classes, d], unit text embeddings.
        control_groups: [controls], each control image's group within its class; None without any.
    """

    people: Any
    controls: Any
    labels: ArrayLike
    class_weights: ArrayLike
    control_groups: NDArray[Any] | None = None

    def mean_max_skew(self, embeddings: ArrayLike) -> float:
        """Return the mean MaxSkew over the prompts for embeddings [people, d]."""
        return bias.means(embeddings, self)["MaxSkew"]


@dataclass(frozen=True, kw_only=True)
class Sets:
    """The images that a search for heads needs.

    Attributes:
        people: the gallery, with its occupations and K.
        controls: images with classes, on which accuracy must be preserved.
        images: what TEXTSPAN reads, as `ccs.open_images` takes it.
        texts: its pool of texts.
        max_images: the most of these images.
        held_out: measure results on fresh people (`draw_people`) if these are synthetic faces.
        left_out: number of people left out of crossed groups, by group.
    """

    people: BiasSet
    controls: ClassificationSet
    images: str = "world"
    texts: str = "world"
    max_images: int = 500
    held_out: bool = False
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def skipped(self) -> tuple[str, ...]:
        """Images that cannot be read, as "set: file and reason"."""
        return tuple(
            f"{dataset.name}: {name}" for dataset in (self.people, self.controls) for name in dataset.skipped
        )

    @classmethod
    def synthetic(cls) -> Sets:
        """Return those of the benchmark: 600 synthetic faces, and 186 synthetic subjects."""
        controls = open_dataset("world/subjects", max_images=186)
        assert isinstance(controls, ClassificationSet)
        return cls(people=open_gallery("world/faces"), controls=controls)


def make_task(model: Model, people: BiasSet, controls: ClassificationSet, attribute: str) -> Task:
    """Return the task of making these people's rankings for their occupations fairer.

    Args:
        model: embeds the prompts.
        people: with occupations and K.
        controls: images with classes.
        attribute: one of the people's columns of groups.
    """
    ranking = rank_gallery(people, attribute, embed_occupations(model, people))
    return Task(
        **{part.name: getattr(ranking, part.name) for part in fields(ranking)},
        people=people.images,
        controls=controls.images,
        labels=controls.labels,
        class_weights=class_weights(model, controls.classes, controls.templates),
        control_groups=next(iter(controls.groups.values()), None),
    )


def halves(task: Task, seed: int) -> tuple[Task, Task]:
    """Split a task in two at random: people by group, prompts, and control images by class.

    If prompts have pools, each half has all people that its prompts rank, and the whole K; otherwise half.

    Args:
        task: the whole.
        seed: of the split.

    Raises:
        InputError: With fewer than two prompts, a K below 2, or fewer than four images.
    """
    rng = np.random.default_rng([seed, 3])
    n_prompts, labels = len(task.prompts), np.asarray(task.labels)
    for number, needed in (
        (n_prompts, "2 or more prompts that differ to the model"),
        (task.k, "a K of 2 or more"),
    ):
        if number < 2:
            raise InputError(f"Fitting on one half and measuring on the other needs {needed}, not {number}.")
    if task.units is None:
        people = _split(task.groups, len(task.people), "people", rng)
    else:  # images that are resampled together stay together
        units, unit_of = np.unique(task.units, return_inverse=True)
        cut = _split(np.zeros(len(units)), len(units), "sets of people", rng)
        people = np.flatnonzero(np.isin(unit_of, cut[0])), np.flatnonzero(np.isin(unit_of, cut[1]))
    controls = _split(labels, len(task.controls), "images of classes", rng)
    mixed = rng.permutation(n_prompts)

    def half(side: int) -> Task:
        prompts, ranked = np.sort(mixed[side::2]), people[side]
        if task.pools is not None:
            ranked = np.flatnonzero(task.pools[prompts].any(axis=0))
        return Task(
            people=_take(task.people, ranked),
            groups=task.groups[ranked],
            prompts=task.prompts[prompts],
            k=task.k // 2 if task.pools is None else task.k,
            pools=None if task.pools is None else task.pools[np.ix_(prompts, ranked)],
            units=None if task.units is None else task.units[ranked],
            controls=_take(task.controls, controls[side]),
            labels=labels[controls[side]],
            class_weights=task.class_weights,
            control_groups=None if task.control_groups is None else task.control_groups[controls[side]],
        )

    return half(0), half(1)


def _split(
    kinds: NDArray[Any], n: int, noun: str, rng: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return two halves of the indices, as even as possible within each kind."""
    if kinds.shape != (n,) or n < 4:
        raise InputError(f"Expected at least 4 {noun} with one label each; got {n} and {kinds.size} labels.")
    shuffled = rng.permutation(n)
    by_kind = shuffled[np.argsort(kinds[shuffled], kind="stable")]
    return np.sort(by_kind[0::2]), np.sort(by_kind[1::2])


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
        gallery: people with the occupations, prompts, and K in force.
        attribute: a column of groups; crossed if its name has commas.
        seed: of the question.

    Returns:
        GALLERIES times 600 faces, with K the same share; None if the gallery isn't of synthetic faces.
    """
    if not re.fullmatch(r"world/faces( \(seed \d+\))?", gallery.name):
        return None
    first = _FIRST_SEED + GALLERIES * seed
    drawn = [open_gallery("world/faces", seed=number) for number in range(first, first + GALLERIES)]
    groups = {name: np.concatenate([people.groups[name] for people in drawn]) for name in drawn[0].groups}
    scenes = [scene for people in drawn if isinstance(people.images, Drawn) for scene in people.images.scenes]
    images = Drawn(scenes)
    share = len(images) / len(gallery.images)
    k = {name: round(share * number) for name, number in gallery.k.items()}
    people = replace(gallery, images=images, groups=groups, k=k, digests=None)
    return people if attribute in groups else cross_groups(people, attribute)[0]


def on_people(task: Task, people: BiasSet, attribute: str) -> Task:
    """Return a task with other people and the same prompts and control images.

    Args:
        task: the half that a method did not see.
        people: from `draw_people`.
        attribute: one of their columns of groups.
    """
    k = people.k.get(attribute, max(1, len(people.images) // 10))
    return replace(task, people=people.images, groups=people.groups[attribute], k=k, units=None)
