"""The interface of methods that find heads: evidence in, a score per head out.

A method is a function of `Evidence` that returns a score per head, the higher the more likely the head
carries the bias. Sources of the methods are named in their files.

    >>> ranking({Head(7, 0): 0.1, Head(7, 1): 0.9})[0]
    Head(layer=7, head=1, tower='L')
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccs.analysis.search import Task
from ccs.heads import Head, HeadSet
from ccs.metrics.stats import Floats
from ccs.model.encoder import Trunk
from ccs.model.head_statistics import Moments
from ccs.model.model import Model
from ccs.texts.pools import Pool
from ccs.texts.score import HeadScore
from ccs.texts.textspan import Span

Scores = Mapping[Head, float]


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """What TEXTSPAN reads in the heads: its inputs (moments, pool, pool_embeddings [texts, d]), and the texts
    (spans) and the CCS (scores) of each head.
    """

    moments: Moments
    pool: Pool
    pool_embeddings: NDArray[np.float32]
    spans: Mapping[Head, Sequence[Span]]
    scores: Mapping[Head, HeadScore]


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """One half of the people and prompts of a task, and data about the model's heads.

    task: its `people` are a trunk. names: group -> texts that name it. read: makes the `reading`, which takes
    a while and which most methods do without.
    """

    model: Model
    task: Task
    names: Mapping[str, Sequence[str]]
    read: Callable[[], Reading]
    seed: int = 0

    @cached_property
    def reading(self) -> Reading:
        """The texts and the CCS of each head."""
        return self.read()

    @property
    def people(self) -> Trunk:
        """The people's activations below the first head."""
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
        """Unit embeddings of the people with each head alone off in the forward pass [heads, n, d]."""
        return self.model.embed_images(self.people, [HeadSet([head]) for head in self.model.heads])

    @cached_property
    def _leans(self) -> dict[HeadSet, float]:
        return {}

    def lean_without(self, off: HeadSet) -> float:
        """The rankings' lean with these heads off in the forward pass."""
        if off not in self._leans:
            alone = list(self.model.heads).index(next(iter(off))) if len(off) == 1 else None
            embedded = self.model.embed_images(self.people, off) if alone is None else self.singles[alone]
            self._leans[off] = self.task.lean(embedded)
        return self._leans[off]

    @cached_property
    def toward(self) -> NDArray[np.float32]:
        """Vectors [n, d] whose products with embeddings, summed, are the rankings' mean lean."""
        return self.task.toward(self.seen[0])

    @cached_property
    def apart(self) -> NDArray[np.float32]:
        """Vectors [n, d] whose products with embeddings, summed, are the rankings' mean gap."""
        return self.task.apart(self.seen[0])


Method = Callable[[Evidence], Scores]


def ranking(scores: Scores, seed: int = 0) -> tuple[Head, ...]:
    """Heads by descending score; equal ones in an order drawn from the seed."""
    heads = sorted(scores)
    order = np.random.default_rng([seed, 5]).permutation(len(heads))
    return tuple(sorted((heads[i] for i in order), key=lambda head: -scores[head]))


def by_head(evidence: Evidence, values: Floats | Sequence[float]) -> dict[Head, float]:
    """Scores from values [heads] in the order of the model's heads."""
    return dict(zip(evidence.model.heads, map(float, values), strict=True))


def group_means(units: NDArray[np.floating], groups: NDArray[Any]) -> Floats:
    """The mean embedding of each group's people [groups, d], groups in order."""
    return np.stack([units[groups == one].mean(axis=0, dtype=np.float64) for one in np.unique(groups)])


def values_of(model: Model, people: Trunk) -> dict[int, Tensor]:
    """Layer -> the heads' outputs for these people, side by side before the output projection [n, T, H d]."""
    found: dict[int, Tensor] = {}

    def keep(layer: int, passed: Tensor) -> Tensor:
        found[layer] = passed
        return passed

    with torch.no_grad():
        model.tower.with_values(people, keep)
    return found


def replaced(model: Model, people: Trunk, others: Mapping[int, Tensor]) -> NDArray[np.float32]:
    """Unit embeddings [heads, n, d] of people, each head in turn with the output that `others` has for it.

    others: layer -> [n or 1, T, H d], as `values_of` gives them.
    """
    tower, found, start = model.tower, [], people
    for head in model.heads:  # by layer, so that what lies below is computed once
        start = tower.trunk(start, head.layer)
        d = tower.layers[head.layer].head_dim
        columns = slice(head.head * d, (head.head + 1) * d)

        def change(layer: int, passed: Tensor, head: Head = head, columns: slice = columns) -> Tensor:
            if layer != head.layer:
                return passed
            passed = passed.clone()
            passed[..., columns] = others[layer][..., columns]
            return passed

        with torch.no_grad():
            found.append(tower.with_values(start, change).cpu().numpy())
    return np.stack(found)


def in_batches(people: Trunk, size: int = 64) -> Iterable[slice]:
    """The rows of the people in batches of this size."""
    return (slice(start, start + size) for start in range(0, len(people), size))


def counterparts(evidence: Evidence) -> NDArray[np.intp]:
    """For each person [n] the index of somebody of another group: all groups in turn, in seeded order."""
    codes, rng = evidence.codes, np.random.default_rng([evidence.seed, 6])
    groups = int(codes.max()) + 1
    members = [rng.permutation(np.flatnonzero(codes == group)) for group in range(groups)]
    place = np.zeros(len(codes), np.intp)
    for own in members:
        place[own] = np.arange(len(own))
    other = (codes + 1 + place % (groups - 1)) % groups
    return np.array([members[o][p % len(members[o])] for o, p in zip(other, place, strict=True)])


def pairs(evidence: Evidence) -> Iterator[tuple[Trunk, Trunk, slice]]:
    """The people in batches: themselves, their counterparts, and their rows."""
    people, other = evidence.people, counterparts(evidence)
    for rows in in_batches(people):
        theirs = Trunk(people.tokens[torch.from_numpy(other[rows])], people.layer)
        yield people[rows], theirs, rows


_TEMPLATES = {
    "gender": ("a {}", "a photo of a {}"),
    "skin tone": ("a woman with {} skin", "a man with {} skin"),
}
_OTHERS = ("a {} person", "a photo of a {} person")
_WORDS = {"male": "man", "female": "woman"}


def group_names(attribute: str, groups: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Group -> texts that name it, such as "a woman with dark skin"."""
    templates = _TEMPLATES.get(attribute, _OTHERS)
    words = {group: _WORDS.get(group.lower(), group.lower()) for group in groups}
    return {group: tuple(one.replace("{}", word) for one in templates) for group, word in words.items()}
