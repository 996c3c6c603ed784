"""The interface of methods that find heads: evidence in, a score per head out; and a model's evidence.

A method is a function of `Evidence` that returns a score for each of the model's heads. The higher the score,
the more likely the head carries the bias.

    >>> rank_heads({Head(7, 0): 0.1, Head(7, 1): 0.9})[0]
    Head(layer=7, head=1, encoder='L')
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from ccs.analysis.inputs import format_left_out
from ccs.analysis.result import describe_model, warn_if_small
from ccs.analysis.task import Task, draw_people, halves, make_task, on_people
from ccs.data import BiasSet, ClassificationSet, ImageSet
from ccs.data.open import open_images
from ccs.heads import Head, HeadSet
from ccs.metrics.accuracy import near_chance
from ccs.metrics.stats import Estimate, Floats
from ccs.texts.labels import score_by_tags
from ccs.texts.pools import Pool, load_pool
from ccs.texts.prompts import name_person
from ccs.texts.score import HeadScore

if TYPE_CHECKING:
    from ccs.model.encoder import Trunk
    from ccs.model.head_statistics import Moments
    from ccs.model.model import Model
    from ccs.texts.textspan import Span

Scores = Mapping[Head, float]
Tell = Callable[[str], None]
READ_IMAGES = 500
"""Number of synthetic images on which TEXTSPAN labels the heads of a `Subject`."""


def say_nothing(line: str) -> None:
    """Ignore a line of progress."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """The results of TEXTSPAN for a model's heads.

    Attributes:
        moments: Head statistics of the images.
        pool: Pool of texts.
        spans: Head -> its texts.
        scores: Head -> its CCS and label, by the tag-based judge.
    """

    moments: Moments
    pool: Pool
    spans: Mapping[Head, Sequence[Span]]
    scores: Mapping[Head, HeadScore]


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """One half of the people and prompts of a task, and data about the model's heads.

    Attributes:
        model: Model whose heads are ranked.
        task: Half that methods see. Its `people` and `controls` are trunks.
        names: Group -> texts that name it.
        read: Function that returns the `reading`. It takes a while, and most methods don't need it.
        seed: Random seed for all draws of a method.
        tell: Function that is called with a line of text at each step of a long method. An exception that it
            raises ends the method.
        attribute: Column of groups of the people.
        memory: Method -> scores that several methods share.
    """

    model: Model
    task: Task
    names: Mapping[str, Sequence[str]]
    read: Callable[[], Reading]
    seed: int = 0
    tell: Tell = say_nothing
    attribute: str = "groups"
    memory: dict[str, Scores] = field(default_factory=dict, init=False)

    @cached_property
    def reading(self) -> Reading:
        """The texts and the CCS of each head."""
        return self.read()

    @property
    def people(self) -> Trunk:
        """The people's activations below the first scored head."""
        return cast("Trunk", self.task.people)

    @property
    def prompts(self) -> NDArray[np.float32]:
        """Unit text embeddings [prompts, d]."""
        return self.task.prompts.astype(np.float32)

    @cached_property
    def codes(self) -> NDArray[np.intp]:
        """Each person's group [n] as a number from 0."""
        return self.task.codes.astype(np.intp)

    @cached_property
    def units(self) -> NDArray[np.float32]:
        """Unit embeddings of the people [n, d]."""
        return self.model.embed_images(self.people)

    @cached_property
    def seen(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Unit embeddings of the people [n, d], and each head's contribution to them [n, heads, d]."""
        embedded, parts = self.model.embed_with_contributions(self.people, heads=self.model.heads)
        return embedded, parts.direct

    @cached_property
    def singles(self) -> NDArray[np.float32]:
        """Unit embeddings of the people with each head ablated alone [heads, n, d]."""
        return self.model.embed_images(self.people, [HeadSet([head]) for head in self.model.heads])

    def score_gap_without(self, heads: HeadSet) -> float:
        """Return the rankings' group score gap with these heads ablated."""
        return self.task.score_gap(self.model.embed_images(self.people, heads))

    @cached_property
    def toward(self) -> NDArray[np.float32]:
        """Vectors [n, d] whose products with embeddings, summed, are the squared group score gap."""
        return self.task.toward(self.seen[0])


Method = Callable[[Evidence], Scores]


def read_heads(model: Model, images: ImageSet, texts: str) -> Reading:
    """Return each head's five texts by TEXTSPAN, and the heads' CCS by the tag-based judge.

    Args:
        model: Model whose scored heads are read.
        images: Images for the head statistics.
        texts: Name of a pool of texts.
    """
    from ccs.model.head_statistics import collect_moments
    from ccs.texts.textspan import textspan  # both import PyTorch

    pool = load_pool(texts)
    moments = collect_moments(model, [images.images])
    spans = textspan(moments, pool.texts, model.embed_texts(pool.texts), 5)
    return Reading(moments=moments, pool=pool, spans=spans, scores=score_by_tags(spans, pool))


def rank_heads(scores: Scores, seed: int = 0) -> tuple[Head, ...]:
    """Return heads by descending score; heads with equal scores are in random order.

    Args:
        scores: Score of each head.
        seed: Random seed for the order of equal scores.
    """
    heads = sorted(scores)
    order = np.random.default_rng([seed, 5]).permutation(len(heads))
    return tuple(sorted((heads[i] for i in order), key=lambda head: -scores[head]))


def by_head(evidence: Evidence, values: Floats | Sequence[float]) -> dict[Head, float]:
    """Return a score per head.

    Args:
        evidence: Model, people, and prompts.
        values: Scores in the order of the model's heads [heads].
    """
    return dict(zip(evidence.model.heads, map(float, values), strict=True))


def group_means(units: NDArray[np.floating], groups: NDArray[Any]) -> Floats:
    """Return the mean embedding of each group's people [groups, d], groups in order.

    Args:
        units: Embeddings of the people [n, d].
        groups: Group of each person [n].
    """
    return np.stack([units[groups == group].mean(axis=0, dtype=np.float64) for group in np.unique(groups)])


_TEMPLATES = {
    "gender": ("a {}", "a photo of a {}"),
    "skin tone": ("a woman with {} skin", "a man with {} skin"),
}
_WORDS = {"male": "man", "female": "woman"}


def group_names(attribute: str, groups: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Return, for each group, texts that name it, such as "a woman with dark skin".

    Args:
        attribute: Column of groups, or several with commas between them.
        groups: Names of the groups, such as "dark", or "woman, dark" for two columns.
    """
    if "," in attribute:
        words, templates = {group: name_person(group) for group in groups}, _TEMPLATES["gender"]
    else:
        words = {group: _WORDS.get(group.lower(), group.lower()) for group in groups}
        templates = _TEMPLATES.get(attribute, ("a {} person", "a photo of a {} person"))
    return {group: tuple(text.replace("{}", word) for text in templates) for group, word in words.items()}


class Subject:
    """A model with people and control images, whose embeddings below the first scored head all splits share.

    Args:
        model: A model from `ccs.load`.
        people: Gallery with occupations and K.
        controls: Images with classes on which accuracy must be preserved.
        trunks: Activations of both below the first scored head, if they are known.
        fresh: Whether to measure results on fresh people (`draw_people`) if these are synthetic faces.
        left_out: Group -> number of people left out of crossed groups.
    """

    def __init__(
        self,
        model: Model,
        people: BiasSet,
        controls: ClassificationSet,
        trunks: tuple[Trunk, Trunk] | None = None,
        *,
        fresh: bool = False,
        left_out: Mapping[str, int] | None = None,
    ) -> None:
        self.model, self.people, self.controls, self.fresh = model, people, controls, fresh
        self.left_out = format_left_out(left_out or {})
        self.trunks = trunks or (model.trunk(people.images), model.trunk(controls.images))

    @cached_property
    def reading(self) -> Reading:
        """Results of TEXTSPAN for the model's heads on synthetic images."""
        return read_heads(self.model, open_images("world", READ_IMAGES), "world")

    def split(self, attribute: str, seed: int = 0, tell: Tell = say_nothing) -> tuple[Evidence, Task]:
        """Return the evidence that methods see for an attribute, and the half on which they are judged.

        Args:
            attribute: Column of groups of the people.
            seed: Random seed for the split and for all draws of a method.
            tell: Function that is called with a line of text at each step of a long method.

        Raises:
            InputError: If there is too little to split (`ccs.analysis.task.halves`).
        """
        task = make_task(self.model, self.people, self.controls, attribute)
        seen, unseen = halves(replace(task, people=self.trunks[0], controls=self.trunks[1]), seed)
        evidence = Evidence(
            model=self.model,
            task=seen,
            names=group_names(attribute, task.group_names),
            read=lambda: self.reading,
            seed=seed,
            tell=tell,
            attribute=attribute,
        )
        people = draw_people(self.people, attribute, seed) if self.fresh else None
        return evidence, unseen if people is None else on_people(unseen, people, attribute)

    def describe(self, evidence: Evidence, unseen: Task, accuracy: Estimate) -> dict[str, Any]:
        """Return the `about` of a result: the model, the sets, both halves' sizes, and reasons for doubt.

        Args:
            evidence: Half on which a method was fitted.
            unseen: Half on which it was measured.
            accuracy: Accuracy on the other half's control images without ablation.
        """
        sets, smallest = (self.people, self.controls), min(Counter(evidence.task.groups.tolist()).values())
        small = warn_if_small("bias", smallest), warn_if_small("accuracy", len(unseen.labels))
        return describe_model(self.model) | {
            "gallery": self.people.name,
            "attribute": evidence.attribute,
            "groups": len(unseen.group_names),
            "left_out": self.left_out,
            "preserve": self.controls.name,
            "k": self.people.k[evidence.attribute],
            "fitted_on": len(evidence.task.people),
            "fitted_prompts": len(evidence.task.prompts),
            "held_out": len(unseen.people),
            "held_out_prompts": len(unseen.prompts),
            "fresh": unseen.fresh,
            "seed": evidence.seed,
            "skipped": tuple(f"{data.name}: {name}" for data in sets for name in data.skipped),
            "warning": " ".join(filter(None, small)),
            "doubt": near_chance(accuracy.value, accuracy.low, len(unseen.class_weights)),
        }
