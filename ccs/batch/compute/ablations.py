"""The ablation sets of a run, and which of them are measured on which evaluation set."""

from collections.abc import Callable, Collection, Mapping, Sequence

from ccs.analysis import ablation_sets
from ccs.analysis.ablation_sets import AblationName, AblationSet
from ccs.batch.compute import Settings
from ccs.batch.compute.inputs import EvaluationSet
from ccs.data import DatasetRecord, RetrievalSet
from ccs.heads import Head, Intervention
from ccs.model.model import Model
from ccs.texts.score import HeadScore

SINGLE_HEADS = {"world/subjects", "world/colors", "world/occupations", "world/faces"}
"""Synthetic sets with ablations of each head alone and all random sets, which are most of a set's cost."""
FURTHER_K_SETS = {"cifar10", "cifar10-jpeg", "cifar100", "cifar100-joined", "world/subjects", "world/colors"}
"""Sets with ablation sets at further K: those of the paper's table 3, and two synthetic ones."""
FURTHER_KINDS = ("high", "low", "random")
"""Ablation sets at a further K: what the paper prints (high), and what to compare it with."""
FEW_SETS = 20
"""Random sets at most at a further K, and on synthetic sets that are not among SINGLE_HEADS."""


def make_ablations(
    model: Model,
    settings: Settings,
    scores: Mapping[int, Mapping[Head, HeadScore]],
    variance: Mapping[Head, float],
    notice: Callable[[str], None],
) -> list[AblationSet]:
    """Make all ablation sets of a model, `none` first.

    Args:
        model: The model.
        settings: The run's settings.
        scores: The heads' scores at each K.
        variance: The heads' variances.
        notice: Function that is called with a sentence for each set that is left out.
    """
    by_k: dict[int, list[AblationSet]] = {}
    n_random = settings.random_sets or FEW_SETS
    for k in settings.all_ks:
        main = k == settings.k
        kinds: Collection[str] = ablation_sets.KINDS if main else FURTHER_KINDS
        if sentence := ablation_sets.too_many_unscored(scores[k], k):
            notice(sentence)
            kinds = ("none",)
        by_k[k] = ablation_sets.make_ablation_sets(
            scores[k],
            k,
            model.heads,
            settings.seed,
            n_random if main else min(n_random, FEW_SETS),
            kinds=kinds,
            variance=variance if main and _has_matched_sets(settings) else None,
            at_k=None if main else k,
            notice=notice,
        )
    chosen = Intervention.parse(settings.ablate)
    of_main_k = by_k[settings.k]
    return [
        *(ablation for ablation in of_main_k if ablation.kind != "random"),
        *([AblationSet("chosen", None, chosen)] if chosen else []),
        *ablation_sets.published_sets(model.name),
        *(ablation for ablation in of_main_k if ablation.kind == "random"),
        *(ablation for k in settings.all_ks[1:] for ablation in by_k[k][1:]),  # without `none`
        *ablation_sets.single_head_sets(model.heads),
    ]


def _has_matched_sets(settings: Settings) -> bool:
    """Return True if random sets also match the high heads in layers and in variance: not in a quick run."""
    return settings.full or settings.suite != "world"


def choose_ablations(
    ablations: Sequence[AblationSet], data: EvaluationSet, settings: Settings
) -> list[AblationSet]:
    """Choose the ablation sets that are measured on some data.

    Args:
        ablations: All ablation sets.
        data: The evaluation set.
        settings: The run's settings.
    """

    def is_measured(ablation: AblationSet) -> bool:
        name = AblationName.parse(ablation.name)
        if name.k is not None:
            return has_further_ks(data, settings)
        if name.kind == "single":
            return ablates_single_heads(data)
        few = not name.argument and (ablation.seed or 0) < settings.seed + FEW_SETS
        return name.kind != "random" or few or ablates_single_heads(data)

    return [ablation for ablation in ablations if is_measured(ablation)]


def ablates_single_heads(data: EvaluationSet | DatasetRecord) -> bool:
    """Return True if each head is ablated alone on a set; not for retrieval, where no effect is expected."""
    known = not data.name.startswith("world/") or data.name in SINGLE_HEADS
    return known and not isinstance(data, RetrievalSet) and getattr(data, "kind", "") != "videos"


def has_further_ks(data: EvaluationSet | DatasetRecord, settings: Settings) -> bool:
    """Return True if a set has ablation sets at further K: a known one, or one that the user names.

    Args:
        data: The evaluation set, or its record.
        settings: The run's settings.
    """
    return data.name in FURTHER_K_SETS or data.name in settings.datasets


def count_ablations(data: EvaluationSet | DatasetRecord, settings: Settings, heads: int) -> tuple[int, int]:
    """Estimate how many ablation sets will be measured, before the scores that define them are known.

    Args:
        data: The evaluation set, or its record.
        settings: The run's settings.
        heads: The number of heads.

    Returns:
        The numbers of sets of several heads, and of single heads.
    """
    random, singles = settings.random_sets or FEW_SETS, ablates_single_heads(data)
    further = (2 + min(random, FEW_SETS)) * len(settings.all_ks[1:]) * has_further_ks(data, settings)
    published = len(ablation_sets.published_sets(settings.models[0]))
    kinds = 3 if _has_matched_sets(settings) else 1
    several = 10 + published + further + (kinds * random if singles else min(random, FEW_SETS))
    return several, heads * singles
