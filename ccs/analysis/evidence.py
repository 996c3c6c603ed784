"""The interface of methods that find heads: evidence in, a score per head out.

A method is a function of `Evidence` that returns a score for each of the model's heads. The higher the score,
the more likely the head carries the bias.

    >>> rank_heads({Head(7, 0): 0.1, Head(7, 1): 0.9})[0]
    Head(layer=7, head=1, encoder='L')
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from ccs.analysis.galleries import name_person
from ccs.analysis.task import Task
from ccs.data import ImageSet
from ccs.heads import Head, HeadSet
from ccs.metrics.stats import Floats
from ccs.texts.labels import score_by_tags
from ccs.texts.pools import Pool, load_pool
from ccs.texts.score import HeadScore

if TYPE_CHECKING:
    from ccs.model.encoder import Trunk
    from ccs.model.head_statistics import Moments
    from ccs.model.model import Model
    from ccs.texts.textspan import Span

Scores = Mapping[Head, float]
Tell = Callable[[str], None]


def say_nothing(line: str) -> None:
    """Ignore a line of progress."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """What TEXTSPAN reads in the heads.

    Attributes:
        moments: head statistics of the images.
        pool: the texts, with `pool_embeddings` [texts, d].
        spans: each head's texts.
        scores: each head's CCS and label, by the tag-based judge.
    """

    moments: Moments
    pool: Pool
    pool_embeddings: NDArray[np.float32]
    spans: Mapping[Head, Sequence[Span]]
    scores: Mapping[Head, HeadScore]


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """One half of the people and prompts of a task, and data about the model's heads.

    Attributes:
        model: whose heads are ranked.
        task: the half; its `people` and `controls` are trunks.
        names: group -> texts that name it.
        read: makes the `reading`, which takes a while and which most methods don't need.
        seed: of whatever a method draws.
        tell: called with a line at each step of a long method; what it raises ends the method.
        attribute: the column of groups of the people.
        memory: scores that several methods share, by method.
        score_gaps: group score gaps that were measured, by ablated heads.
    """

    model: Model
    task: Task
    names: Mapping[str, Sequence[str]]
    read: Callable[[], Reading]
    seed: int = 0
    tell: Tell = say_nothing
    attribute: str = "groups"
    memory: dict[str, Scores] = field(default_factory=dict, init=False)
    score_gaps: dict[HeadSet, float] = field(default_factory=dict, init=False)

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
        return np.unique(np.asarray(self.task.groups, dtype=np.str_), return_inverse=True)[1]

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
        if heads not in self.score_gaps:
            alone = list(self.model.heads).index(next(iter(heads))) if len(heads) == 1 else None
            embedded = self.model.embed_images(self.people, heads) if alone is None else self.singles[alone]
            self.score_gaps[heads] = self.task.score_gap(embedded)
        return self.score_gaps[heads]

    @cached_property
    def toward(self) -> NDArray[np.float32]:
        """Vectors [n, d] whose products with embeddings, summed, are the squared group score gap."""
        return self.task.toward(self.seen[0])

    @cached_property
    def apart(self) -> NDArray[np.float32]:
        """Vectors [n, d] whose products with embeddings, summed, are the rankings' mean gap."""
        return self.task.apart(self.seen[0])


Method = Callable[[Evidence], Scores]


def read_heads(model: Model, images: ImageSet, texts: str) -> Reading:
    """Return the five texts that TEXTSPAN reads in each head, and the heads' CCS by the tag-based judge.

    Args:
        model: whose scored heads are read.
        images: what they see.
        texts: a pool's name.
    """
    from ccs.model.head_statistics import collect_moments
    from ccs.texts.textspan import textspan  # both import PyTorch

    pool = load_pool(texts)
    moments = collect_moments(model, [images.images])
    embeddings = model.embed_texts(pool.texts)
    spans = textspan(moments, pool.texts, embeddings, 5)
    scores = score_by_tags(spans, pool)
    return Reading(moments=moments, pool=pool, pool_embeddings=embeddings, spans=spans, scores=scores)


def rank_heads(scores: Scores, seed: int = 0) -> tuple[Head, ...]:
    """Return heads by descending score; heads with equal scores are in random order.

    Args:
        scores: a score per head.
        seed: random seed for the order of equal scores.
    """
    heads = sorted(scores)
    order = np.random.default_rng([seed, 5]).permutation(len(heads))
    return tuple(sorted((heads[i] for i in order), key=lambda head: -scores[head]))


def by_head(evidence: Evidence, values: Floats | Sequence[float]) -> dict[Head, float]:
    """Return a score per head.

    Args:
        evidence: of a model.
        values: scores [heads] in the order of the model's heads.
    """
    return dict(zip(evidence.model.heads, map(float, values), strict=True))


def group_means(units: NDArray[np.floating], groups: NDArray[Any]) -> Floats:
    """Return the mean embedding of each group's people [groups, d], groups in order.

    Args:
        units: embeddings [n, d].
        groups: the people's groups [n].
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
        attribute: the groups' column, or several with commas between them.
        groups: such as "dark", or "woman, dark" for two columns.
    """
    if "," in attribute:
        words, templates = {group: name_person(group) for group in groups}, _TEMPLATES["gender"]
    else:
        words = {group: _WORDS.get(group.lower(), group.lower()) for group in groups}
        templates = _TEMPLATES.get(attribute, ("a {} person", "a photo of a {} person"))
    return {group: tuple(text.replace("{}", word) for text in templates) for group, word in words.items()}
