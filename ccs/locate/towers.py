"""Which tower a lean sits in, that of the images or that of the prompts, and which text heads carry it.

A lean is a product: prompts point along what differs between groups of people. Switching off whatever tells
groups apart ends it, and so does whatever tells prompts apart, whoever is to blame. So a third thing is
needed: pictures of the same occupations, of all groups alike. Where they, in the place of the prompts, lean
to the same groups, the image tower puts what belongs to occupations into groups. Where they do not, the lean
is in the prompts. The question is that of Freeze and Reveal (arXiv 2508.07432), which trains a tower at a
time instead.

Text heads are then found by putting each, where a text is read, at its mean over the prompts: what it still
says there is the same for all occupations, and later layers see nothing unusual.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ccs.errors import InputError
from ccs.heads import Head
from ccs.measures import stats
from ccs.measures.stats import Estimate, Floats
from ccs.model.model import Model
from ccs.pruning.fairness import embed_occupations, prompted
from ccs.sets import BiasSet

Change = Callable[[int, Tensor], Tensor]
"""From a layer and its heads' outputs [n, tokens, H d] to others."""
DRAWS = 500
"""Resamples of the occupations, for the interval."""


@dataclass(frozen=True, kw_only=True)
class Towers:
    """Where a lean sits. images: the share, 0 to 1, that pictures in the place of prompts show too. Intervals
    are over occupations. carried: the share of the rankings' lean that goes with each text head at its mean,
    the most first; below 0 where the lean grows.
    """

    images: Estimate
    carried: dict[Head, float]
    occupations: int

    @property
    def prompts(self) -> Estimate:
        return Estimate(1 - self.images.value, 1 - self.images.high, 1 - self.images.low)

    @property
    def text_tower(self) -> bool:
        return self.images.value < 0.5

    @property
    def shown(self) -> bool:
        """True where the interval leaves no doubt."""
        return not self.images.low <= 0.5 <= self.images.high


def which_tower(
    model: Model,
    people: BiasSet,
    pictures: BiasSet,
    attribute: str,
    seed: int = 0,
    embedded: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None,
) -> Towers:
    """Where the lean of people's rankings for occupations sits.

    people: to be ranked for their occupations. pictures: a gallery that says which occupation each of its
    images shows, as world/counterfactuals and socialcounterfactuals do; groups are weighed alike. embedded:
    the unit embeddings of both, where they are known. InputError: fewer than three occupations in common, a
    group that is missing from an occupation's pictures.
    """
    shared = (
        [] if pictures.pools is None else [one for one in people.occupations if one in pictures.occupations]
    )
    if len(shared) < 3:
        raise InputError(
            f"{pictures.name} must show at least three of the occupations asked for, and say which each "
            f"picture shows; they share {len(shared) or 'none'}."
        )
    if attribute not in pictures.groups:
        raise InputError(f"{pictures.name} does not say the {attribute} of the people whom it shows.")
    rows = [people.occupations.index(name) for name in shared]
    faces, scenes = embedded or (model.embed_images(people.images), model.embed_images(pictures.images))
    apart = groups_apart(faces, people.groups[attribute])
    ours = _leans(embed_occupations(model, people)[rows], apart)
    theirs = _leans(_shown(scenes, pictures, attribute, shared), apart)
    both, own = (ours * theirs).sum(1), (ours**2).sum(1)
    weights = np.random.default_rng([seed, 9]).multinomial(len(own), np.full(len(own), 1 / len(own)), DRAWS)
    drawn = np.concatenate([np.ones((1, len(own))), weights])
    shares = np.clip((drawn @ both) / np.maximum(drawn @ own, 1e-12), 0, 1)
    carried = _carried(Prompts(model, [prompted(people)[row] for row in rows], people.templates), apart)
    return Towers(
        images=stats.interval(float(shares[0]), shares[1:]),
        carried=dict(sorted(carried.items(), key=lambda item: -item[1])),
        occupations=len(shared),
    )


