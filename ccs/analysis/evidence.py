"""The interface of methods that find heads: evidence in, a score per head out.

A method is a function of `Evidence` that returns a score for each of the model's heads. The higher the score,
the more likely the head carries the bias.

    >>> rank_heads({Head(7, 0): 0.1, Head(7, 1): 0.9})[0]
    Head(layer=7, head=1, encoder='L')
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ccs.analysis.bias import set_question
from ccs.analysis.crossing import format_left_out, name_person
from ccs.analysis.fresh import draw_people, on_people
from ccs.analysis.inputs import Names, load_model, open_classes, open_people, require_readable
from ccs.analysis.task import Sets, Task, halves, make_task
from ccs.data import BiasSet, ClassificationSet, ImageSet
from ccs.data.open import open_images
from ccs.errors import require_seed
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
        people: Trunk = self.task.people
        return people

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

    @cached_property
    def _score_gaps(self) -> dict[HeadSet, float]:
        return {}

    def score_gap_without(self, heads: HeadSet) -> float:
        """Return the rankings' group score gap with these heads ablated."""
        if heads not in self._score_gaps:
            alone = list(self.model.heads).index(next(iter(heads))) if len(heads) == 1 else None
            embedded = self.model.embed_images(self.people, heads) if alone is None else self.singles[alone]
            self._score_gaps[heads] = self.task.score_gap(embedded)
        return self._score_gaps[heads]

    @cached_property
    def toward(self) -> NDArray[np.float32]:
        """Vectors [n, d] whose products with embeddings, summed, are the squared group score gap."""
        return self.task.toward(self.seen[0])

    @cached_property
    def apart(self) -> NDArray[np.float32]:
        """Vectors [n, d] whose products with embeddings, summed, are the rankings' mean gap."""
        return self.task.apart(self.seen[0])


Method = Callable[[Evidence], Scores]


