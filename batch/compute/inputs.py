"""What a run computes on: its images, its texts and its evaluation sets, opened and described."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from batch.compute.settings import Settings
from batch.compute.stages import digest
from ccs.datasets import SOURCES, open_images, open_set
from ccs.datasets.sets import BiasSet, ClassificationSet, ImageSet, RetrievalSet
from ccs.errors import InputError

WORLD_SETS = (
    "world/subjects",
    "world/subjects-ood",
    "world/colors",
    "world/places",
    "world/letters",
    "world/digits",
    "world/occupations",
    "world/clips",
    "world/faces",
    "world/counterfactuals",
)
SINGLE_HEADS = {"world/subjects", "world/colors", "world/occupations", "world/faces", "world/counterfactuals"}
"""Drawn sets on which every head is also switched off alone; it doubles a set's cost."""

FURTHER_K_SETS = {"cifar10", "cifar10-jpeg", "cifar100", "world/subjects", "world/colors"}
"""Sets with plans at further K: those of the study's table 3, and two drawn ones in their place."""

EvaluationSet = ClassificationSet | BiasSet | RetrievalSet


@dataclass(frozen=True)
class Absent:
    """Something asked for that could not be had."""

    name: str
    reason: str


def open_moment_images(settings: Settings) -> ImageSet:
    """The images that moments are collected from. Raises InputError where fewer than two can be read."""
    images = open_images(settings.images, settings.max_images, seed=settings.seed)
    if len(images.images) < 2:
        raise InputError(
            f"{settings.images} holds {len(images.images)} readable image{'s' * (len(images.images) != 1)}; "
            "at least two are needed to see what a head varies in."
        )
    return images


def open_sets(settings: Settings, tell: Callable[[str], None]) -> tuple[list[EvaluationSet], list[Absent]]:
    """The evaluation sets asked for, and those that could not be had, each with a sentence that says why."""
    names = (
        settings.sets or {"world": WORLD_SETS, "paper": tuple(SOURCES), "none": ()}[settings.suite or "none"]
    )
    found: list[EvaluationSet] = []
    absent: list[Absent] = []
    for name in names:
        try:
            opened = _open(name, settings)
            if isinstance(opened, ClassificationSet | BiasSet | RetrievalSet):
                found.append(opened)
        except InputError as error:
            if settings.sets:
                raise
            absent.append(Absent(name, str(error)))
            tell(f"{name} is left out: {error}")
    return found, absent


def _open(name: str, settings: Settings) -> ImageSet | RetrievalSet:
    if name == "world/clips":
        from ccs.world import sets as world

        limit = settings.eval_images
        return (
            world.retrieval_set("clips")
            if limit is None
            else world.retrieval_set("clips", n=max(10, limit // 4))
        )
    return open_set(name, max_images=settings.eval_images, seed=settings.seed)


def kind(data: EvaluationSet) -> str:
    """classification, bias or retrieval."""
    kinds: Mapping[type, str] = {
        ClassificationSet: "classification",
        BiasSet: "bias",
        RetrievalSet: "retrieval",
    }
    return kinds[type(data)]


def singles_on(data: EvaluationSet) -> bool:
    """Whether every head is also switched off alone on this set."""
    return not data.name.startswith("world/") or data.name in SINGLE_HEADS


def further_k_on(data: EvaluationSet, settings: Settings) -> bool:
    """Whether plans at further K are measured on this set: a set that was asked for by name has them all."""
    return data.name in FURTHER_K_SETS or data.name in settings.sets


def count(data: ImageSet | RetrievalSet) -> int:
    """How many images, or clips."""
    return len(data.clips) if isinstance(data, RetrievalSet) else len(data.images)


def count_texts(data: EvaluationSet) -> int:
    """How many texts its figures ask for."""
    if isinstance(data, ClassificationSet):
        return len(data.classes) * len(data.templates)
    if isinstance(data, BiasSet):
        return len(data.occupations) * len(data.templates)
    return sum(map(len, data.captions))


def described(data: EvaluationSet) -> dict[str, Any]:
    """A set's entry in the manifest."""
    entry: dict[str, Any] = {
        "name": data.name,
        "kind": kind(data),
        "count": count(data),
        "fingerprint": data.fingerprint,
        "source": data.source,
        "skipped": list(data.skipped),
    }
    if isinstance(data, ClassificationSet):
        entry |= {"classes": len(data.classes), "templates": list(data.templates)}
    elif isinstance(data, BiasSet):
        entry |= {"occupations": len(data.occupations), "templates": list(data.templates), "k": dict(data.k)}
    return entry


def question(data: EvaluationSet) -> str:
    """Hash of what is asked of a set's images: labels, classes, templates, groups, captions."""
    parts: dict[str, Any] = {"name": data.name}
    if isinstance(data, ClassificationSet):
        parts |= {"labels": data.labels.tolist(), "classes": data.classes, "templates": data.templates}
        parts["subsets"] = {name: list(classes) for name, classes in data.subsets.items()}
    elif isinstance(data, BiasSet):
        parts |= {"occupations": data.occupations, "templates": data.templates, "k": dict(data.k)}
        parts["groups"] = {name: np.asarray(groups).tolist() for name, groups in data.groups.items()}
    else:
        parts["captions"] = data.captions
    return digest(parts)
