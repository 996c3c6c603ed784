"""A model with people and control images, whose halves a search, a method, or a mitigation sees."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ccs.analysis.evidence import Evidence, Reading, Tell, group_names, read_heads, say_nothing
from ccs.analysis.galleries import format_left_out, open_people, set_question
from ccs.analysis.inputs import Names, describe_model, load_model, open_classes
from ccs.analysis.task import Sets, Task, draw_people, halves, make_task, on_people
from ccs.data import BiasSet, ClassificationSet
from ccs.data.open import open_images
from ccs.errors import require_seed

if TYPE_CHECKING:
    from ccs.model.encoder import Trunk
    from ccs.model.model import Model


class Subject:
    """A model with its sets, whose embeddings below the first scored head all splits share.

    Args:
        model: from `ccs.load`.
        sets: people and control images.
        trunks: activations of both below the first scored head, if they are known.
    """

    def __init__(self, model: Model, sets: Sets, trunks: tuple[Trunk, Trunk] | None = None) -> None:
        self.model, self.sets = model, sets
        if trunks:
            self.trunks = trunks
        self._fresh: dict[tuple[str, int], BiasSet | None] = {}

    @cached_property
    def trunks(self) -> tuple[Trunk, Trunk]:
        """Activations of the people and of the control images below the first scored head."""
        return self.model.trunk(self.sets.people.images), self.model.trunk(self.sets.controls.images)

    @cached_property
    def reading(self) -> Reading:
        """The texts that TEXTSPAN reads in the model's heads, and their CCS by the tag-based judge."""
        images = open_images(self.sets.images, self.sets.max_images)
        return read_heads(self.model, images, self.sets.texts)

    def whole(self, attribute: str) -> Task:
        """Return the task for an attribute."""
        task = make_task(self.model, self.sets.people, self.sets.controls, attribute)
        return replace(task, people=self.trunks[0], controls=self.trunks[1])

    def split(self, attribute: str, seed: int = 0, tell: Tell = say_nothing) -> tuple[Evidence, Task]:
        """Return the evidence that methods see for an attribute, and the half on which they are judged.

        If the sets ask for it, the people of the second half are fresh.

        Args:
            attribute: a column of groups of the people.
            seed: of the split and of whatever a method draws.
            tell: called with a line at each step of a long method.

        Raises:
            InputError: If there is too little to split (`ccs.analysis.task.halves`).
        """
        seen, unseen = halves(self.whole(attribute), seed)
        people = self.fresh(attribute, seed)
        evidence = Evidence(
            model=self.model,
            task=seen,
            names=group_names(attribute, sorted(set(self.sets.people.groups[attribute].tolist()))),
            read=lambda: self.reading,
            seed=seed,
            tell=tell,
            attribute=attribute,
        )
        return evidence, unseen if people is None else on_people(unseen, people, attribute)

    def fresh(self, attribute: str, seed: int) -> BiasSet | None:
        """Return fresh people on whom a result is held out, if the sets ask for them.

        Args:
            attribute: a column of groups.
            seed: of the question.
        """
        if self.sets.held_out and (attribute, seed) not in self._fresh:
            self._fresh[attribute, seed] = draw_people(self.sets.people, attribute, seed)
        return self._fresh.get((attribute, seed))

    def describe_halves(self, attribute: str, seen: Task, unseen: Task, seed: int) -> dict[str, Any]:
        """Return the `about` of a result: the model, the sets, and both halves' sizes.

        Args:
            attribute: a column of groups.
            seen: the half on which something was fitted.
            unseen: the half on which it was measured.
            seed: of the split.
        """
        return describe_model(self.model) | {
            "gallery": self.sets.people.name,
            "attribute": attribute,
            "groups": len(unseen.group_names),
            "left_out": format_left_out(self.sets.left_out),
            "preserve": self.sets.controls.name,
            "k": self.sets.people.k[attribute],
            "fitted_on": len(seen.people),
            "fitted_prompts": len(seen.prompts),
            "held_out": len(unseen.people),
            "held_out_prompts": len(unseen.prompts),
            "fresh": self.fresh(attribute, seed) is not None,
            "seed": seed,
            "skipped": self.sets.skipped,
        }


def open_subject(
    model: Model | str,
    gallery: BiasSet | str,
    occupations: Names | None,
    *,
    attribute: str | None,
    preserve: ClassificationSet | str,
    classes: Names | None,
    template: str | None,
    prompts: str | None,
    top: int | None,
    max_images: int | None,
    skip_unreadable: bool,
    seed: int,
    device: str,
) -> tuple[Subject, str]:
    """Open the model and the sets of a question about both bias and accuracy.

    Args:
        model: from `ccs.load`, or a name that it takes.
        gallery: people, as `ccs.open_gallery` takes them.
        occupations: as in `ccs.bias`.
        attribute: the column of groups; None for gender, or else the first. "gender,race" crosses two.
        preserve: images with classes, as `ccs.open_dataset` takes them.
        classes: names of the classes of `preserve`, if it is opened here.
        template: the prompt of an occupation, with `{}` for it.
        prompts: a named prompt set in place of occupations and template.
        top: K.
        max_images: maximum number of images of each dataset opened here; synthetic people are all used.
        skip_unreadable: continue if more than 1% of the images cannot be read.
        seed: the question's, which is checked here.
        device: for a model given by name.

    Returns:
        tuple: the subject, and the attribute in force.

    Raises:
        InputError: If an argument does not fit the others.
    """
    require_seed(seed)
    people, attribute, left_out = open_people(gallery, attribute, max_images, skip_unreadable=skip_unreadable)
    controls = open_classes(preserve, classes, None, max_images, skip_unreadable)
    people = set_question(people, occupations, template, top, prompts)
    sets = Sets(people=people, controls=controls, held_out=True, left_out=left_out)
    return Subject(load_model(model, device), sets), attribute
