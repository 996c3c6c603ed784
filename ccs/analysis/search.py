"""Which few heads can be ablated so that rankings of people become fairer at a bounded loss of accuracy?

The search minimizes the lean (`ccs.metrics.ranking`), since MaxSkew depends on a few images at the top and
jumps, so that a search which minimizes it fits noise. It measures single heads first; those that lower the
lean most become candidates. It then adds one candidate at a time, always the one that lowers the lean most in
a forward pass with all chosen heads ablated, while accuracy stays within its bound. Finally it removes heads
that are not needed.

Any search fits some noise. So people, prompts, and control images are each split in half at random: the
search sees one half, and the results come from the other, next to sets that were not searched for. K is
halved too, which keeps its share of the pool. If each prompt ranks images of its own, splitting the prompts
splits the images, and K stays.

    >>> Limits(max_loss=0.01).max_heads    # at most a hundredth of the accuracy may be lost
    8
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ccs.analysis.ablation_sets import AblationSet
from ccs.analysis.evidence import Tell, open_subject, say_nothing
from ccs.analysis.inputs import Names, change_columns
from ccs.analysis.result import Result, axes
from ccs.analysis.task import Task, halves, make_task
from ccs.data import BiasSet, ClassificationSet
from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.metrics import accuracy as zeroshot
from ccs.metrics import bias, bias_result, stats
from ccs.metrics.stats import Conclusion, Effect, Estimate

if TYPE_CHECKING:
    from ccs.model.model import Model

DRAWS = 1000
"""Resampled pools for the intervals."""
SEARCHED = "searched"
"""The name of the set that a search ends with."""


@dataclass(frozen=True)
class Limits:
    """Bounds of a search.

    Attributes:
        max_loss: the accuracy (share of 1) that may be lost.
        least: the share of the initial lean that each further head must remove.
        max_heads: the most heads to ablate.
        screen: the number of candidates.
    """

    max_loss: float = 0.02
    least: float = 0.02
    max_heads: int = 8
    screen: int = 12

    def __post_init__(self) -> None:
        if not 0 <= self.max_loss <= 1 or self.least < 0:
            raise InputError(
                "The loss of a search is a share of 1 (0.02 for 2 points), and the least gain 0 or more; got "
                f"{self.max_loss} and {self.least}."
            )
        if (fewest := min(self.max_heads, self.screen)) < 1:
            raise InputError(f"A search needs 1 or more heads and candidates, not {fewest}.")


@dataclass(frozen=True)
class Point:
    """A set of ablated heads with its mean MaxSkew, top-1 accuracy, and lean on one half of a task."""

    off: HeadSet
    max_skew: float
    accuracy: float
    lean: float = math.nan


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """A set of ablated heads on the half that the search did not see; changes are paired."""

    plan: str
    seed: int | None
    heads: HeadSet
    max_skew: Estimate
    max_skew_change: Effect
    chance: Estimate
    accuracy: Estimate
    accuracy_change: Effect


@dataclass(frozen=True, kw_only=True)
class Found:
    """The outcome of a search.

    Attributes:
        heads: those to ablate, none if no head helps within the limits.
        seen: on the half that the search saw, every head alone, none, then each step.
        unseen: on the other half, `none`, `searched`, the steps as `step 1` ..., then the given sets.
    """

    heads: HeadSet
    seen: tuple[Point, ...]
    unseen: tuple[HeldOut, ...]


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class SearchTable(Result):
    """The result of `ccs.search`. A notebook shows its plot.

    Attributes:
        about: the model, gallery, control dataset, limits, and seed behind the numbers; `fitted_on` and
            `held_out`, the numbers of people that the search did and did not see, `fitted_prompts` and
            `held_out_prompts`, and whether the people held out are `fresh`.
        rows: one row per ablation set and metric, on these people and prompts. Columns:
            `ablation`, the set's name, `seed` of a random one, and its `heads`; `metric`, "MaxSkew" or
            "accuracy"; `before` and `after` ablation; `low`, `high`, the 95% interval of `after`;
            `difference`, `difference_low`, `difference_high`, `p_value`, paired; `chance`, of random
            rankings.
        heads: those to ablate, none if no head helps within the limits.
        conclusion: "confirmed" if on held-out people and prompts MaxSkew surely falls and accuracy surely
            stays within its bound; "rejected" if one of them surely doesn't; otherwise "inconclusive".
        outcome: all that the search measured.
    """

    heads: HeadSet
    conclusion: Conclusion
    outcome: Found

    def __repr__(self) -> str:
        answer = str(self.heads) or "no head helps"
        if self.heads:
            answer += f", {self.conclusion}"
        return f"<SearchTable of {self.about['model']} on {self.about['gallery']}: {answer}>"

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the change of MaxSkew over that of accuracy, one point per ablation set.

        Raises:
            MissingExtra: Without matplotlib.
        """
        return plot_tradeoff(self, "ablation", axes(12, ax))


