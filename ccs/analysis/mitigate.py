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
from ccs.analysis.evidence import Tell, say_nothing
from ccs.analysis.inputs import Names, read_names, value_columns
from ccs.analysis.mitigations import METHODS, NOTHING, Fitted, Mitigation, Units
from ccs.analysis.preference import measure_part_changes, part_rows
from ccs.analysis.result import Result, TradeoffResult
from ccs.analysis.search import conclude
from ccs.analysis.subject import Subject, open_subject
from ccs.analysis.task import Task, halves
from ccs.data import BiasSet, ClassificationSet
from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.metrics import accuracy, bias, bias_result
from ccs.metrics.bias_result import BiasResult
from ccs.metrics.preference import PartChanges
from ccs.metrics.stats import Effect, Estimate

if TYPE_CHECKING:
    from ccs.model.model import Model

DRAWS = 500


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class MitigationTable(TradeoffResult):
    """The result of `ccs.mitigate`. A notebook shows its plot.

    Attributes:
        about: the model, gallery, attribute, control dataset, and seed behind the numbers.
        rows: one row per method and metric, on the half of people and prompts that the methods did not see;
            the method "nothing" comes first. Columns: `method`; `metric`, one of "MaxSkew", "accuracy",
            "group accuracy" (how often the text of a person's own group is the nearest), "worst-group
            accuracy" (of a class within a group of control images, NaN if they have no groups), "MaxSkew of
            other attributes", and "moved" (1 minus the cosine with the embedding before, the mean over
            control images); `before` and `after`; for the first two `low`, `high`, the 95% interval of
            `after`, and `difference`, `difference_low`, `difference_high`, `p_value`, paired; `chance`, of
            random rankings; `in_weights`, whether a saved model can hold the method; `conclusion`, as in
            `ccs.search`.
        parts: one row per method: the changes of the general and the occupation-specific preference
            (`ccs.analysis.preference.part_rows`).
        best: the name of the method that lowers MaxSkew most within `max_loss`, None if none surely does.
        options: method -> what it fitted, with its estimates.
    """

    parts: pd.DataFrame
    best: str | None
    options: Mapping[str, Option]

    def __repr__(self) -> str:
        subject = f"{self.about['model']} by {self.about['attribute']}"
        return f"<MitigationTable of {subject}: {self.best or 'no method'} is best, see .rows>"

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
    """Fit ways to lower a bias on half of the people and prompts, and measure each on the other half.

    Args:
        model: from `ccs.load`, or a name that it takes.
        gallery: people to rank, as in `ccs.bias`.
        occupations: as in `ccs.bias`.
        attribute: the column of groups; by default gender, or else the first. "gender,race" crosses two.
        methods: of "ablation", "scaling", "edit", "edit of all heads", "projection", and "LEACE"; by default
            all.
        max_loss: the accuracy (share of 1) that the best method may lose.
        preserve: images with classes, on which accuracy must be preserved, as in `ccs.accuracy`.
        classes: names of the classes of `preserve`, if it is opened here.
        template: the prompt of an occupation, with `{}` for it.
        prompts: a named prompt set in place of occupations and template (`ccs.texts.prompts`).
        top: K, as in `ccs.bias`; each half has half of it.
        max_images: maximum number of images of each dataset opened here; synthetic people are all used.
        skip_unreadable: continue if more than 1% of the images cannot be read.
        seed: of the split into halves.
        device: for a model given by name.
        tell: called with a line for each step.

    Returns:
        MitigationTable: each method's numbers, and the best one.

    Raises:
        InputError: For an unknown method, if an argument does not fit, or with too little to split.
    """
    if not 0 <= max_loss <= 1:
        raise InputError(f"The loss is a share of 1, such as 0.02 for 2 points, not {max_loss}.")
    names = tuple(METHODS) if methods is None else read_names(methods, "method")
    if unknown := next((name for name in names if name not in METHODS), None):
        raise InputError(f"There is no method {unknown!r}; there are {', '.join(METHODS)}.")
    subject, attribute = open_subject(
        model,
        gallery,
        occupations,
        attribute=attribute,
        preserve=preserve,
        classes=classes,
        template=template,
        prompts=prompts,
        top=top,
        max_images=max_images,
        skip_unreadable=skip_unreadable,
        seed=seed,
        device=device,
    )
    return mitigate_subject(subject, attribute, {name: METHODS[name] for name in names}, max_loss, seed, tell)


