"""How can a model's bias be lowered, what does each way cost, and which one should be chosen?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ccs.analysis import mitigations
from ccs.analysis.evidence import Evidence, Subject, Tell, say_nothing
from ccs.analysis.inputs import Names, load_model, open_classes, open_people, read_names, set_question
from ccs.analysis.mitigations import METHODS, NOTHING, Fitted, Mitigation, Units
from ccs.analysis.preference import part_rows
from ccs.analysis.result import Result, TradeoffResult
from ccs.analysis.task import Measured, Task, conclude, measure_embedded, skew_and_accuracy
from ccs.data import BiasSet, ClassificationSet
from ccs.errors import InputError, require_seed
from ccs.heads import HeadSet
from ccs.metrics import accuracy

if TYPE_CHECKING:
    from ccs.model.model import Model

DRAWS = 500
SIDE_EFFECTS = {
    "group accuracy": "group_accuracy",
    "worst-group accuracy": "worst_group",
    "MaxSkew of other attributes": "other_skew",
    "moved": "moved",
}
"""Metric -> attribute of `Option`."""


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class MitigationTable(TradeoffResult):
    """The result of `ccs.mitigate`. A notebook shows its plot.

    Attributes:
        about: Model, gallery, attribute, control dataset, and seed behind the numbers.
        rows: One row per method and metric, on the half of people and prompts that the methods did not see.
            The method "nothing" comes first. Columns: `method`; `metric`, one of "MaxSkew", "accuracy",
            "group accuracy" (the share of people for whom the text of their own group is nearest),
            "worst-group accuracy" (of a class within a group of control images, NaN if they have no groups),
            "MaxSkew of other attributes", and "moved" (1 minus the cosine with the embedding before, averaged
            over control images); `before`, `after`, and `difference`; for the first two metrics also `low`
            and `high`, the 95% interval of `after`, and `difference_low`, `difference_high`, and `p_value`,
            paired; `chance`, the level of random rankings; `in_weights`, whether a saved model can hold the
            method; `conclusion`, as in `ccs.search`.
        parts: One row per method: the changes of the general and the occupation-specific preference
            (`ccs.analysis.preference.part_rows`).
        best: Name of the method that lowers MaxSkew most within `max_loss`. None if no method surely does.
        options: Method -> its fitted changes and its results.
    """

    parts: pd.DataFrame
    best: str | None
    options: Mapping[str, Option]

    def _summary(self) -> str:
        return f"{self.best or 'no method'} is best, see .rows"

    def to_json(self) -> str:
        """Return all fields but the fitted maps as JSON."""
        methods = {name: {"heads": str(option.fitted.heads)} for name, option in self.options.items()}
        return Result.to_json(replace(self, options=methods))  # type: ignore[arg-type]


def mitigate(
    model: Model | str,
    gallery: BiasSet | str = "world/faces",
    occupations: Names | None = None,
    *,
    attribute: str | None = None,
    methods: Names | None = None,
    max_loss: float = 0.02,
    preserve: ClassificationSet | str = "world/subjects",
    classes: Names | None = None,
    template: str | None = None,
    prompts: str | None = None,
    top: int | None = None,
    max_images: int | None = None,
    skip_unreadable: bool = False,
    seed: int = 0,
    device: str = "cpu",
    tell: Tell = say_nothing,
) -> MitigationTable:
    """Fit methods that lower a bias on half of the people and prompts, and measure each on the other half.

    Args:
        model: A model from `ccs.load`, or its name.
        gallery: People to rank, as in `ccs.bias`.
        occupations: As in `ccs.bias`.
        attribute: Column of groups. By default gender, or else the first column. "gender,race" crosses two
            columns.
        methods: Names of methods: "ablation", "scaling", "edit", "edit of all heads", "projection", or
            "LEACE". By default all.
        max_loss: Accuracy (share of 1) that the best method may lose.
        preserve: Images with classes on which accuracy must be preserved, as in `ccs.accuracy`.
        classes: Names of the classes of `preserve`, if it is given by name.
        template: Prompt with `{}` for the occupation. By default the gallery's.
        prompts: Name of a prompt set (`ccs.texts.prompts`), in place of occupations and template.
        top: K, as in `ccs.bias`. Each half uses half of it, unless each occupation ranks its own images.
        max_images: Maximum number of images of each dataset given by name. Synthetic people are all used.
        skip_unreadable: Whether to continue if more than 1% of the images cannot be read.
        seed: Random seed for the split into halves.
        device: Device for a model given by name, as in `ccs.load`.
        tell: Function that is called with a line of text at each step.

    Returns:
        MitigationTable: The results of each method, and the best one.

    Raises:
        InputError: If a method is unknown, an argument does not fit, or there is too little to split.
    """
    if not 0 <= max_loss <= 1:
        raise InputError(f"The loss is a share of 1, such as 0.02 for 2 points, not {max_loss}.")
    names = tuple(METHODS) if methods is None else read_names(methods, "method")
    if unknown := next((name for name in names if name not in METHODS), None):
        raise InputError(f"There is no method {unknown!r}; there are {', '.join(METHODS)}.")
    require_seed(seed)
    people, attribute, left_out = open_people(gallery, attribute, max_images, skip_unreadable=skip_unreadable)
    people = set_question(people, occupations, template, top, prompts)
    controls = open_classes(preserve, classes, None, max_images, skip_unreadable)
    subject = Subject(load_model(model, device), people, controls, fresh=True, left_out=left_out)
    return mitigate_subject(subject, attribute, {name: METHODS[name] for name in names}, max_loss, seed, tell)


def mitigate_subject(
    subject: Subject,
    attribute: str,
    methods: Mapping[str, Mitigation],
    max_loss: float = 0.02,
    seed: int = 0,
    tell: Tell = say_nothing,
) -> MitigationTable:
    """Run `mitigate` for a model with opened datasets.

    Args:
        subject: Model with its gallery and control images.
        attribute: Column of groups of the people.
        methods: Name -> function from evidence to fitted changes.
        max_loss: Accuracy (share of 1) that the best method may lose.
        seed: Random seed for the split into halves.
        tell: Function that is called with a line of text at each step. An exception that it raises ends the
            work.
    """
    evidence, task = subject.split(attribute, seed, tell)
    half, fitted = Half(evidence, task), {NOTHING: mitigations.nothing(evidence)}
    for name, method in methods.items():
        tell(f"fitting {name} on {len(evidence.people):,} people")
        fitted[name] = mitigations.round_factors(method(evidence))
    tell(f"measuring on the other {len(task.people):,} people")
    embedded = half.embed_options(list(fitted.values()))
    tasks = [fit.on_task(task) for fit in fitted.values()]
    people, controls = ([units[name] for units in embedded] for name in ("people", "controls"))
    measured = measure_embedded(people, controls, tasks, seed, DRAWS)
    options = [
        Option(
            name=name,
            fitted=fit,
            reason=mitigations.why_not_in_weights(subject.model, fit),
            **vars(changes),
            **half.side_effects(fit, units),
        )
        for (name, fit), changes, units in zip(fitted.items(), measured, embedded, strict=True)
    ]
    rows = []
    for option in options:
        case: dict[str, Any] = {"method": option.name, "in_weights": not option.reason}
        if option is not options[0]:
            case["conclusion"] = conclude(option.max_skew_change, option.accuracy_change, max_loss)
        rows += [case | row for row in skew_and_accuracy(options[0], option)]
        for name, column in SIDE_EFFECTS.items():
            after = getattr(option, column)
            before = 0.0 if column == "moved" else getattr(options[0], column)  # not a rounding error
            rows += [case | {"metric": name, "before": before, "after": after, "difference": after - before}]
    best = choose(options, max_loss)
    return MitigationTable(
        about=subject.describe(evidence, task, options[0].accuracy) | {"max_loss": max_loss},
        rows=pd.DataFrame(rows),
        parts=part_rows(({"method": option.name}, option.parts) for option in options[1:]),
        best=best.name if best else None,
        options={option.name: option for option in options},
    )


@dataclass(frozen=True, kw_only=True)
class Option(Measured):
    """The results of a method on the unseen half.

    Attributes:
        name: Name of the method.
        fitted: Fitted changes of the model.
        group_accuracy: Share of people for whom the text of their own group is nearest.
        worst_group: Lowest accuracy of a class within a group of control images, such as the place in
            Waterbirds. NaN if they have no groups.
        other_skew: MaxSkew of the other attributes, averaged over them. NaN if there are none.
        moved: Change of the control images' embeddings: 1 minus the cosine, averaged.
        reason: Reason why weights cannot hold the method, or "" if they can.
    """

    name: str
    fitted: Fitted
    group_accuracy: float
    worst_group: float
    other_skew: float
    moved: float
    reason: str


class Half:
    """The half of an attribute's people, prompts, and control images that methods don't see.

    Args:
        evidence: Other half, on which methods are fitted.
        task: This half.
    """

    def __init__(self, evidence: Evidence, task: Task) -> None:
        self.model, self.evidence, self.task = evidence.model, evidence, task
        self.images = {"people": task.people, "controls": task.controls}

    @cached_property
    def group_texts(self) -> NDArray[np.float32]:
        """A text embedding for each group [groups, d]."""
        return mitigations.name_embeddings(self.evidence).astype(np.float32)

    def embed_options(self, options: Sequence[Fitted], model: Model | None = None) -> list[dict[str, Units]]:
        """Return, for each option, the embeddings of all sets of images.

        Args:
            options: Fitted changes of the model.
            model: Another model with the same lower layers and texts.
        """
        sets = list(dict.fromkeys(fitted.heads for fitted in options if fitted.heads or model is not None))
        after = dict(zip(sets, self._embed(model or self.model, sets), strict=True))
        return [
            {name: fitted.on_images(units) for name, units in after.get(fitted.heads, self.before).items()}
            for fitted in options
        ]

    def _embed(self, model: Model, sets: list[HeadSet]) -> list[dict[str, Units]]:
        if not sets:
            return []
        embedded = {name: model.embed_images(images, sets) for name, images in self.images.items()}
        return [{name: units[place] for name, units in embedded.items()} for place in range(len(sets))]

    @cached_property
    def before(self) -> dict[str, Units]:
        """The embeddings of all sets of images by the model as it is."""
        return self._embed(self.model, [HeadSet()])[0]

    def side_effects(self, fitted: Fitted, units: Mapping[str, Units]) -> dict[str, Any]:
        """Return the columns of SIDE_EFFECTS of an option (see `Option`).

        Args:
            fitted: Fitted changes of the model.
            units: Embeddings with these changes, from `embed_options`.
        """
        people, controls, task = units["people"], units["controls"], fitted.on_task(self.task)
        skews = [replace(task, groups=groups).mean_max_skew(people) for groups in task.other_groups.values()]
        right = accuracy.correct(people, fitted.on_texts(self.group_texts), task.codes)
        classified = accuracy.correct(controls, task.class_weights, task.labels)
        return {
            "group_accuracy": float(right.mean()),
            "worst_group": accuracy.worst_group(classified, task.labels, task.control_groups),
            "other_skew": float(np.mean(skews)) if skews else math.nan,
            "moved": float(1 - (controls * self.before["controls"]).sum(axis=1).mean()),
        }


def choose(options: Sequence[Option], max_loss: float) -> Option | None:
    """Return the option with the lowest MaxSkew of those that surely lower it within the allowed loss.

    Args:
        options: Methods measured on the unseen half.
        max_loss: Accuracy (share of 1) that may be lost.
    """
    allowed = [option for option in options if not objection(option, max_loss)]
    return min(allowed, key=lambda option: option.max_skew.value, default=None)


def objection(option: Option, max_loss: float) -> str:
    """Return why an option is not recommended, or "" if it can be.

    Args:
        option: Method measured on the unseen half.
        max_loss: Accuracy (share of 1) that may be lost.
    """
    if not option.max_skew_change.high < 0:
        return "its change of MaxSkew is not surely below 0"
    lost = -option.accuracy_change.value
    return f"it loses {100 * lost:.1f} points of accuracy" if lost > max_loss + 1e-9 else ""