def search(
    model: Model | str,
    gallery: BiasSet | str = "world/faces",
    occupations: Names | None = None,
    *,
    preserve: ClassificationSet | str = "world/subjects",
    attribute: str | None = None,
    classes: Names | None = None,
    template: str | None = None,
    prompts: str | None = None,
    top: int | None = None,
    limits: Limits | None = None,
    compare_with: Sequence[AblationSet] = (),
    max_images: int | None = None,
    skip_unreadable: bool = False,
    seed: int = 0,
    device: str = "cpu",
    tell: Tell = say_nothing,
) -> SearchTable:
    """Find the smallest set of heads whose ablation lowers MaxSkew at a bounded loss of accuracy.

    Args:
        model: from `ccs.load`, or a name that it takes.
        gallery: people to rank, as in `ccs.bias`.
        occupations: as in `ccs.bias`.
        preserve: images with classes, on which accuracy must be preserved, as in `ccs.accuracy`.
        attribute: the column of groups; by default gender, or else the first. "gender,race" crosses two.
        classes: names of the classes of `preserve`, if it is opened here.
        template: the prompt of an occupation, with `{}` for it.
        prompts: a named prompt set in place of occupations and template (`ccs.texts.prompts`).
        top: K, as in `ccs.bias`; the search sees half of it.
        limits: of the search.
        compare_with: other ablation sets to report.
        max_images: the most images of each set opened here; synthetic people are all used.
        skip_unreadable: continue if more than 1% of the images cannot be read.
        seed: of the split into halves.
        device: for a model given by name.
        tell: called with a line for each step.

    Returns:
        SearchTable: the heads, and each ablation set's numbers on the half that the search did not see.

    Raises:
        InputError: If an argument does not fit, or there are too few images or prompts to split.
    """
    subject, attribute = open_subject(
        model,
        gallery,
        occupations,
        preserve,
        attribute=attribute,
        prompts=prompts,
        classes=classes,
        template=template,
        top=top,
        max_images=max_images,
        skip_unreadable=skip_unreadable,
        seed=seed,
        device=device,
    )
    limits, sets = limits or Limits(), subject.sets
    task = make_task(subject.model, sets.people, sets.controls, attribute)
    seen, unseen = halves(task, seed)
    unseen = subject.renew(unseen, attribute, seed)
    outcome = search_halves(
        subject.model, seen, unseen, limits, compare_with=compare_with, seed=seed, tell=tell
    )
    result = next((held for held in outcome.unseen if held.plan == SEARCHED), outcome.unseen[0])
    about = subject.describe(attribute, seen, unseen, seed) | {
        "occupations": sets.people.occupations,
        "templates": sets.people.templates,
        "max_loss": limits.max_loss,
        "max_heads": limits.max_heads,
    }
    return SearchTable(
        about=about,
        rows=held_out_rows(outcome.unseen),
        heads=outcome.heads,
        conclusion=conclude(result.max_skew_change, result.accuracy_change, limits.max_loss),
        outcome=outcome,
    )


def conclude(skew: Effect, accuracy: Effect, max_loss: float) -> Conclusion:
    """Say whether an ablation lowers MaxSkew within a bounded loss of accuracy, by both 95% intervals.

    Args:
        skew: change of MaxSkew.
        accuracy: change of accuracy, a share of 1.
        max_loss: the loss that is allowed, a share of 1.
    """
    falls = stats.conclusion(skew, expected="below")
    if falls == "rejected" or accuracy.high < -max_loss - 1e-9:
        return "rejected"
    return "confirmed" if falls == "confirmed" and accuracy.low >= -max_loss - 1e-9 else "inconclusive"


def held_out_rows(sets: Sequence[HeldOut]) -> pd.DataFrame:
    """Return one row per ablation set and metric, as `SearchTable.rows` has them; the first set is none."""
    rows = []
    for held in sets:
        name = {"ablation": held.plan, "seed": held.seed, "heads": str(held.heads)}
        rows.append(
            name
            | metric_columns("MaxSkew", sets[0].max_skew, held.max_skew, held.max_skew_change)
            | {"chance": held.chance.value}
        )
        rows.append(
            name
            | metric_columns("accuracy", sets[0].accuracy, held.accuracy, held.accuracy_change)
            | {"chance": np.nan}
        )
    return pd.DataFrame(rows).astype({"seed": "Int64"})


def metric_columns(metric: str, before: Estimate, after: Estimate, change: Effect) -> dict[str, Any]:
    """Return the columns of one metric before and after ablation, with the paired change."""
    values = {"metric": metric, "before": before.value, "after": after.value}
    return values | {"low": after.low, "high": after.high} | change_columns(change)


def plot_tradeoff(result: Result, name: str, ax: Any) -> Any:
    """Draw the change of MaxSkew over that of accuracy, one point per name in this column of the rows."""
    rows = result.rows.assign(name=result.rows[name])
    for label, own in rows.groupby("name", sort=False):
        skew, accuracy = (own[own["metric"] == metric] for metric in ("MaxSkew", "accuracy"))
        ax.plot(100 * accuracy["difference"], skew["difference"], "o", label=str(label))
    ax.axhline(0, color="0.8", zorder=0)
    ax.axvline(0, color="0.8", zorder=0)
    subject = f"{result.about['model']}, {result.about['gallery']} by {result.about['attribute']}"
    ax.set(xlabel="change of accuracy (points)", ylabel="change of MaxSkew", title=subject)
    ax.legend(fontsize="small")
    return ax


