"""What a mitigation does to people, prompts and images that it was not fitted on, and which one to choose."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccs.analysis.search import Task
from ccs.benchmark.protocol import Subject
from ccs.data import synthetic
from ccs.errors import InputError
from ccs.heads import Change as HeadChange
from ccs.heads import HeadSet, Intervention, changes, factors
from ccs.metrics import accuracy, bias, bias_result
from ccs.metrics.bias_result import BiasResult
from ccs.metrics.stats import Effect, Estimate
from ccs.mitigate.base import Affine, Fitted, Map, Units, name_embeddings
from ccs.mitigate.methods import METHODS, NOTHING
from ccs.model.encoder import Trunk
from ccs.model.export import Change, changed
from ccs.model.model import Model

PAIRS = 100
"""Images with captions, for retrieval."""
SHUFFLES = 20
"""Random groups, for the lean's chance level."""
OCCUPATIONS, RETRIEVAL = "occupations", "retrieval"


@dataclass(frozen=True, eq=False)
class Asked:
    """Images (a trunk), each of which belongs to one of some texts [c, d]: `right` [n] is its number."""

    images: Trunk
    texts: NDArray[np.float32]
    right: NDArray[np.int64]


def drawn_extras(model: Model) -> dict[str, Asked]:
    """People at work with their props, and scenes with captions, as a model of the drawn world sees them."""
    workers, clips = synthetic.classification_set("occupations"), synthetic.retrieval_set(PAIRS)
    names = accuracy.class_weights(model, workers.classes, workers.templates)
    captions = model.embed_texts([one[0] for one in clips.captions])
    frames = [clip[len(clip) // 2] for clip in clips.clips]
    return {
        OCCUPATIONS: Asked(model.trunk(workers.images), names, workers.labels),
        RETRIEVAL: Asked(model.trunk(frames), captions, np.arange(len(frames))),
    }


class Half:
    """The unseen half of an attribute's people, prompts and things. extras: other sets, which nobody saw."""

    def __init__(
        self, subject: Subject, attribute: str, seed: int, extras: Mapping[str, Asked] | None = None
    ) -> None:
        self.model, self.extras, self.attribute = subject.model, dict(extras or {}), attribute
        self.evidence, self.task = subject.split(attribute, seed)
        rows, _ = subject.unseen(attribute, seed)
        groups = subject.sets.people.groups
        self.others = {name: own[rows] for name, own in groups.items() if name != attribute}

    @cached_property
    def names(self) -> NDArray[np.float32]:
        """A text embedding for each group [groups, d]."""
        return name_embeddings(self.evidence).astype(np.float32)

    @cached_property
    def chance(self) -> dict[str, float]:
        """MaxSkew, NDKL and lean where groups mean nothing: of random rankings, and of shuffled groups."""
        units, rng = self._plain["people"], np.random.default_rng(0)
        mixed = [replace(self.task, groups=rng.permutation(self.task.groups)) for _ in range(SHUFFLES)]
        levels = self.measured(units, self.task).metrics
        return {
            "max_skew_chance": levels["MaxSkew"].chance_mean.value,
            "ndkl_chance": levels["NDKL"].chance_mean.value,
            "lean_chance": float(np.mean([one.lean(units) for one in mixed])),
        }

    def measured(self, units: Units, task: Task, draws: int = 40, seed: int = 0) -> BiasResult:
        """MaxSkew and NDKL of people's embeddings."""
        return bias.measure(units, task, metrics=("MaxSkew", "NDKL"), draws=draws, seed=seed)

    def asked(self, fitted: Fitted) -> Task:
        """The task with its prompts mapped."""
        return replace(self.task, prompts=fitted.on_texts(self.task.prompts))

    def judge(self, fitted: Sequence[Fitted], model: Model | None = None) -> list[dict[str, float]]:
        """The `figures` of each. model: another with the same lower layers and texts, with these heads."""
        return [
            self.figures(one, units) for one, units in zip(fitted, self.units(fitted, model), strict=True)
        ]

    def units(self, fitted: Sequence[Fitted], model: Model | None = None) -> list[dict[str, Units]]:
        """For each the embeddings of "people", "things" and the extras, as `judge` uses them."""
        plans = list(dict.fromkeys(one.heads for one in fitted if one.heads or model is not None))
        every = dict(zip(plans, self._embedded(model or self.model, plans), strict=True))
        return [
            {name: one.on_images(own) for name, own in every.get(one.heads, self._plain).items()}
            for one in fitted
        ]

    def _embedded(self, model: Model, plans: list[HeadSet]) -> list[dict[str, Units]]:
        """The sets' embeddings with each of these heads off."""
        if not plans:
            return []
        sets = {"people": self.task.people, "things": self.task.things}
        sets |= {name: one.images for name, one in self.extras.items()}
        every = {name: model.embed_images(some, plans) for name, some in sets.items()}
        return [{name: own[place] for name, own in every.items()} for place in range(len(plans))]

    @cached_property
    def _plain(self) -> dict[str, Units]:
        """The embeddings with nothing off."""
        return self._embedded(self.model, [HeadSet()])[0]

    def figures(self, fitted: Fitted, units: Mapping[str, Units]) -> dict[str, float]:
        """What is left with one. Accuracies and `asked` are shares of 1; `moved` is 1 less the cosine with
        the embedding as it was, the mean over things. `asked`: how often the text of a person's own group is
        the nearest of them.
        """
        people, things, task = units["people"], units["things"], self.asked(fitted)
        classes = fitted.on_texts(task.class_weights)
        found = {name: metric.mean.value for name, metric in self.measured(people, task).metrics.items()}
        rights = {
            name: _right(units[name], fitted.on_texts(one.texts), one.right)
            for name, one in self.extras.items()
        }
        return {
            "max_skew": found["MaxSkew"],
            "ndkl": found["NDKL"],
            "lean": task.lean(people),
            "accuracy": _right(things, classes, task.labels),
            **{name: rights.get(name, math.nan) for name in (OCCUPATIONS, RETRIEVAL)},
            **self.collateral(fitted, units),
        }

    def collateral(self, fitted: Fitted, units: Mapping[str, Units]) -> dict[str, float]:
        """Of the `figures` those that tell what else is changed: `other_skew`, `moved` and `asked`."""
        people, things, task = units["people"], units["things"], self.asked(fitted)
        beside = [replace(task, groups=groups).max_skew(people) for groups in self.others.values()]
        return {
            "other_skew": float(np.mean(beside)) if beside else math.nan,
            "moved": float(1 - (things * self._plain["things"]).sum(axis=1).mean()),
            "asked": _right(people, fitted.on_texts(self.names), task.codes),
        }


def _right(units: Units, texts: NDArray[np.float32], right: Any) -> float:
    """The share of images whose own text is the nearest."""
    return float(accuracy.correct(units, texts, right).mean())


# Which to choose ------------------------------------------------------------------------------------------

DRAWS = 500
QUICK = (
    "projection of group means",
    "LEACE",
    "groups' texts from texts",
    "groups' texts from images",
    "closed form",
    "CLIP-clip",
    "SFID",
    "DeAR's residual",
)
"""Those that need the people's embeddings alone, so that a first answer comes soon."""
SLOW = ("heads off", "learned gates", "heads at their mean")


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A mitigation on the unseen half. Changes are from the model as it is, paired; accuracies are shares.

    asked: how often the text of a person's own group is the nearest. other_skew: MaxSkew of the attributes
    besides, NaN without any. moved: how far other images' embeddings move, 1 less the cosine. people: their
    unit embeddings [n, d]. reason: why weights cannot hold it, "" where they can.
    """

    name: str
    fitted: Fitted
    max_skew: Estimate
    max_skew_change: Effect
    accuracy: Estimate
    accuracy_change: Effect
    asked: float
    other_skew: float
    moved: float
    people: Units
    reason: str

    def beats(self, other: Offer) -> bool:
        """True where it is no worse in MaxSkew and accuracy, and better in one of them."""
        ours, theirs = ((one.max_skew.value, -one.accuracy.value) for one in (self, other))
        return ours != theirs and ours[0] <= theirs[0] and ours[1] <= theirs[1]


def offers(
    half: Half, names: Sequence[str], seed: int = 0, tell: Callable[[str], None] = lambda _: None
) -> list[Offer]:
    """Nothing, then each of these mitigations."""
    fitted = {NOTHING: Fitted()}
    for name in names:
        tell(f"fitting “{name}” on {len(half.evidence.people):,} people")
        fitted[name] = written(METHODS[name](half.evidence))
    tell(f"judged on the other {len(half.task.people):,}")
    skews, rights = list[BiasResult](), list[accuracy.Accuracy]()
    found = []
    for (name, one), units in zip(fitted.items(), half.units(list(fitted.values())), strict=True):
        skews.append(half.measured(units["people"], half.asked(one), DRAWS, seed))
        classes = one.on_texts(half.task.class_weights)
        rights.append(accuracy.accuracy(units["things"], classes, half.task.labels, seed))
        found.append(
            Offer(
                name=name,
                fitted=one,
                max_skew=skews[-1].max_skew.mean,
                max_skew_change=bias_result.compare(skews[-1], skews[0]),
                accuracy=rights[-1].top1,
                accuracy_change=accuracy.compare(rights[-1], rights[0], seed=seed),
                **half.collateral(one, units),
                people=units["people"],
                reason=kept_out(half.model, one),
            )
        )
    return found


def written(fitted: Fitted) -> Fitted:
    """The same with factors of two digits, those at 1 left out: short enough to be typed, and for a link."""
    heads = fitted.heads
    if not isinstance(heads, Intervention):
        return fitted
    short = {head: HeadChange(round(one.factor, 2), one.at, one.first) for head, one in changes(heads)}
    kept = {head: one for head, one in short.items() if one != HeadChange(1.0)}
    return replace(fitted, heads=Intervention(kept, heads.means))


def front(found: Sequence[Offer]) -> set[str]:
    """The names of those that none of the others beats in both MaxSkew and accuracy."""
    return {one.name for one in found if not any(other.beats(one) for other in found)}


def best(found: Sequence[Offer], budget: float) -> Offer | None:
    """Of those that surely lower MaxSkew and lose at most this share of accuracy, the one with the least."""
    allowed = [one for one in found if not objection(one, budget)]
    return min(allowed, key=lambda one: one.max_skew.value, default=None)


def objection(one: Offer, budget: float) -> str:
    """Why it is not recommended at this budget, a share of accuracy; "" where it may be."""
    if not one.max_skew_change.high < 0:
        return "its change of MaxSkew is not surely below 0"
    lost = -one.accuracy_change.value
    return f"it loses {100 * lost:.1f} points of accuracy" if lost > budget + 1e-9 else ""


def kept_out(model: Model, fitted: Fitted) -> str:
    """Why the model's weights cannot hold it, "" where they can."""
    try:
        changed(model, as_change(fitted))
    except InputError as error:
        return str(error)
    return ""


def as_change(fitted: Fitted, said: Sequence[str] = ()) -> Change:
    """What a folder of the model would hold. Raises InputError for what is not linear."""
    factors(fitted.heads, "Weights")
    images, texts = (_matrix(one) for one in (fitted.images, fitted.texts))
    return Change(HeadSet() if not fitted.heads else fitted.heads, images, texts, said)


def _matrix(map: Map | None) -> np.ndarray | None:
    if map is None:
        return None
    if not isinstance(map, Affine) or not map.linear:
        what = "adds a constant to" if isinstance(map, Affine) else "depends on the direction of"
        raise InputError(
            f"It {what} embeddings of unit length, and the last projection is applied before they get it."
        )
    return map.matrix
