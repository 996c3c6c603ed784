"""The plans of a run: which heads are switched off on which evaluation set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ccs.batch.compute.inputs import EvaluationSet
from ccs.batch.compute.settings import Settings
from ccs.heads import Head, HeadSet
from ccs.model.model import Model
from ccs.pruning import plans as pruning
from ccs.pruning.plans import Plan
from ccs.sets import DatasetRecord
from ccs.sets.kinds import RetrievalSet
from ccs.texts.score import HeadScore

SINGLE_HEADS = {"world/subjects", "world/colors", "world/occupations", "world/faces", "world/counterfactuals"}
"""Drawn sets on which every head is switched off alone, and all random sets are: most of a set's cost."""
FURTHER_K_SETS = {
    *("cifar10", "cifar10-jpeg", "cifar100", "cifar100-joined"),
    *("world/subjects", "world/colors"),
}
"""Sets with plans at further K: those of the study's table 3, and two drawn ones in their place."""
FURTHER_KINDS = ("high", "low", "random")
"""Plans at a further K: what the study prints (high), and what to hold it against."""
FEW_SETS = 20
"""Random sets at most at a further K, and on drawn sets that are not among SINGLE_HEADS."""


@dataclass(frozen=True)
class Plans:
    """`main`: of every set, `none` first. `random`: random sets of each kind. `further`: at further K, random
    ones too. `singles`: each head alone.
    """

    main: tuple[Plan, ...]
    random: tuple[Plan, ...]
    further: tuple[Plan, ...]
    singles: tuple[Plan, ...]

    def on(self, data: EvaluationSet, settings: Settings) -> list[Plan]:
        """The plans measured on a set. A set that was asked for by name has those at further K too."""
        more, whole = data.name in FURTHER_K_SETS or data.name in settings.sets, _singles_on(data)
        few = [plan for plan in self.random if plan.name == "random"][:FEW_SETS]
        return [
            *self.main,
            *(self.random if whole and not isinstance(data, RetrievalSet) else few),
            *(self.further if more else ()),
            *(self.singles if whole else ()),
        ]


def _singles_on(data: EvaluationSet | DatasetRecord) -> bool:
    """True if each head is switched off alone on a set; not for retrieval, where no such effect is shown."""
    known = not data.name.startswith("world/") or data.name in SINGLE_HEADS
    return known and not isinstance(data, RetrievalSet)


def n_plans(data: EvaluationSet | DatasetRecord, settings: Settings, heads: int) -> int:
    """About how many plans will be measured on a set, before the scores are known that make them."""
    whole, random = _singles_on(data), settings.random_sets or FEW_SETS
    return 10 + 20 * (settings.suite == "paper") + (heads + 3 * random if whole else min(random, FEW_SETS))


def make_plans(
    model: Model,
    settings: Settings,
    scores: Mapping[int, Mapping[Head, HeadScore]],
    variance: Mapping[Head, float],
    notice: Callable[[str], None],
) -> Plans:
    """All plans of a model from its heads' scores at each K and the variance of what each head contributes.

    `notice` is told of each that is left out.
    """
    made: dict[int, list[Plan]] = {}
    sets = settings.random_sets or FEW_SETS
    for k in settings.all_ks:
        main = k == settings.k
        made[k] = pruning.plans(
            scores[k], k, model.heads, settings.seed, sets if main else min(sets, FEW_SETS),
            kinds=set(pruning.KINDS) - {"single"} if main else FURTHER_KINDS,
            variance=variance if main else None, at_k=None if main else k, notice=notice,
        )  # fmt: skip
    further = [plan for k in settings.all_ks[1:] for plan in made[k][1:]]  # each begins with `none`
    main_plans = [plan for plan in made[settings.k] if plan.kind != "random"]
    chosen = HeadSet.parse(settings.off)
    own = [Plan("chosen", None, chosen, "named by --off")] if chosen else []
    return Plans(
        (*main_plans, *own, *pruning.of_the_study(model.name)),
        tuple(plan for plan in made[settings.k] if plan.kind == "random"),
        tuple(further),
        tuple(pruning.singles(model.heads)),
    )