def mitigate_subject(
    subject: Subject,
    attribute: str,
    methods: Mapping[str, Mitigation],
    max_loss: float = 0.02,
    seed: int = 0,
    tell: Tell = say_nothing,
) -> MitigationTable:
    """Answer `mitigate` for a model whose sets are open.

    Args:
        subject: the model and its sets.
        attribute: a column of groups of the people.
        methods: name -> function from evidence to what it fitted.
        max_loss: the accuracy (share of 1) that the best method may lose.
        seed: of the split into halves.
        tell: called with a line for each step; what it raises ends the work.
    """
    half = Half(subject, attribute, seed, tell)
    options = fit_methods(half, methods, seed)
    description = subject.describe_halves(attribute, half.evidence.task, half.task, seed) | {
        "max_loss": max_loss
    }
    rows = []
    for option in options:
        case = {"method": option.name, "in_weights": not option.reason}
        if option is not options[0]:
            case["conclusion"] = conclude(option.max_skew_change, option.accuracy_change, max_loss)
        skew, *others = _rows(options[0], option)
        rows += [case | skew | {"chance": half.chance}, *(case | row for row in others)]
    best = choose(options, max_loss)
    return MitigationTable(
        about=description,
        rows=pd.DataFrame(rows),
        parts=part_rows(({"method": option.name}, option.parts) for option in options[1:]),
        best=best.name if best else None,
        options={option.name: option for option in options},
    )


@dataclass(frozen=True, kw_only=True)
class Option:
    """A method on the unseen half; changes are from the model as it is, paired.

    Attributes:
        name: of the method.
        fitted: what is done to the model.
        max_skew: with the change `max_skew_change`.
        accuracy: on control images, a share of 1, with the change `accuracy_change`.
        group_accuracy: how often the text of a person's own group is the nearest.
        worst_group: the lowest accuracy of a class within a group of control images, such as the place of
            Waterbirds; NaN if they have no groups.
        other_skew: MaxSkew of the other attributes, NaN without any.
        moved: how far control images' embeddings move, 1 minus the cosine.
        people: the people's unit embeddings [n, d].
        reason: why weights cannot hold it, "" if they can.
        parts: changes of the general and the specific preference; None if there is too little to split.
    """

    name: str
    fitted: Fitted
    max_skew: Estimate
    max_skew_change: Effect
    accuracy: Estimate
    accuracy_change: Effect
    group_accuracy: float
    worst_group: float
    other_skew: float
    moved: float
    people: Units
    reason: str
    parts: PartChanges | None = None


