"""Which mitigation to choose for a model of one's own, and what it costs, on people that it has not seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.intervention import Change as HeadChange
from ccs.intervention import Intervention, changes, factors
from ccs.measures import accuracy, bias_result
from ccs.measures.bias_result import BiasResult
from ccs.measures.stats import Effect, Estimate
from ccs.mitigate.base import Affine, Fitted, Map, Units
from ccs.mitigate.judging import Half
from ccs.mitigate.methods import METHODS, NOTHING
from ccs.model.export import Change, changed
from ccs.model.model import Model

DRAWS = 500
QUICK = (
    "projection of group means", "LEACE", "groups' texts from texts", "groups' texts from images",
    "closed form", "CLIP-clip", "SFID", "DeAR's residual",
)  # fmt: skip
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
        tell(f"{name} is fitted on {len(half.evidence.people):,} people")
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
    allowed = [
        one for one in found
        if one.max_skew_change.high < 0 and one.accuracy_change.value >= -budget - 1e-9
    ]  # fmt: skip
    return min(allowed, key=lambda one: one.max_skew.value, default=None)


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
