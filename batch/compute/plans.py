"""A run's plans: the study's at the main K, at further K, the heads it published, and each head alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from batch.compute.inputs import EvaluationSet, further_k_on, kind, singles_on
from batch.compute.settings import Settings
from ccs import plans as pruning
from ccs.heads import Head, HeadSet
from ccs.model.model import Model
from ccs.paper import figures
from ccs.plans import Plan
from ccs.texts.score import HeadScore

FURTHER_KINDS = ("high", "low", "random")
"""Plans at a further K: what the study prints (high), and what to hold it against."""


@dataclass(frozen=True)
class Plans:
    """`main`: of every set, `none` first. `further`: at further K. `singles`: each head alone."""

    main: tuple[Plan, ...]
    further: tuple[Plan, ...]
    singles: tuple[Plan, ...]

    def on(self, data: EvaluationSet, settings: Settings) -> list[Plan]:
        """The plans measured on a set."""
        more = self.further if further_k_on(data, settings) else ()
        return [*self.main, *more, *(self.singles if singles_on(data) else ())]

    def kept(self, data: EvaluationSet, settings: Settings) -> HeadSet:
        """The heads whose contributions are kept on a set, for direct effects: all that a plan has, or none.

        They are kept where single heads are measured too, so that the two kinds of effect can be compared; of
        a clip, whose embedding is a mean over frames, they are not.
        """
        wanted = "heads" in settings.stages and singles_on(data) and kind(data) != "retrieval"
        return HeadSet(head for plan in self.on(data, settings) for head in plan.off) if wanted else HeadSet()


def make(
    model: Model,
    settings: Settings,
    scores: Mapping[int, Mapping[Head, HeadScore]],
    notice: Callable[[str], None],
) -> Plans:
    """All plans of a model from its heads' scores at each K. `notice` is told of each that is left out."""
    # For this one model the study drew its random heads from all layers.
    everywhere = settings.suite == "paper" and model.name == "ViT-B-32/openai"
    layers = range(0 if everywhere else model.tower.first_prunable_layer, model.n_layers)
    source = HeadSet(Head(layer, head) for layer in layers for head in range(model.n_heads))
    main: list[Plan] = []
    further: list[Plan] = []
    for k in settings.all_ks:
        first = k == settings.k
        kinds = set(pruning.KINDS) - {"single"} if first else FURTHER_KINDS
        made = pruning.plans(
            scores[k], k, model.heads, settings.seed, settings.seeds, kinds=kinds, random_from=source,
            at_k=None if first else k, notice=notice,
        )  # fmt: skip
        if first:
            main += made
        else:
            further += made[1:]  # `none` is there already
    return Plans((*main, *_published(model)), tuple(further), tuple(pruning.singles(model.heads)))


def _published(model: Model) -> list[Plan]:
    """The heads that the study lists and draws for this model, if it is one of the study's."""
    if model.name not in {one.name for one in figures.models()}:
        return []
    labels = set(figures.head_labels(model.name)["high"].values())
    by_concept = {name: figures.concept_heads(model.name, name) for name in sorted(labels)}
    sets = figures.head_sets(model.name) | figures.drawn_sets(model.name)
    return pruning.published(sets, by_concept, "the study's tables 12 to 14, and the draws of its code")