class Half:
    """The half of an attribute's people, prompts, and control images that methods don't see.

    Args:
        subject: the model and its sets.
        attribute: a column of groups of the people.
        seed: of the split.
        tell: called with a line for each step.
    """

    def __init__(self, subject: Subject, attribute: str, seed: int, tell: Tell = say_nothing) -> None:
        self.model, self.attribute, self.tell = subject.model, attribute, tell
        self.evidence, self.task = subject.split(attribute, seed, tell)
        self.images = {"people": self.task.people, "controls": self.task.controls}
        fresh = subject.fresh(attribute, seed)
        groups = (fresh or subject.sets.people).groups
        rows: Any = slice(None)
        if not fresh:  # indices of the people in this half
            whole = subject.whole(attribute)
            rows = halves(replace(whole, people=np.arange(len(whole.groups))), seed)[1].people
        self.other_groups = {name: values[rows] for name, values in groups.items() if name != attribute}

    @cached_property
    def group_texts(self) -> NDArray[np.float32]:
        """A text embedding for each group [groups, d]."""
        return mitigations.name_embeddings(self.evidence).astype(np.float32)

    @cached_property
    def chance(self) -> float:
        """MaxSkew of random rankings."""
        return self.measure(self.before["people"], self.task).max_skew.chance_mean.value

    def measure(self, units: Units, task: Task, draws: int = 40, seed: int = 0) -> BiasResult:
        """Return MaxSkew and NDKL of people's embeddings.

        Args:
            units: [n, d].
            task: with the prompts in force.
            draws: resampled pools for the intervals.
            seed: of resampling.
        """
        return bias.measure(units, task, metrics=("MaxSkew", "NDKL"), draws=draws, seed=seed)

    def mapped_task(self, fitted: Fitted) -> Task:
        """Return the task with its prompts mapped."""
        return replace(self.task, prompts=fitted.on_texts(self.task.prompts))

    def embed_options(self, options: Sequence[Fitted], model: Model | None = None) -> list[dict[str, Units]]:
        """Return, for each option, the embeddings of all sets of images.

        Args:
            options: what is done to the model.
            model: another one with the same lower layers and texts.
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

    def side_effects(self, fitted: Fitted, units: Mapping[str, Units]) -> dict[str, float]:
        """Return `other_skew`, `moved`, and `group_accuracy` of an option (see `Option`).

        Args:
            fitted: the option.
            units: its embeddings, from `embed_options`.
        """
        people, controls, task = units["people"], units["controls"], self.mapped_task(fitted)
        skews = [replace(task, groups=groups).mean_max_skew(people) for groups in self.other_groups.values()]
        right = accuracy.correct(people, fitted.on_texts(self.group_texts), task.codes)
        return {
            "other_skew": float(np.mean(skews)) if skews else math.nan,
            "moved": float(1 - (controls * self.before["controls"]).sum(axis=1).mean()),
            "group_accuracy": float(right.mean()),
        }


def fit_methods(half: Half, methods: Mapping[str, Mitigation], seed: int = 0) -> list[Option]:
    """Fit each method on the seen half and measure it on the other; the first option is nothing.

    Args:
        half: the unseen half, with the other half's evidence.
        methods: name -> function from evidence to what it fitted.
        seed: of resampling.
    """
    fitted: dict[str, Fitted] = {NOTHING: mitigations.nothing(half.evidence)}
    for name, method in methods.items():
        half.tell(f"fitting {name} on {len(half.evidence.people):,} people")
        fitted[name] = mitigations.round_factors(method(half.evidence))
    half.tell(f"measuring on the other {len(half.task.people):,} people")
    embedded = half.embed_options(list(fitted.values()))
    tasks = [half.mapped_task(fit) for fit in fitted.values()]
    people = [units["people"] for units in embedded]
    parts = measure_part_changes(
        people[0], people, half.task, prompts=[task.prompts for task in tasks], seed=seed
    )
    skews, accuracies, options = list[BiasResult](), list[accuracy.Accuracy](), list[Option]()
    for (name, fit), task, units, changes in zip(fitted.items(), tasks, embedded, parts, strict=True):
        skews.append(half.measure(units["people"], task, DRAWS, seed))
        weights = fit.on_texts(task.class_weights)
        accuracies.append(accuracy.accuracy(units["controls"], weights, task.labels, seed))
        options.append(
            Option(
                name=name,
                fitted=fit,
                max_skew=skews[-1].max_skew.mean,
                max_skew_change=bias_result.compare_bias(skews[-1], skews[0]),
                accuracy=accuracies[-1].top1,
                accuracy_change=accuracy.compare_accuracies(accuracies[-1], accuracies[0], seed=seed),
                **half.side_effects(fit, units),
                worst_group=accuracy.worst_group(accuracies[-1], task.control_groups),
                people=units["people"],
                reason=mitigations.why_not_in_weights(half.model, fit),
                parts=changes,
            )
        )
    return options


def _rows(before: Option, after: Option) -> list[dict[str, Any]]:
    plain = {
        "group accuracy": (before.group_accuracy, after.group_accuracy),
        "worst-group accuracy": (before.worst_group, after.worst_group),
        "MaxSkew of other attributes": (before.other_skew, after.other_skew),
        "moved": (0.0, after.moved),
    }
    return [
        {"metric": "MaxSkew"} | value_columns(before.max_skew.value, after.max_skew, after.max_skew_change),
        {"metric": "accuracy"} | value_columns(before.accuracy.value, after.accuracy, after.accuracy_change),
        *(
            {"metric": name, "before": first, "after": second, "difference": second - first}
            for name, (first, second) in plain.items()
        ),
    ]


def choose(options: Sequence[Option], max_loss: float) -> Option | None:
    """Return the option with the lowest MaxSkew of those that surely lower it within the allowed loss.

    Args:
        options: measured on the unseen half.
        max_loss: the share of accuracy that may be lost.
    """
    allowed = [option for option in options if not objection(option, max_loss)]
    return min(allowed, key=lambda option: option.max_skew.value, default=None)


def objection(option: Option, max_loss: float) -> str:
    """Return why an option is not recommended, "" if it may be.

    Args:
        option: measured on the unseen half.
        max_loss: the share of accuracy that may be lost.
    """
    if not option.max_skew_change.high < 0:
        return "its change of MaxSkew is not surely below 0"
    lost = -option.accuracy_change.value
    return f"it loses {100 * lost:.1f} points of accuracy" if lost > max_loss + 1e-9 else ""
