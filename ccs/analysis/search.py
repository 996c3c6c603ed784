"""Which few heads can be ablated so that rankings of people become fairer at a bounded loss of accuracy?

The search minimizes the group score gap (`ccs.metrics.ranking`). MaxSkew depends on a few images at the top
and jumps, so a search that minimizes it fits noise. It measures single heads first; those that lower the gap
most become candidates. It then adds one candidate at a time, always the one that lowers the gap most in a
forward pass with all chosen heads ablated, while accuracy stays within its bound. Finally it removes heads
that are not needed.

Any search fits some noise. So people, prompts, and control images are each split in half at random. The
search sees one half, and the results come from the other. K is halved, too, which keeps its share of the
pool. If each prompt ranks its own images, splitting the prompts splits the images, and K stays.

    >>> Limits(max_loss=0.01).max_heads    # at most a hundredth of the accuracy may be lost
    8
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from ccs.analysis.ablation_sets import AblationSet
from ccs.analysis.evidence import Subject, Tell, say_nothing
from ccs.analysis.inputs import Names, load_model, open_classes, open_people, set_question
from ccs.analysis.result import TradeoffResult
from ccs.analysis.task import HeldOut, Task, conclude, held_out_parts, held_out_rows, measure_held_out
from ccs.data import BiasSet, ClassificationSet
from ccs.errors import InputError, require_seed
from ccs.heads import HeadSet
from ccs.metrics import accuracy as zeroshot
from ccs.metrics.stats import Conclusion

if TYPE_CHECKING:
    from ccs.model.model import Model

SEARCHED = "searched"
"""The name of the set that a search ends with."""


@dataclass(frozen=True)
class Limits:
    """Bounds of a search.

    Attributes:
        max_loss: Accuracy (share of 1) that may be lost.
        min_reduction: Share of the initial group score gap that each further head must remove.
        max_heads: Maximum number of heads to ablate.
        max_candidates: Maximum number of heads tried in each step.
    """

    max_loss: float = 0.02
    min_reduction: float = 0.02
    max_heads: int = 8
    max_candidates: int = 12

    def __post_init__(self) -> None:
        if not 0 <= self.max_loss <= 1 or not self.min_reduction >= 0:
            raise InputError(
                "The loss of a search is a share of 1 (0.02 for 2 points), and the least gain 0 or more; got "
                f"{self.max_loss} and {self.min_reduction}."
            )
        if not (fewest := min(self.max_heads, self.max_candidates)) >= 1:
            raise InputError(f"A search needs 1 or more heads and candidates, not {fewest}.")


@dataclass(frozen=True)
class MeasuredSet:
    """Ablated heads with their mean MaxSkew, top-1 accuracy, and group score gap on one half of a task."""

    heads: HeadSet
    max_skew: float
    accuracy: float
    score_gap: float = math.nan


@dataclass(frozen=True, kw_only=True)
class SearchOutcome:
    """The outcome of a search.

    Attributes:
        heads: Heads to ablate; none if no head helps within the limits.
        fitted: Sets measured on the half that the search saw: every head alone, no head, then each step.
        held_out: Sets measured on the other half: `none`, `searched`, then the steps as `step 1`, ...
    """

    heads: HeadSet
    fitted: tuple[MeasuredSet, ...]
    held_out: tuple[HeldOut, ...]


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class SearchTable(TradeoffResult):
    """The result of `ccs.search`. A notebook shows its plot.

    Attributes:
        about: Model, gallery, control dataset, limits, and seed behind the numbers; `fitted_on` and
            `held_out`, the numbers of people that the search did and did not see; `fitted_prompts` and
            `held_out_prompts`, the same for prompts; `fresh`, whether the held-out people were drawn for this
            search only.
        rows: One row per ablation set and metric, on the held-out people and prompts. Columns: `ablation`,
            the set's name; `seed` of a random set; `heads`; `metric`, "MaxSkew" or "accuracy"; `before` and
            `after` ablation; `low` and `high`, the 95% interval of `after`; `difference`, `difference_low`,
            `difference_high`, and `p_value`, paired; `chance`, the level of random rankings.
        heads: Heads to ablate; none if no head helps within the limits.
        parts: One row per ablation set: the changes of the general and the occupation-specific preference
            (`ccs.analysis.preference.part_rows`).
        conclusion: "confirmed" if on held-out people and prompts MaxSkew surely falls and accuracy surely
            stays within its bound; "rejected" if one of them surely doesn't; otherwise "inconclusive".
        outcome: Everything that the search measured.
    """

    heads: HeadSet
    parts: pd.DataFrame
    conclusion: Conclusion
    outcome: SearchOutcome

    def _summary(self) -> str:
        return f"{self.heads}, {self.conclusion}" if self.heads else "no head helps"


def search(
    model: Model | str,
    gallery: BiasSet | str = "world/faces",
    occupations: Names | None = None,
    *,
    attribute: str | None = None,
    limits: Limits | None = None,
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
) -> SearchTable:
    """Find the smallest set of heads whose ablation lowers MaxSkew at a bounded loss of accuracy.

    Args:
        model: A model from `ccs.load`, or its name.
        gallery: People to rank, as in `ccs.bias`.
        occupations: As in `ccs.bias`.
        attribute: Column of groups. By default gender, or else the first column. "gender,race" crosses two
            columns.
        limits: Limits of the search. By default `Limits()`.
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
        SearchTable: The heads, and the results of each ablation set on the half that the search did not see.

    Raises:
        InputError: If an argument does not fit, or there are too few images or prompts to split.
    """
    require_seed(seed)
    people, attribute, left_out = open_people(gallery, attribute, max_images, skip_unreadable=skip_unreadable)
    people = set_question(people, occupations, template, top, prompts)
    controls = open_classes(preserve, classes, None, max_images, skip_unreadable)
    subject = Subject(load_model(model, device), people, controls, fresh=True, left_out=left_out)
    limits, (evidence, unseen) = limits or Limits(), subject.split(attribute, seed)
    outcome = search_halves(subject.model, evidence.task, unseen, limits, seed=seed, tell=tell)
    result = next((held for held in outcome.held_out if held.ablation == SEARCHED), outcome.held_out[0])
    description = subject.describe(evidence, unseen, outcome.held_out[0].accuracy) | {
        "occupations": people.occupations,
        "templates": people.templates,
        "max_loss": limits.max_loss,
        "max_heads": limits.max_heads,
    }
    return SearchTable(
        about=description,
        rows=held_out_rows(outcome.held_out),
        heads=outcome.heads,
        parts=held_out_parts(outcome.held_out),
        conclusion=conclude(result.max_skew_change, result.accuracy_change, limits.max_loss),
        outcome=outcome,
    )


def measure_sets(model: Model, task: Task, sets: Sequence[HeadSet]) -> list[MeasuredSet]:
    """Measure sets of ablated heads over all people and control images of a task.

    Args:
        model: Model whose heads are ablated.
        task: People to rank and images to classify.
        sets: Heads of each set.
    """
    if not sets:
        return []
    people, controls = (model.embed_images(images, list(sets)) for images in (task.people, task.controls))
    return [
        MeasuredSet(
            heads,
            task.mean_max_skew(units),
            float(zeroshot.correct(others, task.class_weights, task.labels).mean()),
            task.score_gap(units),
        )
        for heads, units, others in zip(sets, people, controls, strict=True)
    ]


def search_halves(
    model: Model, seen: Task, unseen: Task, limits: Limits, *, seed: int = 0, tell: Tell = say_nothing
) -> SearchOutcome:
    """Search on one half of a task and measure the result on the other (see the top of this module).

    Args:
        model: Model whose heads are ablated.
        seen: Half on which heads are chosen.
        unseen: Half on which the ablation sets are measured.
        limits: Limits of the search.
        seed: Random seed for resampling.
        tell: Function that is called with a line of text at each step.

    Raises:
        InputError: If a set has a head that can't be ablated.
    """
    singles = measure_sets(model, seen, [HeadSet([head]) for head in model.heads])
    path = search_greedily(model, seen, singles, limits, tell)
    heads = _drop_needless(model, seen, path, limits, tell)
    sets = [AblationSet("none", None, HeadSet())]
    if heads:
        sets.append(AblationSet(SEARCHED, seed, heads))
    sets += [
        AblationSet(f"step {size}", seed, step.heads)
        for size, step in enumerate(path)
        if size and step.heads != heads
    ]
    held_out = measure_held_out(model, unseen, sets, seed)
    return SearchOutcome(heads=heads, fitted=(*singles, *path), held_out=held_out)


def search_greedily(
    model: Model, task: Task, singles: Sequence[MeasuredSet], limits: Limits, tell: Tell = say_nothing
) -> list[MeasuredSet]:
    """Ablate one more head at a time, until none removes enough of the group score gap.

    Args:
        model: Model whose heads are ablated.
        task: People to rank and images to classify.
        singles: Results with every head ablated alone.
        limits: Limits of the search.
        tell: Function that is called with a line of text at each step.

    Returns:
        The steps, starting without ablation.
    """
    path = measure_sets(model, task, [HeadSet()])
    start = path[0]
    helpful = [single for single in singles if single.score_gap < start.score_gap]
    helpful.sort(key=lambda single: single.score_gap)
    candidates = [head for single in helpful[: limits.max_candidates] for head in single.heads]
    tell(f"{len(helpful)} of {len(singles)} heads lower the gap alone; {len(candidates)} are candidates.")
    while len(path) <= limits.max_heads:
        last = path[-1]
        larger = [HeadSet([*last.heads, head]) for head in candidates if head not in last.heads]
        best = _best_within_loss(model, task, larger, start, limits)
        if best is None or best.score_gap > last.score_gap - limits.min_reduction * start.score_gap:
            break
        path.append(best)
        tell(f"{best.heads}: MaxSkew {best.max_skew:.3f}, accuracy {best.accuracy:.3f}")
    return path


def _best_within_loss(
    model: Model, task: Task, sets: Sequence[HeadSet], start: MeasuredSet, limits: Limits
) -> MeasuredSet | None:
    """Return the set with the smallest gap of those that lose no more accuracy than allowed, if any."""
    measured = measure_sets(model, task, sets)
    allowed = [step for step in measured if step.accuracy >= start.accuracy - limits.max_loss]
    return min(allowed, key=lambda step: step.score_gap, default=None)


def _drop_needless(
    model: Model, task: Task, path: Sequence[MeasuredSet], limits: Limits, tell: Tell
) -> HeadSet:
    """Return the heads at the end of the path without those that remove too little of the gap."""
    start, smallest = path[0], path[-1]
    while len(smallest.heads) > 1:
        smaller = [HeadSet(smallest.heads - {head}) for head in smallest.heads]
        best = _best_within_loss(model, task, smaller, start, limits)
        if best is None or best.score_gap > smallest.score_gap + limits.min_reduction * start.score_gap:
            break
        smallest = best
        tell(f"Not needed: {', '.join(map(str, path[-1].heads - smallest.heads))}")
    return smallest.heads
