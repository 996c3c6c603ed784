"""Fresh synthetic people, which no model was trained on and no method has seen, for held-out results."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from ccs.analysis.galleries import cross_groups
from ccs.analysis.task import Task
from ccs.data import BiasSet
from ccs.data.open import open_gallery
from ccs.data.synthetic import Drawn

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