def groups_apart(people: NDArray[np.floating], groups: NDArray[np.str_]) -> Floats:
    """Each group's mean embedding [groups, d] less the mean of all groups."""
    means = np.stack([people[groups == one].mean(0, dtype=np.float64) for one in np.unique(groups)])
    return np.asarray(means - means.mean(0))


def _leans(queries: NDArray[np.floating], apart: Floats) -> Floats:
    """How far queries [occupations, d], centered and scaled, prefer each group [occupations, groups]."""
    own = np.asarray(queries, np.float64) - queries.mean(0, dtype=np.float64)
    return np.asarray(own @ apart.T / max(float(np.linalg.norm(own)), 1e-12))


def _shown(
    units: NDArray[np.float32], pictures: BiasSet, attribute: str, occupations: Sequence[str]
) -> Floats:
    """The mean embedding of an occupation's pictures [occupations, d], groups weighed alike."""
    groups, found = pictures.groups[attribute], []
    for name in occupations:
        means = []
        for group in np.unique(groups):
            own = units[(pictures.pools == name) & (groups == group)]
            if not len(own):
                raise InputError(f"{pictures.name} shows no {group} as {name!r}; every group is needed.")
            means.append(own.mean(0, dtype=np.float64))
        found.append(np.mean(means, axis=0))
    return np.stack(found)


class Prompts:
    """A model's prompts, names in templates, embedded with what is done to its text heads."""

    def __init__(self, model: Model, names: Sequence[str], templates: Sequence[str]) -> None:
        self.heads, self.tower = model.text_heads, model.texts.tower
        self._shape = len(names), len(templates)
        batches = model.texts.batches([one.replace("{}", name) for name in names for one in templates])
        rows, self._trunks = zip(*((rows, self.tower.trunk(part)) for rows, part in batches), strict=True)
        self._order = np.argsort(np.concatenate(rows))

    def embed(self, change: Change) -> Tensor:
        """Unit embeddings [names, d], float64."""
        units = torch.cat([self.tower.with_values(one, change) for one in self._trunks])[self._order]
        return F.normalize(units.reshape(*self._shape, -1).mean(1), dim=-1).double().cpu()

    @torch.no_grad()
    def means(self) -> dict[int, Tensor]:
        """Layer -> the heads' mean outputs [positions, H d], counted from where a text is read."""
        sums: dict[int, Tensor] = {}
        counts = torch.zeros(self.tower.n_tokens, 1)

        def add(layer: int, values: Tensor) -> Tensor:
            n, tokens, width = values.shape
            if layer not in sums:
                sums[layer] = torch.zeros(self.tower.n_tokens, width).to(values)
            sums[layer][:tokens] += values.sum(0)
            if layer == min(sums):
                counts[:tokens] += n
            return values

        self.embed(add)
        return {layer: own / counts.clamp_min(1).to(own) for layer, own in sums.items()}

    @torch.no_grad()
    def each(self, values: Mapping[int, Tensor], tokens: int | None = None) -> dict[Head, Tensor]:
        """Embeddings with each head in turn at these outputs, as `means` has them: of the first tokens, or
        of all.
        """

        def changed(head: Head) -> Change:
            d = self.tower.layers[head.layer].head_dim
            columns = slice(head.head * d, head.head * d + d)

            def change(layer: int, passed: Tensor) -> Tensor:
                if layer == head.layer:
                    passed = passed.clone()
                    some = passed[:, :tokens, columns]
                    some[:] = values[layer][: some.shape[1], columns]
                return passed

            return change

        return {head: self.embed(changed(head)) for head in self.heads}


def _carried(prompts: Prompts, apart: Floats) -> dict[Head, float]:
    """The share of the rankings' lean that goes with each head at its mean where a text is read."""
    groups = torch.from_numpy(apart)

    def lean(units: Tensor) -> float:
        return float((units @ groups.T).norm())

    with torch.no_grad():
        whole = max(lean(prompts.embed(lambda _, values: values)), 1e-12)
    return {head: 1 - lean(units) / whole for head, units in prompts.each(prompts.means(), 1).items()}