class Subject:
    """A model with its sets, whose embeddings below the first scored head all splits share.

    Args:
        model: from `ccs.load`.
        sets: people and control images.
        trunks: activations of both below the first scored head, if they are known.
    """

    def __init__(self, model: Model, sets: Sets, trunks: tuple[Trunk, Trunk] | None = None) -> None:
        self.model, self.sets, self._trunks = model, sets, trunks
        self._tasks: dict[str, Task] = {}
        self._fresh: dict[tuple[str, int], BiasSet | None] = {}

    @cached_property
    def trunks(self) -> tuple[Trunk, Trunk]:
        """Activations of the people and of the control images below the first scored head."""
        if self._trunks is not None:
            return self._trunks
        return self.model.trunk(self.sets.people.images), self.model.trunk(self.sets.controls.images)

    @cached_property
    def reading(self) -> Reading:
        """The texts that TEXTSPAN reads in the model's heads, and their CCS by the tag-based judge."""
        images = open_images(self.sets.images, self.sets.max_images)
        return read_heads(self.model, images, self.sets.texts)

    def whole(self, attribute: str) -> Task:
        """Return the task for an attribute."""
        if attribute not in self._tasks:
            task = make_task(self.model, self.sets.people, self.sets.controls, attribute)
            self._tasks[attribute] = replace(task, people=self.trunks[0], controls=self.trunks[1])
        return self._tasks[attribute]

    def split(self, attribute: str, seed: int = 0, tell: Tell = say_nothing) -> tuple[Evidence, Task]:
        """Return the evidence that methods see for an attribute, and the half on which they are judged.

        Args:
            attribute: a column of groups of the people.
            seed: of the split and of whatever a method draws.
            tell: called with a line at each step of a long method.

        Raises:
            InputError: If there is too little to split (`ccs.analysis.task.halves`).
        """
        seen, unseen = halves(self.whole(attribute), seed)
        unseen = self.renew(unseen, attribute, seed)
        names = group_names(attribute, sorted(set(self.sets.people.groups[attribute].tolist())))
        evidence = Evidence(
            model=self.model,
            task=seen,
            names=names,
            read=lambda: self.reading,
            seed=seed,
            tell=tell,
            attribute=attribute,
        )
        return evidence, unseen

    def fresh(self, attribute: str, seed: int) -> BiasSet | None:
        """Return fresh people on whom a result is held out, if the sets ask for them.

        Args:
            attribute: a column of groups.
            seed: of the question.
        """
        if self.sets.held_out and (attribute, seed) not in self._fresh:
            self._fresh[attribute, seed] = draw_people(self.sets.people, attribute, seed)
        return self._fresh.get((attribute, seed))

    def renew(self, unseen: Task, attribute: str, seed: int) -> Task:
        """Return the half that methods don't see with fresh people, if the sets ask for them.

        Args:
            unseen: the half, with the people of the gallery.
            attribute: a column of groups.
            seed: of the split.
        """
        people = self.fresh(attribute, seed)
        return unseen if people is None else on_people(unseen, people, attribute)

    def describe_halves(self, attribute: str, seen: Task, unseen: Task, seed: int) -> dict[str, Any]:
        """Return the `about` of a result: the model, the sets, and both halves' sizes.

        Args:
            attribute: a column of groups.
            seen: the half on which something was fitted.
            unseen: the half on which it was measured.
            seed: of the split.
        """
        return {
            "model": self.model.name,
            "weights": self.model.weights_hash[:16],
            "gallery": self.sets.people.name,
            "attribute": attribute,
            "groups": len(unseen.group_names),
            "left_out": format_left_out(self.sets.left_out),
            "preserve": self.sets.controls.name,
            "k": self.sets.people.k[attribute],
            "fitted_on": len(seen.people),
            "fitted_prompts": len(seen.prompts),
            "held_out": len(unseen.people),
            "held_out_prompts": len(unseen.prompts),
            "fresh": self.fresh(attribute, seed) is not None,
            "seed": seed,
            "skipped": self.sets.skipped,
        }

    def unseen(self, attribute: str, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the numbers of the people and of the prompts in the half that methods don't see.

        Args:
            attribute: a column of groups.
            seed: of the split.
        """
        whole = self.whole(attribute)
        numbers = replace(whole, people=np.arange(len(whole.groups)), prompts=np.eye(len(whole.prompts)))
        half = halves(numbers, seed)[1]
        return half.people, half.prompts.argmax(axis=1)


def open_subject(
    model: Model | str,
    gallery: BiasSet | str,
    occupations: Names | None,
    preserve: ClassificationSet | str,
    *,
    attribute: str | None = None,
    prompts: str | None = None,
    classes: Names | None = None,
    template: str | None = None,
    top: int | None = None,
    max_images: int | None = None,
    skip_unreadable: bool = False,
    seed: int = 0,
    device: str = "cpu",
) -> tuple[Subject, str]:
    """Open the model and the sets of a question about both bias and accuracy.

    Args:
        model: from `ccs.load`, or a name that it takes.
        gallery: people, as `ccs.open_gallery` takes them.
        occupations: as in `ccs.bias`.
        preserve: images with classes, as `ccs.open_dataset` takes them.
        attribute: the column of groups; by default gender, or else the first. "gender,race" crosses two.
        prompts: a named prompt set in place of occupations and template.
        classes: names of the classes of `preserve`, if it is opened here.
        template: the prompt of an occupation, with `{}` for it.
        top: K.
        max_images: the most images of each set opened here; synthetic people are all used.
        skip_unreadable: continue if more than 1% of the images cannot be read.
        seed: the question's, which is checked here.
        device: for a model given by name.

    Returns:
        tuple: the subject, and the attribute in force.

    Raises:
        InputError: If an argument does not fit the others.
    """
    require_seed(seed)
    people, attribute, left_out = open_people(gallery, attribute, max_images)
    controls = open_classes(preserve, classes, max_images=max_images)
    for dataset in (people, controls):
        require_readable(dataset, skip_unreadable)
    people = set_question(people, occupations, template, top, prompts)
    sets = Sets(people=people, controls=controls, held_out=True, left_out=left_out)
    return Subject(load_model(model, device), sets), attribute


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
_OTHERS = ("a {} person", "a photo of a {} person")
_WORDS = {"male": "man", "female": "woman"}


def group_names(attribute: str, groups: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Return, for each group, texts that name it, such as "a woman with dark skin".

    Args:
        attribute: the groups' column, or several with commas between them.
        groups: such as "dark", or "woman, dark" for two columns.
    """
    if "," in attribute:
        return {
            group: tuple(f"{start} {name_person(group)}" for start in ("a", "a photo of a"))
            for group in groups
        }
    templates = _TEMPLATES.get(attribute, _OTHERS)
    words = {group: _WORDS.get(group.lower(), group.lower()) for group in groups}
    return {
        group: tuple(template.replace("{}", word) for template in templates) for group, word in words.items()
    }
