"""Which heads of a model carry a bias?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ccs.analysis.ablation_sets import AblationSet, matched, single_head_sets
from ccs.analysis.carriers import DEFAULT, METHODS, reliability
from ccs.analysis.evidence import Evidence, Method, Subject, Tell, rank_heads, say_nothing
from ccs.analysis.inputs import Names, load_model, open_classes, open_people, set_question
from ccs.analysis.result import Chart, Result
from ccs.analysis.task import held_out_parts, held_out_rows, measure_held_out
from ccs.data import BiasSet, ClassificationSet
from ccs.errors import InputError, require_seed
from ccs.heads import Head, HeadSet
from ccs.metrics.ranking import GapTest

if TYPE_CHECKING:
    from ccs.model.model import Model

MAX_HEADS, MIN_REDUCTION = 8, 0.05
"""The largest number of heads in an answer, and the share of the group score gap that each must remove."""
MAX_P = 0.05
"""The largest p-value of the group score gap at which heads are named."""
RANDOM_SETS = 20
"""Random sets to compare an answer with."""
CARRIERS, RANDOM = "carriers", "random:layers"
"""Names of the ablation sets in the effects: the likely carriers, and random heads of the same layers."""


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class CarrierTable(Result):
    """The result of `ccs.localize`. A notebook shows its plot.

    Attributes:
        about: Model, gallery, attribute, method, and seed behind the numbers.
        rows: One row per head, the most likely carrier first. Columns: `head`; `rank`; `score` by the method;
            `carries`, whether it is one of `heads`.
        gap: Permutation test of "groups don't differ", which comes first, on the half that the method saw:
            the group score gap, its chance level, and its p-value.
        heads: First heads of the ranking, as long as each removes 5% of the rankings' group score gap. Empty
            if none does, or if there is no evidence of a gap (p above 0.05).
        effects: Effect of ablating `heads`, together and each alone, on the half of people and prompts that
            the method did not see, next to random sets with as many heads of each layer. Columns as in
            `ccs.search`.
        parts: One row per head, and one for all of them, on the same half: the changes of the general and the
            occupation-specific part of the group scores, as shares of the total, and which part it `moves`
            (`ccs.analysis.preference`).
        p_value: P-value of the fall of MaxSkew among the random sets. NaN without heads.
    """

    heads: tuple[Head, ...]
    effects: pd.DataFrame
    parts: pd.DataFrame
    gap: GapTest
    p_value: float

    @property
    def is_biased(self) -> bool:
        """Return whether there is evidence that the rankings prefer a group."""
        return self.gap.p_value <= MAX_P

    def _summary(self) -> str:
        return " ".join(map(str, self.heads)) or ("no head" if self.is_biased else "no evidence of bias")

    def _chart(self, max_rows: int) -> Chart:
        rows, xlabel = self.rows.head(max_rows).iloc[::-1], f"score by {self.about['method']}"
        colors = ["C0" if carries else "0.8" for carries in rows["carries"]]
        return Chart(rows=rows, names=rows["head"], value="score", colors=colors, xlabel=xlabel)


def localize(
    model: Model | str,
    gallery: BiasSet | str = "world/faces",
    occupations: Names | None = None,
    *,
    attribute: str | None = None,
    method: str | Method = DEFAULT,
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
) -> CarrierTable:
    """Rank a model's heads by how likely they carry a bias, and measure the effect of ablating the first.

    People, prompts, and control images are split in half at random: the method sees one half, and the
    effects are those on the other.

    Args:
        model: A model from `ccs.load`, or its name.
        gallery: People to rank, as in `ccs.bias`.
        occupations: As in `ccs.bias`.
        attribute: Column of groups. By default gender, or else the first column. "gender,race" crosses two
            columns.
        method: "learned mask", "activation patching", "patching by gradient", "total effect", or a function
            from `ccs.analysis.evidence.Evidence` to a score per head.
        preserve: Images with classes, for the effect on accuracy, as in `ccs.accuracy`.
        classes: Names of the classes of `preserve`, if it is given by name.
        template: Prompt with `{}` for the occupation. By default the gallery's.
        prompts: Name of a prompt set (`ccs.texts.prompts`), in place of occupations and template.
        top: K, as in `ccs.bias`. Each half uses half of it, unless each occupation ranks its own images.
        max_images: Maximum number of images of each dataset given by name. Synthetic people are all used.
        skip_unreadable: Whether to continue if more than 1% of the images cannot be read.
        seed: Random seed for the split into halves and for the random sets.
        device: Device for a model given by name, as in `ccs.load`.
        tell: Function that is called with a line of text at each step.

    Returns:
        CarrierTable: One row per head, the most likely carrier first.

    Raises:
        InputError: If the method is unknown, an argument does not fit, or there is too little to split.
    """
    name = method if isinstance(method, str) else getattr(method, "__name__", "method")
    if isinstance(method, str):
        if method not in METHODS:
            raise InputError(f"There is no method {method!r}; there are {', '.join(METHODS)}.")
        method = METHODS[method]
    require_seed(seed)
    people, attribute, left_out = open_people(gallery, attribute, max_images, skip_unreadable=skip_unreadable)
    people = set_question(people, occupations, template, top, prompts)
    controls = open_classes(preserve, classes, None, max_images, skip_unreadable)
    subject = Subject(load_model(model, device), people, controls, fresh=True, left_out=left_out)
    evidence, unseen = subject.split(attribute, seed, tell)
    gap = evidence.task.gap_test(evidence.units, seed=seed)
    scores = method(evidence)
    if {*scores} != {*subject.model.heads} or not np.isfinite(list(scores.values())).all():
        raise InputError(f"The method {name!r} must return a finite score for each of the model's heads.")
    order = rank_heads(scores, seed)
    heads = first_carriers(evidence, order) if gap.p_value <= MAX_P else ()
    answer = HeadSet(heads)
    compared = [AblationSet("none", None, HeadSet())]
    if heads:
        compared.append(AblationSet(CARRIERS, None, answer))
        drawn = matched(answer, subject.model.heads, RANDOM_SETS, seed, "layers")
        compared += [AblationSet(RANDOM, number, others) for number, others in enumerate(drawn)]
    if len(heads) > 1:
        compared += single_head_sets(heads)
    held_out = measure_held_out(subject.model, unseen, compared, seed)
    drops = [held.max_skew_change.value for held in held_out if held.ablation == RANDOM]
    p_value = np.mean([1, *(np.array(drops) <= held_out[1].max_skew_change.value)]) if drops else np.nan
    description = subject.describe(evidence, unseen, held_out[0].accuracy)
    description |= {"method": name, "reliability": reliability(name)}
    rows = [
        {"head": str(head), "rank": place, "score": float(scores[head]), "carries": head in answer}
        for place, head in enumerate(order, 1)
    ]
    return CarrierTable(
        about=description,
        rows=pd.DataFrame(rows),
        heads=heads,
        effects=held_out_rows(held_out),
        parts=held_out_parts([held for held in held_out if held.ablation != RANDOM]),
        gap=gap,
        p_value=float(p_value),
    )


def first_carriers(evidence: Evidence, order: Sequence[Head]) -> tuple[Head, ...]:
    """Return the first heads of a ranking that lower the group score gap on the seen half.

    Each must remove MIN_REDUCTION of the gap. Two in a row may remove twice that together: if one substitutes
    for the other, ablating the first alone changes little.

    Args:
        evidence: Half that the method saw.
        order: Heads by descending score.
    """
    needed, size = MIN_REDUCTION * evidence.score_gap_without(HeadSet()), 0

    def enough(step: int) -> bool:
        if size + step > min(MAX_HEADS, len(order)):
            return False
        before, after = (evidence.score_gap_without(HeadSet(order[:end])) for end in (size, size + step))
        return before - after >= step * needed > 0

    while step := next((step for step in (1, 2) if enough(step)), 0):
        size += step
    return tuple(order[:size])