def measure(model: Model, task: Task, sets: Sequence[HeadSet]) -> list[Point]:
    """MaxSkew, accuracy and lean of each set of heads, over all people and controls of the task."""
    if not sets:
        return []
    people, controls = (model.embed_images(images, list(sets)) for images in (task.people, task.controls))
    accuracies = [zeroshot.correct(units, task.class_weights, task.labels).mean() for units in controls]
    return [
        Point(off, task.max_skew(units), float(right), task.lean(units))
        for off, units, right in zip(sets, people, accuracies, strict=True)
    ]


def search_halves(
    model: Model,
    seen: Task,
    unseen: Task,
    limits: Limits,
    *,
    compare_with: Sequence[AblationSet] = (),
    seed: int = 0,
    tell: Tell = say_nothing,
) -> Found:
    """Search on one half of the task and report on the other (see the top of this module).

    Args:
        model: whose heads are ablated.
        seen: the half on which heads are chosen.
        unseen: the half on which the ablation sets are measured.
        limits: of the search.
        compare_with: other ablation sets to report (high, low, random).
        seed: random seed for resampling.
        tell: called with a line for each step.

    Raises:
        InputError: For sets with heads that cannot be ablated.
    """
    singles = measure(model, seen, [HeadSet([head]) for head in model.heads])
    path = greedy(model, seen, singles, limits, tell)
    off = _backward(model, seen, path, limits, tell)
    plans = [AblationSet("none", None, HeadSet(), "nothing is switched off")]
    if off:
        plans.append(
            AblationSet(SEARCHED, seed, off, "lowest MaxSkew within the loss allowed, on the other half")
        )
    plans += [
        AblationSet(f"step {size}", seed, point.off, "a step of the search")
        for size, point in enumerate(path)
        if size and point.off != off
    ]
    figures = held_out_figures(model, unseen, [*plans, *compare_with], seed)
    return Found(heads=off, seen=(*singles, *path), unseen=figures)


def greedy(
    model: Model, task: Task, singles: Sequence[Point], limits: Limits, tell: Tell = say_nothing
) -> list[Point]:
    """The path of a greedy search on the whole task: nothing off, then one more head at a time.

    It ends when no head removes the least share of the lean. singles: every head alone.
    """
    path = measure(model, task, [HeadSet()])
    start = path[0]
    helpful = sorted((p for p in singles if p.lean < start.lean), key=lambda p: p.lean)
    candidates = [head for point in helpful[: limits.screen] for head in point.off]
    tell(f"{len(helpful)} of {len(singles)} heads lower the lean alone; {len(candidates)} are candidates.")
    while len(path) <= limits.max_heads:
        now = path[-1]
        sets = [HeadSet([*now.off, head]) for head in candidates if head not in now.off]
        tried = measure(model, task, sets)
        allowed = [point for point in tried if point.accuracy >= start.accuracy - limits.max_loss]
        best = min(allowed, key=lambda point: point.lean, default=None)
        if best is None or best.lean > now.lean - limits.least * start.lean:
            break
        path.append(best)
        tell(f"{best.off}: MaxSkew {best.max_skew:.3f}, accuracy {best.accuracy:.3f}")
    return path


def _backward(model: Model, task: Task, path: Sequence[Point], limits: Limits, tell: Tell) -> HeadSet:
    """The heads at the end of the path without those that each gain less than the least."""
    start, now = path[0], path[-1]
    while len(now.off) > 1:
        tried = measure(model, task, [HeadSet(now.off - {head}) for head in now.off])
        most, least = now.lean + limits.least * start.lean, start.accuracy - limits.max_loss
        spared = [point for point in tried if point.lean <= most and point.accuracy >= least]
        if not spared:
            break
        now = min(spared, key=lambda point: point.lean)
        tell(f"Not needed: {', '.join(map(str, path[-1].off - now.off))}")
    return now.off


def held_out_figures(
    model: Model, task: Task, plans: Sequence[AblationSet], seed: int
) -> tuple[HeldOut, ...]:
    """The figures of every plan on this half; the first (`none`) is the baseline."""
    sets = [plan.heads for plan in plans]
    people, controls = (model.embed_images(images, sets) for images in (task.people, task.controls))
    skews = bias.measure_ablations(people, task, draws=DRAWS, seed=seed)
    accuracies = [zeroshot.accuracy(units, task.class_weights, task.labels, seed) for units in controls]
    return tuple(
        HeldOut(
            plan=plan.name,
            seed=plan.seed,
            heads=plan.heads,
            max_skew=skew.max_skew.mean,
            max_skew_change=bias_result.compare(skew, skews[0]),
            chance=skew.max_skew.chance_mean,
            accuracy=right.top1,
            accuracy_change=zeroshot.compare(right, accuracies[0], seed=seed),
        )
        for plan, skew, right in zip(plans, skews, accuracies, strict=True)
    )
